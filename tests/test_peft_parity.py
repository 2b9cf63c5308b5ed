"""The reference of LoRA beside peft: the same outputs, gradients and training, and adapter files in both directions."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course.errors import CourseError
from course.lessons.experiments.small_gpt import small_gpt
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.reference.lora.adapters import CONFIG, TENSORS, adapted, inject, load_adapter, merge, save_adapter, unmerge
from course.reference.lora.mixed_adapter_forward import mixed_adapter_forward

pytestmark = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is in the extra peers")
SHAPE = GPTConfig(vocabulary=11, context=8, width=12, heads=2, layers=2)
PATTERN, R, ALPHA = r"blocks\.\d\.(attention\.(q|v)_proj|mlp\.up)", 3, 6.0
NAMES = [f"blocks.{block}.{part}" for block in (0, 1) for part in ("attention.q_proj", "attention.v_proj", "mlp.up")]


def gpt() -> GPT:
    return GPT(SHAPE, torch.Generator().manual_seed(0))


def ours() -> GPT:
    """With adapters whose B is not 0."""
    model, rng = gpt(), torch.Generator().manual_seed(1)
    assert inject(model, PATTERN, R, ALPHA, rng) == NAMES
    for _, layer in adapted(model):
        nn.init.normal_(layer.B, generator=rng)
    return model


def peft_config(**more: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(**{"r": R, "lora_alpha": ALPHA, "target_modules": PATTERN, **more})


def peft_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import Linear

    for name, module in model.named_modules():
        if isinstance(module, Linear):
            yield name.removeprefix("base_model.model."), module


def peers(model: GPT, **more: Any) -> nn.Module:
    """peft's model with the factors of ours."""
    from peft import get_peft_model

    other: nn.Module = get_peft_model(gpt(), peft_config(**more))
    layers = dict(peft_layers(other))
    assert list(layers) == [name for name, _ in adapted(model)]
    with torch.no_grad():
        for name, layer in adapted(model):
            layers[name].lora_A["default"].weight.copy_(layer.A)
            layers[name].lora_B["default"].weight.copy_(layer.B)
    return other


def batch(seed: int = 2) -> tuple[Tensor, Tensor]:
    text = torch.randint(SHAPE.vocabulary, (5, SHAPE.context + 1), generator=torch.Generator().manual_seed(seed))
    return text[:, :-1], text[:, 1:]


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


def test_the_same_factors_give_the_same_logits_and_gradients() -> None:
    mine = ours()
    other, (tokens, targets) = peers(mine), batch()
    torch.testing.assert_close(mine(tokens), other(tokens))
    for model in (mine, other):
        next_token_loss(model(tokens), targets).backward()
    pairs = list(zip(trained(mine), trained(other), strict=True))
    assert len(pairs) == 2 * len(NAMES)
    for a, b in pairs:
        torch.testing.assert_close(a.grad, b.grad)


def test_five_steps_of_adamw_end_at_the_same_factors() -> None:
    mine = ours()
    other = peers(mine)
    for model in (mine, other):
        optimizer = torch.optim.AdamW(trained(model), lr=1e-3)
        for step in range(5):
            tokens, targets = batch(step)
            optimizer.zero_grad()
            next_token_loss(model(tokens), targets).backward()
            optimizer.step()
    for a, b in zip(trained(mine), trained(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_merged_weights_are_the_same() -> None:
    mine = ours()
    other: Any = peers(mine)
    merge(mine)
    whole = dict(other.merge_and_unload().named_parameters())
    for name, layer in adapted(mine):
        torch.testing.assert_close(layer.base.weight, whole[f"{name}.weight"])
    unmerge(mine)


def test_peft_loads_what_we_save(tmp_path: Path) -> None:
    from peft import PeftModel

    mine, (tokens, _) = ours(), batch()
    save_adapter(mine, tmp_path)
    other = PeftModel.from_pretrained(gpt(), tmp_path)
    assert [name for name, _ in peft_layers(other)] == NAMES
    torch.testing.assert_close(other(tokens), mine(tokens))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"target_modules": ["q_proj", "up"]},
        {"rank_pattern": {"v_proj": 1}, "alpha_pattern": {r"blocks.1.mlp.up": 5}},
        {"target_modules": "all-linear", "init_lora_weights": False},
    ],
    ids=str,
)
def test_we_load_what_peft_saves(more: dict[str, Any], tmp_path: Path) -> None:
    from peft import get_peft_model

    other, (tokens, _) = get_peft_model(gpt(), peft_config(**more)), batch()
    for _, layer in peft_layers(other):
        nn.init.normal_(layer.lora_B["default"].weight)
    other.save_pretrained(tmp_path)
    mine = gpt()
    load_adapter(mine, tmp_path)
    assert [name for name, _ in adapted(mine)] == [name for name, _ in peft_layers(other)]
    torch.testing.assert_close(mine(tokens), other(tokens))
    assert sum(each.numel() for each in trained(mine)) == sum(each.numel() for each in trained(other))


