"""Learning rates over the steps of training, by the schedulers of torch.optim.

name --SCHEDULES--> scheduler of an optimizer --.step() after each optimizer.step()--> the rate of each step
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
    StepLR,
)

from course.errors import BadArgument

START = 1e-3  # the share of the peak with which LinearLR begins, which refuses 0


def _warm(optimizer: Optimizer, warmup: int, then: LRScheduler) -> LRScheduler:
    """A straight rise to the peak in `warmup` steps, then the other scheduler, which begins at its own step 0."""
    return SequentialLR(optimizer, [LinearLR(optimizer, START, total_iters=warmup), then], [warmup])


def _cosine(optimizer: Optimizer, steps: int, warmup: int) -> LRScheduler:
    return _warm(optimizer, warmup, CosineAnnealingLR(optimizer, steps - warmup))


def _inverse_root(optimizer: Optimizer, steps: int, warmup: int) -> LRScheduler:
    return _warm(optimizer, warmup, LambdaLR(optimizer, lambda step: math.sqrt(warmup / (warmup + step))))


def _stable(optimizer: Optimizer, steps: int, warmup: int) -> LRScheduler:
    decay = steps // 5
    return _warm(optimizer, warmup, LambdaLR(optimizer, lambda step: min(1, (steps - warmup - step) / decay)))


# In this order: no source needed; cut to a tenth twice, as networks for images long were; arXiv 1608.03983, eq. 5,
# with one period; arXiv 1706.03762, eq. 3; arXiv 2404.06395, section 4, here with a straight decay.
SCHEDULES: Mapping[str, Callable[[Optimizer, int, int], LRScheduler]] = {
    "constant": lambda optimizer, steps, warmup: ConstantLR(optimizer, 1.0, 0),
    "steps": lambda optimizer, steps, warmup: StepLR(optimizer, -(-steps // 3)),
    "warm-up, cosine": _cosine,
    "warm-up, 1/√step": _inverse_root,
    "warm-up, stable, decay": _stable,
}


def learning_rates(schedule: str, steps: int, *, peak: float, warmup: int = 0) -> list[float]:
    """The learning rate of each of the steps 0 to `steps`, the last one included.

    peak     the highest rate
    warmup   steps of the rise to it, for the schedules that have one

    Raises BadArgument for a name that is not in SCHEDULES, and for a warmup that is not between 1 and `steps`.
    """
    if schedule not in SCHEDULES:
        raise BadArgument(f"a schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    if not 0 < warmup < steps:
        raise BadArgument(f"warmup must lie between 1 and steps - 1, got {warmup} of {steps}")
    optimizer = SGD([torch.zeros(1)], lr=peak)
    scheduler = SCHEDULES[schedule](optimizer, steps, warmup)
    rates = []
    for _ in range(1 + steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return rates
