"""A race: the optimizers of torch.optim from one start over one surface of two variables.

    point --surface.gradient--> point.grad --torch.optim's step--> point, as often as there are steps

Simplification: every gradient is exact. Nothing here says how an optimizer bears noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, Optimizer, RMSprop

from course.errors import BadArgument
from course.lessons.experiments.surfaces import named

STEPS = 150
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
Betas = tuple[float, float]
# A single tensor of two numbers: torch's `foreach`, which steps many tensors at once, would only cost time.
MAKERS: Mapping[str, Callable[[list[Tensor], float, float, Betas], Optimizer]] = {
    "SGD": lambda p, lr, momentum, betas: SGD(p, lr, foreach=False),
    "momentum": lambda p, lr, momentum, betas: SGD(p, lr, momentum, foreach=False),
    "Nesterov": lambda p, lr, momentum, betas: SGD(p, lr, momentum, nesterov=momentum > 0, foreach=False),
    "Adagrad": lambda p, lr, momentum, betas: Adagrad(p, lr, foreach=False),
    "RMSprop": lambda p, lr, momentum, betas: RMSprop(p, lr, alpha=betas[1], foreach=False),
    "Adam": lambda p, lr, momentum, betas: Adam(p, lr, betas, foreach=False),
}
OPTIMIZERS = tuple(MAKERS)


@dataclass(frozen=True, kw_only=True)
class Path:
    """Where an optimizer went.

    points   (k + 1, 2), float64: the start, then where each of its k steps led
    values   (k + 1,): the surface's height at each of them
    left     the step that led further out of the picture than the picture is large, where the path ends; or None
    lr       its learning rate
    """

    points: Tensor
    values: Tensor
    left: int | None
    lr: float


def run(
    surface: str, optimizer: str, steps: int = STEPS, *, lr: float, momentum: float = 0.9, betas: Betas = (0.9, 0.999)
) -> Path:
    """The path of one of torch.optim's optimizers from the surface's start.

    momentum   of "momentum" and "Nesterov"
    betas      of "Adam"; the second is also the decay of "RMSprop", which torch calls alpha and sets to 0.99

    Simplification: a path that swings far out and would come back ends too, as one that diverges does.
    Raises BadArgument for a name that is not in SURFACES or OPTIMIZERS, for steps below 1, for an lr that is not
    positive and finite, and for momentum or a beta outside [0, 1).
    """
    here = named(surface)
    _demand(optimizer, steps, lr, {"momentum": momentum, "beta1": betas[0], "beta2": betas[1]})
    point = torch.tensor(here.start, dtype=torch.float64)
    rule = MAKERS[optimizer]([point], lr, momentum, betas)
    points, left = [point.tolist()], None
    while len(points) <= steps and left is None:
        point.grad = here.gradient(point)
        rule.step()
        points.append(point.tolist())
        left = None if here.holds(*points[-1]) else len(points) - 1
    track = torch.tensor(points, dtype=torch.float64)
    return Path(points=track, values=here.height(track), left=left, lr=lr)


def race(
    surface: str,
    steps: int = STEPS,
    *,
    lr: float | Mapping[str, float],
    momentum: float = 0.9,
    betas: Betas = (0.9, 0.999),
    optimizers: Sequence[str] = OPTIMIZERS,
) -> dict[str, Path]:
    """The paths of several optimizers by name: all with one learning rate, or each with its own.

    Costs about 30 ms for six optimizers and 150 steps. Raises as `run` does.
    """
    rates = lr if isinstance(lr, Mapping) else dict.fromkeys(optimizers, lr)
    return {name: run(surface, name, steps, lr=rates[name], momentum=momentum, betas=betas) for name in optimizers}


def best_rates(
    surface: str,
    steps: int = STEPS,
    *,
    momentum: float = 0.9,
    betas: Betas = (0.9, 0.999),
    rates: Sequence[float] = RATES,
    optimizers: Sequence[str] = OPTIMIZERS,
) -> dict[str, float]:
    """For each optimizer the rate after whose last step it is lowest; the smallest rate if it always leaves.

    Costs a run for each optimizer and rate, 0.2 to 0.5 s in all. Raises as `run` does.
    """

    def end(name: str, lr: float) -> float:
        path = run(surface, name, steps, lr=lr, momentum=momentum, betas=betas)
        return float(path.values[-1]) if path.left is None else math.inf

    return {name: min(sorted(rates), key=lambda lr: end(name, lr)) for name in optimizers}


def _demand(optimizer: str, steps: int, lr: float, decays: Mapping[str, float]) -> None:
    if optimizer not in MAKERS:
        raise BadArgument(f"an optimizer must be one of {', '.join(OPTIMIZERS)}, got {optimizer!r}")
    if steps < 1:
        raise BadArgument(f"steps must be at least 1, got {steps}")
    if not 0 < lr < math.inf:
        raise BadArgument(f"lr must be positive and finite, got {lr}")
    for name, decay in decays.items():
        if not 0 <= decay < 1:
            raise BadArgument(f"{name} must lie in [0, 1), got {decay}")
