"""Three short training programs in float16 with a loss scale, each with one fault, and the logs that they write.

program's name, line number, new line --mended--> text --run--> the weights at the end, and a log with a row per step

The model is linear, its loss the mean squared error. The faults: gradients are clipped before they are unscaled, a
skipped step counts as a good one, and a cast of the weights outlives its pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.lessons.experiments.programs import Programs

PROGRAMS = Programs(
    clipped="""\
def clipped(w, batches, lr, scale, max_norm):
    log = []
    for x, y in batches:
        w16 = w.half().requires_grad_()
        loss = ((x.half() @ w16).float() - y).square().mean()
        (scale * loss).backward()
        g = w16.grad.float()
        g = g * (max_norm / g.norm()).clamp(max=1)
        g = g / scale
        w = w - lr * g
        log.append((scale, g.norm().item(), loss.item()))
    return w, log
""",
    growing="""\
def growing(w, batches, lr, scale, interval):
    log, good = [], 0
    for x, y in batches:
        w16 = w.half().requires_grad_()
        loss = ((x.half() @ w16).float() - y).square().mean()
        (scale * loss).backward()
        g = w16.grad.float() / scale
        finite = bool(g.isfinite().all())
        w = w - lr * g if finite else w
        log.append((scale, g.norm().item(), loss.item()))
        good = good + 1
        scale = scale / 2 if not finite else scale * 2 if good % interval == 0 else scale
    return w, log
""",
    cached="""\
def cached(w, batches, lr, scale):
    log, casts = [], {}
    for x, y in batches:
        if "w" not in casts:
            casts["w"] = w.half().requires_grad_()
        loss = ((x.half() @ casts["w"]).float() - y).square().mean()
        (scale * loss).backward()
        g = casts["w"].grad.float() / scale
        casts["w"].grad = None
        w = w - lr * g
        log.append((scale, g.norm().item(), loss.item()))
    return w, log
""",
)
SIGNS = ((1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1))  # columns at right angles: the gradient is 2 (w - best)


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one run gave: weights (3,) at the end; for each step scale, gradient norm and loss, a list each."""

    weights: Tensor
    scale: list[float]
    norm: list[float]
    loss: list[float]


def run(name: str, program: str = "", *, x: Tensor, y: Tensor, **inputs: Any) -> Log:
    """What the program gives on batches x (T, n, 3) and y (T, n), all float32.

    program  its text, as it stands above if left out. It is executed: it is run where its author's code is
    Raises WrongOutput where it returns something else than weights and a log of T rows of three numbers.
    """
    found = PROGRAMS.defined(name, program)(batches=list(zip(x, y, strict=True)), **inputs)
    try:
        weights, rows = found
        scale, norm, loss = ([float(each) for each in column] for column in zip(*rows, strict=True))
    except (TypeError, ValueError):
        raise WrongOutput(f"{name} must return the weights and its log, got {type(found).__name__}") from None
    return Log(weights=weights, scale=scale, norm=norm, loss=loss)


def batches(start: Tensor, distances: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """x (T, 4, 3) and y (T, 4): the best weights of batch t lie at `start` - distances[t].

    So the gradient at `start` is twice the distance, and nearly so after a few small steps.
    """
    x = torch.tensor(SIGNS, dtype=torch.float32)
    y = torch.stack([x @ (start - torch.tensor(distance)) for distance in distances])
    return x.expand(len(distances), 4, 3), y


def example(name: str, steps: int = 16) -> dict[str, Any]:
    """The inputs with which the lesson shows a program."""
    start = torch.tensor([0.5, -1.0, 0.25])
    often, outlier = [0.68, -0.4, 0.3], [5.44, -3.2, 2.4]
    distances = [outlier if name == "growing" and t == 2 else often for t in range(steps)]
    x, y = batches(start, distances)
    shared = {"w": start, "x": x, "y": y}
    return {
        "clipped": {**shared, "lr": 0.1, "scale": 1024.0, "max_norm": 1.0},
        "growing": {**shared, "lr": 0.005, "scale": 2.0**14, "interval": 4},
        "cached": {**shared, "lr": 0.1, "scale": 1024.0},
    }[name]


def table(logs: Mapping[str, Log]) -> str:
    """The logs side by side, a line for each step."""
    names = "".join(f"   {name:^28}" for name in logs)
    heads = "step" + f"   {'scale':>7} {'norm':>10} {'loss':>9}" * len(logs)
    steps = zip(*(zip(each.scale, each.norm, each.loss, strict=True) for each in logs.values()), strict=True)
    lines = [
        f"{t:4d}" + "".join(f"   {scale:7,.0f} {norm:10.6f} {loss:9.4f}" for scale, norm, loss in row)
        for t, row in enumerate(steps, 1)
    ]
    return "\n".join([f"    {names}", heads, *lines])
