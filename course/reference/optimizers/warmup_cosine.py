"""A learning rate schedule: a straight line up, then half a cosine down.

step     0 ... warmup             warmup ... total                     total ...
rate     peak * step / warmup     from peak to floor along a cosine    floor
"""

from __future__ import annotations

import math

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero


def warmup_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The learning rate of one step; steps count from 0.

    0 at step 0, `peak` at step `warmup`, `floor` at step `total` and ever after. With warmup = 0 it starts at `peak`.
    Raises BadArgument where step, peak, warmup or floor is negative, or total is not greater than warmup.
    Source: the line is the gradual warm-up of Goyal et al. (arXiv 1706.02677, section 2.2), from 0 as in Vaswani et al.
    (arXiv 1706.03762, section 5.3); the cosine is one cycle of Loshchilov and Hutter (arXiv 1608.03983, eq. 5).
    """
    at_least_zero(step=step, peak=peak, warmup=warmup, floor=floor)
    if total <= warmup:
        raise BadArgument(f"total must be greater than warmup, got total {total} and warmup {warmup}")
    if step < warmup:
        return peak * step / warmup
    t = min(1.0, (step - warmup) / (total - warmup))  # the share of the descent that is over
    return floor + (peak - floor) * (1 + math.cos(math.pi * t)) / 2
