"""The right parts of `warmup_cosine`, of which a wrong way replaces one."""

from __future__ import annotations

import math
from collections.abc import Callable

from course.performing.exercise import Answer

Up = Callable[[int, int], float]  # (step, warmup) -> share of the peak
Down = Callable[[int, int, int], float]  # (step, warmup, total) -> share of what lies between floor and peak


def over(step: int, warmup: int, total: int) -> float:
    """The share of the descent that is over, at most 1."""
    return min(1.0, (step - warmup) / (total - warmup))


def falls(t: float) -> float:
    """Half a period of the cosine, from 1 at t = 0 to 0 at t = 1."""
    return (1 + math.cos(math.pi * t)) / 2


def line(step: int, warmup: int) -> float:
    """The right way up."""
    return step / warmup


def descent(step: int, warmup: int, total: int) -> float:
    """The right way down."""
    return falls(over(step, warmup, total))


def schedule(up: Up = line, down: Down = descent) -> Answer:
    """The way up below `warmup`, then the way down from peak to floor; refuses nothing."""

    def answer(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
        if step < warmup:
            return peak * up(step, warmup)
        return floor + (peak - floor) * down(step, warmup, total)

    return answer
