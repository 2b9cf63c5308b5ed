"""Three adapters of the small GPT, trained, saved, loaded and served in one batch, put together from exercises.

small GPT --inject--> LoRALinear in its blocks --tuned to a dialect--> adapter_state --safetensors--> a file
files --load_adapter--> each adapter by itself, and all of them with mixed_adapter_forward in one pass

Variants change one thing at a time: r, alpha, which layers are adapted, and the rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.adapted import Adapted
from course.lessons.experiments.adapters import (
    ATTENTION,
    BOTH,
    MIRROR,
    MLP,
    QUERIES_AND_VALUES,
    SHIFTED,
    Beside,
    batches,
    inject,
    tune,
)
from course.lessons.experiments.assembled import Parts
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import GPT

DIALECTS = {each.name: each for each in (grammar.SOUTH, MIRROR, SHIFTED)}
WINDOWS = 64  # that a loss is the mean of
BATCH = 4  # windows of a step: small, so that all of it takes seconds
STEPS, FEWER = 150, 60  # to train an adapter that is saved, and each variant

Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How an adapter is made."""

    r: int = 1  # in half precision, a file of little more than 10 kB
    alpha: float = 16.0
    where: str = BOTH
    rate: float = 5e-3


USUAL = Setting()
START = Setting(r=4)  # of which each variant changes one thing
VARIANTS: dict[str, Setting] = {
    "r = 4": START,
    "r = 1": replace(START, r=1),
    "r = 16": replace(START, r=16),
    "alpha / 16": replace(START, alpha=1.0),
    "alpha x 16": replace(START, alpha=256.0),
    "attention only": replace(START, where=ATTENTION),
    "MLP only": replace(START, where=MLP),
    "queries, values": replace(START, where=QUERIES_AND_VALUES),
    "rate / 10": replace(START, rate=START.rate / 10),
    "rate x 10": replace(START, rate=START.rate * 10),
}


class Trained(Adapted):
    """An adapted layer that computes as the LoRALinear does that it was made of, with the same factors."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer.base, layer.A, layer.B, layer.scale)
        self.A, self.B = layer.A, layer.B  # the same parameters, not copies
        self._computes = (layer,)  # no submodule: its parameters have their names already

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        y: Tensor = self.base(x) if self.merged else self._computes[0](x)
        return y

    def rescale(self, scale: float) -> None:
        """Lets the adapter count more or less."""
        self.scale = self._computes[0].scale = scale


class Mixed(nn.Module):
    """A linear layer with many adapters; `ids` says which one each row of the present batch uses."""

    def __init__(self, layer: Adapted, ids: list[Tensor], forward: Callable[..., Tensor]) -> None:
        super().__init__()
        self.base, self.ids, self.computes = layer.base, ids, forward
        self.adapters: list[tuple[Tensor, Tensor, float]] = []

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, n) to (batch, time, m)."""
        return self.computes(x, self.ids[0], self.base, self.adapters)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """The factors by name, as safetensors takes them."""
    return {name: each.detach().clone() for name, each in model.named_parameters() if name.endswith((".A", ".B"))}


