"""A weight of 1 in bfloat16 takes a thousand updates, each an eighth of the gap to the next number. Which are kept?

weight + UPDATE, float32 --round to nearest, or by draws--> weight, bfloat16 --> the next update
master += UPDATE, float32 --round to nearest--> weight, bfloat16
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from course.lessons.experiments.half_stand_ins import master_step, stochastic_round

UPDATES, UPDATE, GAP = 1000, 2.0**-10, 2.0**-7  # the gap is that of bfloat16 between 1 and 2
RUNS = 5

Rounding: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def exactly() -> Tensor:
    """The weight before the first and after each update, if nothing is rounded: (UPDATES + 1,)."""
    return 1 + UPDATE * torch.arange(UPDATES + 1)


def by_nearest() -> Tensor:
    """The weight, float32 (UPDATES + 1,), where each sum is rounded to the nearest bfloat16."""
    return _rounded_after_each(lambda x: x.bfloat16(), 1)[:, 0]


def by_draws(rounding: Rounding = stochastic_round, *, runs: int = RUNS, seed: int = 0) -> Tensor:
    """The weight, float32 (UPDATES + 1, runs), where `rounding(x, u)` rounds each sum by the draws u of each run."""
    rng = torch.Generator().manual_seed(seed)
    return _rounded_after_each(lambda x: rounding(x, torch.rand(runs, generator=rng)), runs)


def _rounded_after_each(rounding: Callable[[Tensor], Tensor], runs: int) -> Tensor:
    weights = [torch.ones(runs)]
    for _ in range(UPDATES):
        weights.append(rounding(weights[-1] + UPDATE).float())
    return torch.stack(weights)


def by_master(step: Callable[..., None] = master_step) -> tuple[Tensor, Tensor]:
    """The weight, and its master copy, both float32 (UPDATES + 1,), where `step` moves them by -1 times UPDATE."""
    weight, gradient = torch.ones(1, dtype=torch.bfloat16), -torch.ones(1, dtype=torch.bfloat16)
    masters = [weight.float()]
    weights, kept = [weight.float()], [masters[0].clone()]
    for _ in range(UPDATES):
        step([weight], masters, [gradient], UPDATE)
        weights.append(weight.float())
        kept.append(masters[0].clone())
    return torch.cat(weights), torch.cat(kept)


def spread() -> float:
    """The standard deviation of the weight after all updates by draws: each moves it a gap with a chance of 1/8."""
    chance = UPDATE / GAP
    return float(GAP * (UPDATES * chance * (1 - chance)) ** 0.5)
