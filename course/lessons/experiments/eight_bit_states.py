"""Adam's two moments in 8 bits: does the model still train, and what do blocks and the code buy?

small GPT --200 steps on southern text, states in float32 or 8 bits--> loss on a text of its own, every 10 steps

Rows of an embedding have gradients of very different size, because some characters are rare. Dettmers et al. (arXiv
2110.02861, section 2.3) keep its states in 32 bits, and so do we, but for one run that shows why.

Recorded for several codes and blocks; `run` takes any step, such as a student's, for as long as one likes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course.lessons import floor, grammar
from course.lessons.dynamic_code import SIGNED, UNSIGNED
from course.lessons.experiments import recording
from course.lessons.experiments.adapters import batches
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import next_token_loss

NAME = "eight_bit_states"
STEPS, EVERY, BATCH, WINDOWS, RATE = 200, 10, 8, 64, 2e-3
BLOCK, WHOLE = 256, 2**30
BEYOND = 1e6

State = dict[str, Any]
Step = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One way to keep the states.

    losses  every 10 steps; None where it was no number, or far beyond all sense
    bytes   of the states at the end
    moved   the farthest that one number moved in one step, in units of the rate; None where it was no number
    """

    name: str
    losses: list[float | None]
    bytes: int
    moved: float | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All of them; `floor` is a perfect model's loss."""

    runs: list[Run]
    floor: float


@torch.no_grad()
def full(param: Tensor, grad: Tensor, state: State, *, lr: float, beta: tuple[float, float] = (0.9, 0.999)) -> None:
    """AdamW's step without decay, states in float32."""
    state["step"] = state.get("step", 0) + 1
    for name, rate, new in (("m", beta[0], grad), ("v", beta[1], grad.square())):
        state.setdefault(name, torch.zeros_like(grad)).mul_(rate).add_(new, alpha=1 - rate)
    scaled = state["v"].div(1 - beta[1] ** state["step"]).sqrt_().add_(1e-8)
    param.addcdiv_(state["m"], scaled, value=-lr / (1 - beta[0] ** state["step"]))


def in_codes(signed: Tensor, unsigned: Tensor, block: int) -> Step:
    """The same step, with both moments in these codes between steps, a scale for each block."""
    codebooks = {"m": signed, "v": unsigned}

    def step(param: Tensor, grad: Tensor, state: State, *, lr: float) -> None:
        known = {"step": state.get("step", 0)}
        if known["step"]:
            known |= {name: _means(state[name], codebooks[name], block).view_as(grad) for name in codebooks}
        full(param, grad, known, lr=lr)
        state["step"] = known["step"]
        for name, values in codebooks.items():
            state[name] = _coded(known[name].ravel(), values, block)

    return step


def _means(kept: tuple[Tensor, Tensor], values: Tensor, block: int) -> Tensor:
    codes, scales = kept
    which = torch.arange(codes.numel()).div(block, rounding_mode="floor")
    return values[codes.long()] * scales[which]


def _coded(x: Tensor, values: Tensor, block: int) -> tuple[Tensor, Tensor]:
    scales = torch.stack([part.abs().max() for part in torch.split(x, block)])
    which = torch.arange(x.numel()).div(block, rounding_mode="floor")
    share = x / scales[which].clamp(min=1e-38)
    after = torch.searchsorted(values, share).clamp(1, len(values) - 1)
    nearer = (share - values[after - 1]) < (values[after] - share)
    return (after - nearer.int()).to(torch.uint8), scales


LINEAR = torch.linspace(-1, 1, 255), torch.linspace(0, 1, 256)
EVERYWHERE = "dynamic code, embeddings too"
WAYS: dict[str, Step] = {
    "float32": full,
    "dynamic code, blocks of 256": in_codes(SIGNED, UNSIGNED, BLOCK),
    "dynamic code, one scale": in_codes(SIGNED, UNSIGNED, WHOLE),
    EVERYWHERE: in_codes(SIGNED, UNSIGNED, BLOCK),
    "linear code, blocks of 256": in_codes(*LINEAR, BLOCK),
}


def run(name: str, step: Step, steps: int = STEPS) -> Run:
    """The small GPT on its way to the southern dialect.

    step  called as step(param, grad, state, lr=...), in place, with a dict that is empty before the first step; the
          embeddings take the step in float32, unless this is the run with them
    """
    model, windows = small_gpt(), judged(grammar.SOUTH, WINDOWS)
    states: dict[str, State] = {each: {} for each, _ in model.named_parameters()}
    found, moved = [loss_on(model, windows)], 0.0
    for number, (inputs, targets) in enumerate(batches(grammar.SOUTH, steps, BATCH), 1):
        torch.autograd.backward(next_token_loss(model(inputs), targets))
        for each, parameter in model.named_parameters():
            assert parameter.grad is not None
            before, chosen = parameter.detach().clone(), full if "embedding" in each and name != EVERYWHERE else step
            chosen(parameter.data, parameter.grad, states[each], lr=RATE)
            moved = max(moved, float((parameter.detach() - before).abs().max()) / RATE)
            parameter.grad = None
        if number % EVERY == 0:
            found.append(loss_on(model, windows))
    losses = [each if abs(each) < BEYOND else None for each in found]
    kept = sum(_bytes(value) for state in states.values() for value in state.values())
    return Run(name=name, losses=losses, bytes=kept, moved=moved if moved < BEYOND else None)


def _bytes(value: Any) -> int:
    """Of the tensors in an entry of a state."""
    if isinstance(value, tuple):
        return sum(_bytes(each) for each in value)
    return value.nbytes if isinstance(value, Tensor) else 0


def measure() -> Measured:
    """Every way, for all steps."""
    runs = [run(name, step) for name, step in WAYS.items()]
    return Measured(runs=runs, floor=floor.perfect_loss(grammar.SOUTH, judged(grammar.SOUTH, WINDOWS)[1]))


def loaded() -> recording.Recording[Measured]:
    """What was recorded."""
    return recording.load(NAME, Measured)


def table(runs: list[Run], least: float) -> str:
    """A line for each way."""
    lines = [f"{'':28}  {'kB of states':>12}  {'largest step / rate':>19}  {'last loss':>9}   (floor {least:.3f})"]
    for each in runs:
        cells = (
            f"{each.bytes / 1e3:12,.0f}",
            f"{_said(each.moved, ',.0f'):>19}",
            f"{_said(each.losses[-1], '.3f'):>9}",
        )
        lines.append("  ".join([f"{each.name:28}", *cells]))
    return "\n".join(lines)


def _said(number: float | None, form: str) -> str:
    return "beyond" if number is None else format(number, form)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(recording.record(NAME, measure))