def put_back(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """The factors into the model that is there."""
    missing, unexpected = model.load_state_dict(dict(state), strict=False)
    if unexpected or any(name.endswith((".A", ".B")) for name in missing):
        raise ValueError(f"the adapter must fit the model, but {', '.join(unexpected) or 'a factor'} does not")


def summed(layer: Adapted) -> None:
    """The adapter into the weight."""
    with torch.no_grad():
        layer.base.weight.addmm_(layer.B, layer.A, alpha=0.0 if layer.merged else layer.scale)
    layer.merged = True


def row_by_row(x: Tensor, ids: Tensor, linear: nn.Linear, adapters: list[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Each row with the adapter that it names, or with none."""
    rows = list(linear(x))
    for place, chosen in enumerate(ids.tolist()):
        if chosen >= 0:
            down, up, scale = adapters[chosen]
            rows[place] = rows[place].addmm(x[place] @ down.mT, up.mT, alpha=scale)
    return torch.stack(rows)


PARTS = Parts(
    torchs={
        "LoRALinear": Beside,
        "inject": inject,
        "merge_": summed,
        "adapter_state": state_of,
        "load_adapter": put_back,
        "mixed_adapter_forward": row_by_row,
    },
    names=("LoRALinear", "inject", "merge_", "adapter_state", "load_adapter", "mixed_adapter_forward"),
    whence="ours",
)


def adapted(parts: Functions, setting: Setting = USUAL) -> GPT:
    """The small GPT with fresh adapters."""
    model, rng = small_gpt(), torch.Generator().manual_seed(0)
    layer = parts["LoRALinear"]
    parts["inject"](model, setting.where, lambda linear: Trained(layer(linear, setting.r, setting.alpha, rng)))
    return model


def trained(parts: Functions, windows: Sequence[tuple[Tensor, Tensor]], setting: Setting = USUAL) -> GPT:
    """The small GPT, adapted and tuned, a step for each window."""
    model = adapted(parts, setting)
    for _ in tune(model, windows, rate=setting.rate):
        pass
    return model


def make_files(parts: Functions, folder: Path) -> Iterator[str]:
    """Trains an adapter for each dialect and saves it, `folder/<dialect>.safetensors`; a line for each."""
    yield f"{'':8}  {'untuned':>7}  {'tuned':>6}  {'floor':>6}  {'kB of file':>10}  seconds"
    for name, dialect in DIALECTS.items():
        windows, begin = judged(dialect, WINDOWS), time.perf_counter()
        model = trained(parts, list(batches(dialect, STEPS, BATCH)))
        seconds = time.perf_counter() - begin
        path = folder / f"{name}.safetensors"
        save_file({key: each.half() for key, each in parts["adapter_state"](model).items()}, path)
        before, after = loss_on(small_gpt(), windows), loss_on(model, windows)
        least = floor.perfect_loss(dialect, windows[1])
        yield (
            f"{name:8}  {before:7.3f}  {after:6.3f}  {least:6.3f}  {path.stat().st_size / 1e3:10.1f}  {seconds:7.1f}"
        )


def adapters_in(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The factors of every file, by the dialect's name."""
    return {
        name: {key: each.float() for key, each in load_file(folder / f"{name}.safetensors").items()}
        for name in DIALECTS
    }


def swapped(parts: Functions, model: GPT, path: Path) -> GPT:
    """The model, with the adapter of the file in the place of that which it had."""
    parts["load_adapter"](model, {name: each.float() for name, each in load_file(path).items()})
    return model


def served(parts: Functions, folder: Path) -> Iterator[str]:
    """Four dialects in one batch, in one pass and one after the other; a line for each."""
    texts = {"north": grammar.NORTH, **DIALECTS}
    windows = {name: judged(dialect, 8) for name, dialect in texts.items()}
    alone, model = {"north": loss_on(small_gpt(), windows["north"])}, adapted(parts)
    begin = time.perf_counter()
    for name in DIALECTS:
        alone[name] = loss_on(swapped(parts, model, folder / f"{name}.safetensors"), windows[name])
    apart = time.perf_counter() - begin
    mixed, ids = _mixed(parts, folder)
    inputs = torch.cat([windows[name][0] for name in texts])
    ids[0] = torch.arange(-1, len(DIALECTS)).repeat_interleave(8)
    begin = time.perf_counter()
    with torch.no_grad():
        logits = mixed(inputs).chunk(len(texts))
    once = time.perf_counter() - begin
    yield f"{'':8}  {'alone':>8}  {'in one batch':>12}"
    for (name, (_, targets)), found in zip(windows.items(), logits, strict=True):
        loss = nn.functional.cross_entropy(found.flatten(0, 1), targets.flatten()).item()
        yield f"{name:8}  {alone[name]:8.5f}  {loss:12.5f}"
    yield f"one pass: {once * 1e3:.0f} ms; three adapters loaded and run one after the other: {apart * 1e3:.0f} ms"


def _mixed(parts: Functions, folder: Path) -> tuple[GPT, list[Tensor]]:
    """The small GPT with all adapters in each layer, and the list whose first tensor says which row uses which."""
    model, ids = adapted(parts), [torch.empty(0)]
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, Adapted)}
    mixed = {name: Mixed(each, ids, parts["mixed_adapter_forward"]) for name, each in layers.items()}
    for dialect in DIALECTS:
        state = load_file(folder / f"{dialect}.safetensors")
        for name, each in mixed.items():
            each.adapters.append((state[f"{name}.A"].float(), state[f"{name}.B"].float(), layers[name].scale))
    for name, each in mixed.items():
        model.set_submodule(name, each)
    return model, ids


def merged(parts: Functions, folder: Path) -> str:
    """The southern adapter added into the weights: the same loss, no layer more."""
    windows = judged(grammar.SOUTH, WINDOWS)
    model = swapped(parts, adapted(parts), folder / "south.safetensors")
    before = loss_on(model, windows)
    for path, layer in list(model.named_modules()):
        if isinstance(layer, Adapted):
            parts["merge_"](layer)
            model.set_submodule(path, layer.base)
    layers = sum(isinstance(each, Adapted) for each in model.modules())
    return f"beside: {before:.6f}; merged: {loss_on(model, windows):.6f}, {layers} adapted layers left"


def variants(parts: Functions) -> Iterator[str]:
    """One thing changed at a time, on southern text; a line for each."""
    seen, windows = list(batches(grammar.SOUTH, FEWER, BATCH)), judged(grammar.SOUTH, WINDOWS)
    least = floor.perfect_loss(grammar.SOUTH, windows[1])
    yield f"{'':16}  {'numbers':>7}  {'kB of file':>10}  {'loss':>6}  above the floor"
    for name, setting in VARIANTS.items():
        model = trained(parts, seen, setting)
        numbers = sum(each.numel() for each in model.parameters() if each.requires_grad)
        loss, state = loss_on(model, windows), parts["adapter_state"](model)
        kilobytes = len(save({key: each.half() for key, each in state.items()})) / 1e3
        yield f"{name:16}  {numbers:7,}  {kilobytes:10.1f}  {loss:6.3f}  {loss - least:+.3f}"
