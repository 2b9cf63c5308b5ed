"""Stochastic rounding: up as often as x lies near to its upper neighbour, so that the mean is x.

lower ------ x -- upper        u < (x - lower) / (upper - lower) --> upper, else lower
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.mixed_precision.round_to import gap


@torch.no_grad()
def stochastic_round(x: Tensor, u: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """x in `dtype`, rounded to its upper neighbour with probability (x - lower) / (upper - lower), else to its lower.

    x      float32 of any shape
    u      uniform in [0, 1), float32 of x's shape: all the randomness there is
    dtype  torch.bfloat16 or torch.float16
    Lower and upper are meant by value: -1.3 lies between a lower -1.5 and an upper -1. What dtype holds stays, with the
    sign of a zero. Beyond the largest value the gaps go on: between it and the next power of two x becomes inf as
    often as it would round up to there, and from that power on always. inf and nan stay. The probability is exact, but
    for negative x nearer to zero than the smallest subnormal of float16, where it is off by 2^-25 at most.
    Raises BadArgument for another dtype of x, another target, and where u has another shape.
    Source: Croci et al., Stochastic rounding: implementation, error analysis and applications (Royal Society Open
    Science 9, 2022), section 2; Gupta et al. (arXiv:1502.02551), section 3.1.
    """
    if dtype not in (torch.bfloat16, torch.float16):
        raise BadArgument(f"dtype must be torch.bfloat16 or torch.float16, got {dtype}")
    if u.shape != x.shape:
        raise BadArgument(f"u must have the shape {tuple(x.shape)} of x, got {tuple(u.shape)}")
    kept = torch.finfo(dtype)
    step = gap(x, kept.smallest_normal, kept.eps)
    gaps = x / step  # a number of gaps; float32 holds it, and both its neighbours
    lower, upper = gaps.floor(), gaps.ceil()
    return (torch.where(u < gaps - lower, upper, lower) * step).to(dtype)
