"""Full fine-tuning, LoRA at five r and the last layer alone: the small GPT learns the southern dialect.

for each method: three rates --300 steps--> loss on southern text; the best rate is kept
full fine-tuning --> the change of each matrix --> its singular values, and the loss with the changes cut down to r

Simplifications: one seed; the rate is the only setting that is tuned; each method sees the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.progress import track
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.experiments import recording
from course.lessons.experiments.adapters import BOTH, Beside, batches, inject, trainable, tune
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import GPT

NAME = "fine_tuning"
STEPS, EVERY, WINDOWS = 300, 10, 128
RANKS = (1, 2, 4, 8, 16)
ALPHA = 16.0
RATES = {"full": (1e-3, 3e-3, 1e-2), "last layer": (1e-2, 3e-2, 1e-1), "LoRA": (3e-3, 1e-2, 3e-2)}
CUT = (0, 1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to tune; losses in nats per character, one for each of `Measured.steps`."""

    name: str
    numbers: int  # that are trained
    state_bytes: int  # AdamW's two moments in float32
    rate: float
    losses: list[float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the experiment found.

    before, least  losses of the untuned model on southern text, and of a perfect one
    singular       by matrix, the singular values of what full fine-tuning added to it, largest first
    cut            losses with all changes cut down to the nearest matrices of rank CUT
    """

    steps: list[int]
    before: float
    least: float
    methods: list[Method]
    singular: dict[str, list[float]]
    cut: list[float]


def prepared(name: str) -> GPT:
    """The small GPT, with what the method trains."""
    model = small_gpt()
    if name == "last layer":
        model.requires_grad_(requires_grad=False)
        model.norm.requires_grad_(True)
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # no longer tied
    elif name != "full":
        rng, r = torch.Generator().manual_seed(0), int(name.rpartition(" ")[2])
        inject(model, BOTH, lambda linear: Beside(linear, r, ALPHA, rng))
    return model


def tuned(name: str, rate: float, look: Callable[[GPT], float]) -> tuple[GPT, list[float]]:
    """The model after all steps, and its losses on the way."""
    model, losses = prepared(name), []
    for step in tune(model, list(batches(grammar.SOUTH, STEPS)), rate=rate):
        if step % EVERY == 0:
            losses.append(look(model))
    return model, losses


def measure() -> Measured:
    """All methods at all their rates."""
    windows = judged(grammar.SOUTH, WINDOWS)
    methods = []
    full: GPT | None = None
    for name in track(["full", *(f"LoRA, r = {r}" for r in RANKS), "last layer"], description="tuning"):
        runs = {rate: tuned(name, rate, lambda model: loss_on(model, windows)) for rate in _rates(name)}
        rate = min(runs, key=lambda each: runs[each][1][-1])
        model, losses = runs[rate]
        numbers = sum(each.numel() for each in trainable(model))
        methods.append(Method(name=name, numbers=numbers, state_bytes=8 * numbers, rate=rate, losses=losses))
        full = full or model
    assert full is not None
    changes = changed(full)
    singular = {name: torch.linalg.svdvals(each).tolist() for name, each in changes.items()}
    return Measured(
        steps=list(range(0, STEPS + 1, EVERY)),
        before=methods[0].losses[0],
        least=floor.perfect_loss(grammar.SOUTH, windows[1]),
        methods=methods,
        singular={name: [round(each, 5) for each in values] for name, values in singular.items()},
        cut=[_cut_loss(full, changes, r, windows) for r in CUT],
    )


def _rates(name: str) -> tuple[float, ...]:
    return RATES[name.partition(",")[0]]


def changed(model: GPT) -> dict[str, Tensor]:
    """What tuning added to the matrices of the blocks, by name."""
    before = dict(small_gpt().named_parameters())
    found = {name: each.detach() - before[name].detach() for name, each in model.named_parameters()}
    return {name: each for name, each in found.items() if name.startswith("blocks") and each.dim() == 2}


def _cut_loss(model: GPT, changes: dict[str, Tensor], r: int, windows: tuple[Tensor, Tensor]) -> float:
    """The loss with the nearest changes of rank r; biases, norms and embeddings keep theirs."""
    params = dict(model.named_parameters())
    kept = {name: params[name].detach().clone() for name in changes}
    with torch.no_grad():
        for name, each in changes.items():
            u, s, vh = torch.linalg.svd(each, full_matrices=False)
            params[name].add_((u[:, :r] * s[:r]) @ vh[:r] - each)
        loss = loss_on(model, windows)
        for name, each in kept.items():
            params[name].copy_(each)
    return loss


def loaded() -> recording.Recording[Measured]:
    """What was recorded."""
    return recording.load(NAME, Measured)


def table(measured: Measured) -> str:
    """A line for each method: numbers trained, bytes of state, and the loss above the floor at the end."""
    lines = [f"{'':12}  {'numbers':>8}  {'kB of state':>11}  {'rate':>6}  {'loss':>6}  above the floor"]
    for each in measured.methods:
        above = each.losses[-1] - measured.least
        lines.append(
            f"{each.name:12}  {each.numbers:8,}  {each.state_bytes / 1e3:11,.1f}  {each.rate:6g}  "
            f"{each.losses[-1]:6.3f}  {above:+.3f}"
        )
    return "\n".join([*lines, f"{'not tuned':12}  {0:8}  {0:11}  {'':6}  {measured.before:6.3f}"])


def effective_rank(values: list[float], share: float = 0.9) -> int:
    """How many singular values hold this share of the sum of squares."""
    total, held = math.fsum(each**2 for each in values), 0.0
    for count, each in enumerate(values, 1):
        held += each**2
        if held >= share * total:
            return count
    return len(values)


if __name__ == "__main__":
    print(recording.record(NAME, measure))
