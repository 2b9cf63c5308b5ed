"""The reference of LoRA on the course's GPT: what is trained, what stays, what merging and files keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from course.errors import BadArgument, CourseError
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.reference.lora.adapters import (
    CONFIG,
    TENSORS,
    LoRA,
    adapted,
    inject,
    load_adapter,
    merge,
    save_adapter,
    unmerge,
)

SHAPE = GPTConfig(vocabulary=11, context=8, width=12, heads=2, layers=2)
PATTERN = r"blocks\.\d\.attention\.[qv]_proj"
NAMES = [f"blocks.{block}.attention.{part}_proj" for block in (0, 1) for part in "qv"]
TEXT = torch.randint(SHAPE.vocabulary, (5, SHAPE.context + 1), generator=torch.Generator().manual_seed(2))
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
    ),
]


def gpt() -> GPT:
    return GPT(SHAPE, torch.Generator().manual_seed(0))


def with_adapters(r: int = 3, moved: bool = True) -> GPT:
    model, rng = gpt(), torch.Generator().manual_seed(1)
    assert inject(model, PATTERN, r, 6.0, rng) == NAMES
    for _, layer in adapted(model) if moved else ():
        nn.init.normal_(layer.B, generator=rng)
    return model


def trained(model: nn.Module) -> list[str]:
    return [name for name, each in model.named_parameters() if each.requires_grad]


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.clone() for name, each in model.state_dict().items()}


@pytest.mark.parametrize("device", DEVICES)
def test_training_moves_the_adapter_and_no_bit_of_the_base(device: str) -> None:
    model, tokens, targets = gpt().to(device), TEXT[:, :-1].to(device), TEXT[:, 1:].to(device)
    before, logits = state(model), model(tokens)
    inject(model, PATTERN, 3, 6.0, torch.Generator().manual_seed(1))
    assert torch.equal(model(tokens), logits)
    assert trained(model) == [f"{name}.{factor}" for name in NAMES for factor in "AB"]
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = next_token_loss(model(tokens), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    after = {name.replace(".base.", "."): each for name, each in state(model).items()}
    assert all(torch.equal(after[name], each) for name, each in before.items())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_and_unmerged_models_compute_the_same(dtype: torch.dtype, device: str) -> None:
    model, tokens = with_adapters().to(device, dtype), TEXT[:, :-1].to(device)
    before, logits = state(model), model(tokens)
    close = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for _ in range(2):
        merge(model)
        torch.testing.assert_close(model(tokens), logits, **close)
    for _ in range(2):
        unmerge(model)
    after = state(model)
    assert all(torch.equal(after[name], each) for name, each in before.items() if not name.endswith("base.weight"))
    torch.testing.assert_close(after, before, **close)


def test_a_layer_in_two_places_is_wrapped_once_and_the_model_stays_in_one_piece() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.Linear(4, 2))})
    assert inject(model, "a|b.*", 2, 2.0) == ["a", "b.1"]
    assert model["a"] is model["b"][0]
    assert trained(model) == ["a.A", "a.B", "b.1.A", "b.1.B"]


def test_a_second_call_adds_to_the_first_and_wraps_nothing_again() -> None:
    model = with_adapters()
    assert inject(model, r".*(up|base)", 1, 1.0) == ["blocks.0.mlp.up", "blocks.1.mlp.up"]
    assert len(trained(model)) == 2 * 6
    assert [layer.r for _, layer in adapted(model)] == [3, 3, 1, 3, 3, 1]


@pytest.mark.parametrize(("pattern", "r", "alpha"), [("q_proj", 3, 6.0), (PATTERN, 0, 6.0), (PATTERN, 3, 0.0)])
def test_what_makes_no_sense_is_refused_and_changes_nothing(pattern: str, r: int, alpha: float) -> None:
    model = gpt()
    every = trained(model)
    with pytest.raises(BadArgument, match="must"):
        inject(model, pattern, r, alpha)
    assert trained(model) == every
    assert not list(adapted(model))


def test_a_file_brings_the_adapter_back_on_a_bare_model_and_on_one_with_adapters(tmp_path: Path) -> None:
    model = with_adapters()
    inject(model, r"blocks\.1\.mlp\.up", 1, 5.0)
    save_adapter(model, tmp_path)
    bare, other = gpt(), with_adapters(moved=False)
    inject(other, r"blocks\.1\.mlp\.up", 1, 1.0)
    factors = dict(other.named_parameters())
    for each in (bare, other):
        assert load_adapter(each, tmp_path) == [*NAMES, "blocks.1.mlp.up"]
        assert torch.equal(each(TEXT[:, :-1]), model(TEXT[:, :-1]))
        assert trained(each) == trained(model)
    assert all(factors[name] is each for name, each in other.named_parameters())
    numbers = sum(each.numel() for each in model.parameters() if each.requires_grad)
    assert 4 * numbers < (tmp_path / TENSORS).stat().st_size < 4 * numbers + 2_000


def other_model() -> nn.Module:
    """One layer is missing, and one has another shape."""
    model = gpt()
    model.blocks[0].attention.q_proj = nn.Identity()
    model.blocks[1].attention.v_proj = nn.Linear(12, 5)
    return model


def merged() -> nn.Module:
    model = with_adapters()
    merge(model)
    return model


def adapted_elsewhere() -> nn.Module:
    model = gpt()
    inject(model, r"blocks\.0\.mlp\.up", 3, 6.0)
    return model


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (other_model, ["no linear layer blocks.0.attention.q_proj", r"blocks.1.attention.v_proj takes"]),
        (merged, [f"{name} is merged" for name in NAMES]),
        (lambda: with_adapters(r=2), [f"{name} takes factors of shapes" for name in NAMES]),
        (adapted_elsewhere, ["blocks.0.mlp.up has an adapter that the folder has not"]),
    ],
)
def test_an_adapter_of_another_model_is_refused_with_all_reasons(build, words, tmp_path):
    save_adapter(with_adapters(), tmp_path)
    model = build()
    before, layers = state(model), [name for name, _ in adapted(model)]
    with pytest.raises(CourseError) as caught:
        load_adapter(model, tmp_path)
    assert all(each in str(caught.value) for each in words)
    assert all(torch.equal(each, before[name]) for name, each in state(model).items())
    assert [name for name, _ in adapted(model)] == layers


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"use_dora": True}, "use_dora is True"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"lora_alpha": -1.0}, "has alpha -1.0"),
        ({"r": 5}, "takes factors of shapes"),
    ],
)
def test_settings_that_say_more_than_factors_are_refused(change, word, tmp_path):
    save_adapter(with_adapters(), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(config | change))
    with pytest.raises(CourseError, match=word):
        load_adapter(gpt(), tmp_path)


def test_broken_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=CONFIG):
        load_adapter(gpt(), tmp_path)
    save_adapter(with_adapters(), tmp_path)
    (tmp_path / TENSORS).write_bytes(b"none")
    with pytest.raises(CourseError, match=TENSORS):
        load_adapter(gpt(), tmp_path)
    (tmp_path / CONFIG).write_text("[1]")
    with pytest.raises(CourseError, match=CONFIG):
        load_adapter(gpt(), tmp_path)


def test_a_model_without_adapters_has_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="inject"):
        save_adapter(gpt(), tmp_path)


def test_a_layer_adapts_any_leading_dimensions_in_the_dtype_of_its_base() -> None:
    layer = LoRA(nn.Linear(5, 4, bias=False, dtype=torch.bfloat16), 2, 4.0)
    assert {each.dtype for each in layer.parameters()} == {torch.bfloat16}
    assert [tuple(layer(torch.ones(*lead, 5).bfloat16()).shape) for lead in ((), (0,), (2, 3))] == [
        (4,),
        (0, 4),
        (2, 3, 4),
    ]
    assert "r=2, alpha=4" in str(layer)
