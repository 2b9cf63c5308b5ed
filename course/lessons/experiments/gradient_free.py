"""What does a gradient buy? The map of cities by gradients, and by values of the stress alone.

    starts --gradient, random_direction or evolution--> maps, step by step --stress--> of the median start --> found?

The budget counts evaluations of the stress. A gradient by backpropagation counts as five: value and gradient together
take at most about five times as long as the value, for any number of variables (Griewank and Walther, Evaluating
Derivatives, 2008). Our stress has 32 variables, two for each city.

Sources. Random directions: Y. Nesterov and V. Spokoiny, Foundations of Computational Mathematics 17 (2017), 527-566:
usually at most as many times more steps than with gradients as there are variables. Evolution: M. A. Schumer and
K. Steiglitz, IEEE Transactions on Automatic Control 13 (1968), 270-276; I. Rechenberg, Evolutionsstrategie (1973).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Generator, Tensor

from course.lessons.data.cities import cities
from course.lessons.experiments.map_starts import least_stress
from course.lessons.experiments.scaling_map import descend, pairs, random_starts, stress

STARTS = 25
BUDGET = 500  # evaluations of the stress
NEAR = 0.001  # km to either side: so near, the stress is as good as a line
SPREAD = 100.0  # km: standard deviation of evolution's first steps; 10 to 1,000 take 2,150 to 2,350 evaluations
GROWTH = 1.5  # of that deviation after a success; 1.2 to 2 take 2,000 to 2,550 evaluations


@dataclass(frozen=True, kw_only=True)
class Row:
    """How the median start does. `rms`: how far its distances are off after BUDGET evaluations, in km.

    `evaluations` and `steps`: how many until its stress is within 1% of the least.
    """

    rms: float
    evaluations: int
    steps: int


def gradient(x: Tensor, table: Tensor) -> Iterator[Tensor]:
    """The maps (S, N, 2) after each step of plain gradient descent from `x` (S, N, 2)."""
    while True:
        x = descend(table, x, steps=1)
        yield x


def random_direction(x: Tensor, table: Tensor, rng: Generator) -> Iterator[Tensor]:
    """The same with s u in place of the gradient: s is the slope along a random normal u, from two evaluations.

    The mean of s u is the gradient; that of its square is D + 2 times as great, for D numbers, so the rate is divided
    by D + 2.
    """
    wanted, rate = pairs(table), 1 / (2 * len(table)) / (x[0].numel() + 2)
    while True:
        u = torch.randn(x.shape, generator=rng, dtype=x.dtype)
        ahead, behind = stress(x + NEAR * torch.stack([u, -u]), wanted)
        x = x - rate * ((ahead - behind) / (2 * NEAR))[:, None, None] * u
        yield x


def evolution(x: Tensor, table: Tensor, rng: Generator) -> Iterator[Tensor]:
    """The maps after each evaluation by a (1+1) evolution strategy: a random step is kept if it lowers the stress.

    The steps become longer after a success and shorter after a failure, so that one in five succeeds.
    """
    wanted = pairs(table)
    least, spread = stress(x, wanted), torch.full_like(x[:, :1, :1], SPREAD)
    while True:
        child = x + spread * torch.randn(x.shape, generator=rng, dtype=x.dtype)
        value = stress(child, wanted)
        better = (value < least)[:, None, None]
        x, least = torch.where(better, child, x), torch.minimum(value, least)
        spread = spread * torch.where(better, GROWTH, GROWTH**-0.25)
        yield x


def compare(seed: int = 0) -> dict[str, Row]:
    """The three methods from the same random starts, by name: about a second."""
    table, x = cities().distances, random_starts(STARTS, seed=seed)
    rng, enough = torch.Generator().manual_seed(seed), 1.01 * least_stress()
    return {
        "gradient descent": _row(gradient(x, table), enough, cost=5),
        "random directions": _row(random_direction(x, table, rng), enough, cost=2),
        "evolution strategy": _row(evolution(x, table, rng), enough, cost=1),
    }


def _row(maps: Iterator[Tensor], enough: float, *, cost: int) -> Row:
    """For a method that takes `cost` evaluations for a step, until the stress is `enough`."""
    wanted = pairs(cities().distances)
    middle = (float(stress(x, wanted).median()) for x in maps)
    path = list(islice(middle, BUDGET // cost))
    rms = (path[-1] / len(wanted)) ** 0.5
    while path[-1] > enough:
        path.append(next(middle))
    steps = next(step for step, value in enumerate(path, start=1) if value <= enough)
    return Row(rms=rms, evaluations=cost * steps, steps=steps)