def test_adapters_of_different_r_go_there_and_back(tmp_path: Path) -> None:
    from peft import PeftModel

    mine, (tokens, _) = ours(), batch()
    inject(mine, r"blocks\.1\.mlp\.down", 2, 1.0)
    inject(mine, r"blocks\.0\.attention\.out_proj", R, 7.0)
    for _, layer in adapted(mine):
        nn.init.normal_(layer.B)
    save_adapter(mine, tmp_path / "ours")
    other, again = PeftModel.from_pretrained(gpt(), tmp_path / "ours"), gpt()
    other.save_pretrained(tmp_path / "theirs")
    load_adapter(again, tmp_path / "theirs")
    for model in (other, again):
        torch.testing.assert_close(model(tokens), mine(tokens))


def test_what_the_lesson_writes_with_peft_adapts_every_linear_layer_of_the_blocks(tmp_path: Path) -> None:
    lesson = Path(__file__).parents[1].joinpath("solutions/07_lora.py").read_text(encoding="utf-8")
    _, _, shown = lesson.partition("# ```python\n# from peft import")
    code, _, _ = shown.partition("# ```")
    text = "from peft import" + code.replace("\n# ", "\n").replace("\n#\n", "\n\n").replace('"south"', "folder")
    names: dict[str, Any] = {"small_gpt": small_gpt, "folder": tmp_path}
    exec(text, names)
    model = small_gpt()
    assert [name for name, _ in peft_layers(names["model"])] == load_adapter(model, tmp_path)
    blocks = {name for name, each in small_gpt().named_modules() if isinstance(each, nn.Linear) and "blocks" in name}
    assert blocks == {name for name, _ in adapted(model)}


def test_files_are_as_large_and_have_the_same_tensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    mine = ours()
    save_adapter(mine, tmp_path / "ours")
    peers(mine).save_pretrained(tmp_path / "theirs")
    a, b = (load_file(tmp_path / each / TENSORS) for each in ("ours", "theirs"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert len({(tmp_path / each / TENSORS).stat().st_size for each in ("ours", "theirs")}) == 1
    written, theirs = (json.loads((tmp_path / each / CONFIG).read_text()) for each in ("ours", "theirs"))
    assert written.keys() <= theirs.keys()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"use_rslora": True}, "use_rslora"),
        ({"bias": "lora_only"}, "bias"),
        ({"modules_to_save": ["norm"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    ],
    ids=str,
)
def test_what_a_plain_adapter_cannot_say_is_refused_by_name(more: dict[str, Any], named: str, tmp_path: Path) -> None:
    from peft import get_peft_model

    get_peft_model(gpt(), peft_config(**more)).save_pretrained(tmp_path)
    with pytest.raises(CourseError, match=named):
        load_adapter(gpt(), tmp_path)


def test_a_mixed_batch_is_that_of_pefts_adapter_names() -> None:
    from peft import get_peft_model

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(7, 5)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y

    base, names = One(), ["zero", "one", "two"]
    linear = base.layer
    other: Any = None
    for r, name in enumerate(names, 1):
        config = peft_config(r=r, target_modules=["layer"], init_lora_weights=False)
        if other is None:
            other = get_peft_model(base, config, adapter_name=name)
        else:
            other.add_adapter(name, config)
    ((_, layer),) = peft_layers(other)
    factors = [(layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]) for name in names]
    x, ids = torch.randn(6, 4, 7), torch.tensor([2, -1, 0, 2, 1, 0])
    given = ["__base__" if number < 0 else names[number] for number in ids.tolist()]
    torch.testing.assert_close(mixed_adapter_forward(x, ids, linear, factors), other.eval()(x, adapter_names=given))
