"""The models have the stated form, see no future, can be checkpointed block by block, and learn."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course.errors import BadArgument
from course.lessons.floor import entropy_per_character
from course.lessons.grammar import ALPHABET, NORTH, batch, encode, text
from course.lessons.models import GPT, GPTConfig, mlp, next_token_loss

SMALL = GPTConfig(vocabulary=11, context=12, width=16, heads=4, layers=3)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_tokens(count: int = 2, time: int = 12) -> Tensor:
    return torch.randint(SMALL.vocabulary, (count, time), generator=seeded(1))


def train(model: GPT, batches: list[tuple[Tensor, Tensor]], lr: float) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for inputs, targets in batches:
        loss = next_token_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("width", "layers", "tied"), list(product((8, 20), (1, 3), (True, False))))
def test_the_formula_counts_every_parameter_once(width: int, layers: int, tied: bool) -> None:
    config = GPTConfig(vocabulary=11, context=12, width=width, heads=4, layers=layers, tied=tied)
    assert config.parameters == sum(p.numel() for p in GPT(config).parameters())


def test_the_formula_counts_gpt2_as_its_authors_model_does() -> None:
    """GPT-2 small: 124,439,808 parameters in the weights that were published."""
    config = GPTConfig(vocabulary=50257, context=1024, width=768, heads=12, layers=12)
    assert config.parameters == 124_439_808


def test_a_later_token_does_not_change_earlier_logits() -> None:
    model, tokens = GPT(SMALL, seeded()), random_tokens()
    changed = tokens.clone()
    changed[:, 7] = (tokens[:, 7] + 1) % SMALL.vocabulary
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.equal(before[:, 7], after[:, 7])


def test_every_earlier_token_changes_the_last_logits() -> None:
    model, tokens = GPT(SMALL, seeded()), random_tokens(1)
    last = model(tokens)[0, -1]
    for time in range(12):
        changed = tokens.clone()
        changed[0, time] = (tokens[0, time] + 1) % SMALL.vocabulary
        assert not torch.equal(model(changed)[0, -1], last)


def test_attention_is_softmax_of_scaled_products_with_the_future_masked() -> None:
    attention = GPT(SMALL, seeded()).blocks[0].attention
    x = torch.randn(2, 12, 16, generator=seeded(2))
    heads = []
    for columns in torch.arange(16).split(4):
        q, k, v = (project(x)[..., columns] for project in (attention.q_proj, attention.k_proj, attention.v_proj))
        scores = (q @ k.mT / 4**0.5).masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
        heads.append(scores.softmax(-1) @ v)
    torch.testing.assert_close(attention(x), attention.out_proj(torch.cat(heads, -1)))


def test_gradients_are_the_same_with_each_block_checkpointed() -> None:
    model, tokens = GPT(SMALL, seeded()), random_tokens()
    next_token_loss(model(tokens), tokens).backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    x = model.token_embedding(tokens) + model.position_embedding(torch.arange(12))
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    next_token_loss(model.head(model.norm(x)), tokens).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, plain[name])


def test_state_dict_names_stay_what_they_are() -> None:
    """Lessons find layers by these names, and recorded weights carry them."""
    names = [re.sub(r"blocks\.\d+", "blocks.N", name) for name in GPT(SMALL).state_dict()]
    block = [
        *("attention_norm.weight", "attention_norm.bias"),
        *(f"attention.{m}.{p}" for m in ("q_proj", "k_proj", "v_proj", "out_proj") for p in ("weight", "bias")),
        *("mlp_norm.weight", "mlp_norm.bias", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"),
    ]
    assert list(dict.fromkeys(names)) == [
        *("token_embedding.weight", "position_embedding.weight"),
        *(f"blocks.N.{name}" for name in block),
        *("norm.weight", "norm.bias", "head.weight"),
    ]
    assert list(mlp((4, 3, 2)).state_dict()) == ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]


def test_weights_come_from_the_generator() -> None:
    torch.manual_seed(5)
    first = GPT(SMALL, seeded()).state_dict()
    torch.manual_seed(6)
    second, other = GPT(SMALL, seeded()).state_dict(), GPT(SMALL, seeded(1)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_weights_can_be_drawn_after_the_model_was_built_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = GPT(SMALL)
    model.to_empty(device="cpu")
    for p in model.parameters():
        nn.init.constant_(p, torch.nan)
    model.init_weights(seeded())
    drawn = GPT(SMALL, seeded()).state_dict()
    assert all(torch.equal(value, drawn[name]) for name, value in model.state_dict().items())


def test_weights_that_are_added_to_x_start_smaller_by_the_root_of_their_number() -> None:
    config = GPTConfig(vocabulary=11, context=12, width=128, heads=4, layers=8)
    block = GPT(config, seeded()).blocks[3]
    assert block.mlp.up.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert block.mlp.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert block.attention.out_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.03)
    assert not block.attention.out_proj.bias.any()


def test_a_fresh_model_knows_nothing() -> None:
    tokens, targets = random_tokens(16).split(8)
    assert next_token_loss(GPT(SMALL, seeded())(tokens), targets).item() == pytest.approx(math.log(11), 0.05)


def test_a_tied_head_is_the_embedding_and_a_free_one_is_not() -> None:
    tied = GPT(SMALL)
    free = GPT(GPTConfig(vocabulary=11, context=12, width=16, heads=4, layers=1, tied=False))
    assert tied.head.weight is tied.token_embedding.weight
    assert free.head.weight is not free.token_embedding.weight


def test_dropout_is_there_in_training_only() -> None:
    config = GPTConfig(vocabulary=11, context=12, width=16, heads=4, layers=1, dropout=0.5)
    model, tokens = GPT(config, seeded()), random_tokens()
    torch.manual_seed(0)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_a_model_learns_a_short_text_by_heart() -> None:
    tokens = encode(". the old cat that the dogs see sleeps.")[None]
    config = GPTConfig(vocabulary=len(ALPHABET), context=64, width=32, heads=4, layers=2)
    losses = train(GPT(config, seeded()), [(tokens[:, :-1], tokens[:, 1:])] * 100, lr=1e-2)
    assert losses[0] > 3
    assert losses[-1] < 0.05


def test_a_model_learns_more_of_the_grammar_than_which_letters_are_frequent() -> None:
    tokens = encode(text(NORTH, 50_000, seeded()))
    shares = tokens.bincount().double() / len(tokens)
    by_letters = -(shares * shares.clamp_min(1e-9).log()).sum().item()
    config = GPTConfig(vocabulary=len(ALPHABET), context=32, width=32, heads=4, layers=2)
    rng = seeded(1)
    losses = train(GPT(config, seeded()), [batch(tokens, 16, 32, rng) for _ in range(120)], lr=5e-3)
    assert entropy_per_character(NORTH) < sum(losses[-20:]) / 20 < 0.6 * by_letters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 18}, "width must be a multiple of heads, got 18 for 4 heads"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(change: dict[str, int], message: str) -> None:
    sizes = {"vocabulary": 11, "context": 12, "width": 16, "heads": 4, "layers": 1} | change
    with pytest.raises(BadArgument, match=message):
        GPTConfig(**sizes)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(BadArgument, match="tokens must be at most 12 in a row, got 13"):
        GPT(SMALL)(random_tokens(1, 13))


@pytest.mark.parametrize("widths", [(), (64,), (64, 0, 10)])
def test_an_mlp_without_an_input_and_an_output_is_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(BadArgument, match="widths must be two or more"):
        mlp(widths)


def test_an_mlp_has_relu_between_its_layers_and_none_at_the_end() -> None:
    model = mlp((5, 7, 7, 3), seeded())
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert model(torch.randn(4, 5)).shape == (4, 3)


def test_an_mlp_keeps_the_size_of_its_signal() -> None:
    x = torch.randn(64, 512, generator=seeded(3))
    hidden = mlp([512] * 9, seeded())(x)
    assert 0.5 < hidden.square().mean().item() / 2 < 2
