"""Two short training programs with checkpoints, each with one fault, and the logs that they write.

program's name, line number, new line --mended--> text --run--> losses, and the bytes alive at the highest of each step

The faults: a mask is drawn by a generator that no checkpoint knows of, and a number that is watched holds its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.lessons.experiments import planned
from course.lessons.experiments.programs import Programs
from course.meter import KeptBytes, kept_bytes

PROGRAMS = Programs(
    masked="""\
def masked(w, batches, lr, keep, draw, checkpoint):
    losses, means = [], []
    for x, y in batches:
        w, h = w.detach().requires_grad_(), x
        for _ in range(4):
            layer = lambda h: (h @ w).sin().exp().cos() * (torch.rand(h.shape, generator=draw) < keep)
            h = checkpoint(layer, h)
        loss = (h - y).square().mean()
        loss.backward()
        w = w - lr * w.grad
        losses += [loss.item()]
        means.append(h.abs().mean().item())
    return losses, means
""",
    watched="""\
def watched(w, batches, lr, keep, draw, checkpoint):
    losses, means = [], []
    for x, y in batches:
        w, h = w.detach().requires_grad_(), x
        for _ in range(4):
            mask = torch.rand(h.shape, generator=draw) < keep
            layer = lambda h, mask: (h @ w).sin().exp().cos() * mask
            h = checkpoint(layer, h, mask)
        means.append(h.abs().mean())
        loss = (h - y).square().mean()
        loss.backward()
        w = w - lr * w.grad
        losses += [loss.item()]
    return losses, [float(torch.as_tensor(each).detach()) for each in means]
""",
)


@dataclass(frozen=True, kw_only=True)
class Log:
    """For each step its loss, the mean of the last layer's outputs, and the bytes alive at the highest.

    drawn  whether `draw` was used at all
    """

    losses: list[float]
    means: list[float]
    peaks: list[int]
    drawn: bool


def run(name: str, program: str = "", *, checkpointed: bool = True, **inputs: Any) -> Log:
    """What the program gives on w (d, d), batches x and y (steps, n, d), lr, keep and the seed of its masks.

    program       its text, as it stands above if left out. It is executed: it is run where its author's code is
    checkpointed  False runs each layer as it is: the plain run
    Raises WrongOutput where it returns something else than two lists with a number for each step.
    """

    def plain(layer: Callable[..., Any], *args: Any) -> Any:
        return layer(*args)

    x, y, alive = inputs["x"], inputs["y"], Highest()
    draw = torch.Generator().manual_seed(inputs["seed"])
    given = {"w": inputs["w"], "lr": inputs["lr"], "keep": inputs["keep"], "draw": draw}
    function = PROGRAMS.defined(name, program)
    with kept_bytes(after=alive.look):
        found = function(batches=alive.steps(x, y), checkpoint=planned.torchs if checkpointed else plain, **given)
    try:
        losses, means = ([float(each) for each in column] for column in found)
    except (TypeError, ValueError, RuntimeError):
        raise WrongOutput(f"{name} must return two lists of numbers, got {type(found).__name__}") from None
    if not len(losses) == len(means) == len(x):
        raise WrongOutput(f"{name} must return a loss and a mean for each of {len(x)} steps, got {len(losses)} losses")
    drawn = draw.get_state().ne(torch.Generator().manual_seed(inputs["seed"]).get_state()).any().item()
    return Log(losses=losses, means=means, peaks=alive.peaks, drawn=bool(drawn))


class Highest:
    """The most bytes that are alive at once in each step."""

    def __init__(self) -> None:
        self.peaks: list[int] = []

    def look(self, meter: KeptBytes) -> None:
        """After an op."""
        if self.peaks:
            self.peaks[-1] = max(self.peaks[-1], meter.bytes_alive())

    def steps(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches; a step begins where one is taken."""
        for each in zip(x, y, strict=True):
            self.peaks.append(0)
            yield each


def example(steps: int = 6) -> dict[str, Any]:
    """The inputs with which the lesson shows the programs."""
    rng = torch.Generator().manual_seed(0)
    w, x, y = (torch.randn(*shape, generator=rng) for shape in ((16, 16), (1, 32, 16), (1, 32, 16)))
    return {"w": w, "x": x.expand(steps, -1, -1), "y": y.expand(steps, -1, -1), "lr": 0.5, "keep": 0.75, "seed": 1}


def table(log: Log, plain: Log) -> str:
    """The log beside that of the plain run, a line for each step."""
    rows = zip(log.losses, plain.losses, log.peaks, plain.peaks, strict=True)
    lines = [f"{t:4d}{a:10.5f}{b:10.5f}{m / 2**10:10.1f}{n / 2**10:10.1f}" for t, (a, b, m, n) in enumerate(rows, 1)]
    heads = "            loss               KiB at the highest\n" + "step" + f"{'program':>10}{'plain':>10}" * 2
    return "\n".join([heads, *lines])
