"""A sum in few digits, with what was lost added to what comes next.

x + lost --> y      s + y --> total      what the second addition lost --> lost

Its error is up to 2 u sum |x|, as long as n u is small; of the plain sum (course/lessons/experiments/sums.py) n - 1
times u sum |x|.
"""

from __future__ import annotations

import torch
from torch import Tensor


def compensated_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the first dimension, (n, ...) -> (...), every operation rounded to `dtype`; 0 for n = 0.

    xs     of any floating dtype; each is rounded to `dtype` first, and the bound is on the sum of what comes of that
    dtype  torch.float16, bfloat16, float32 or float64; torch adds two of these with one rounding
    With u = torch.finfo(dtype).eps / 2 the error is at most (2 u + O(n u^2)) sum |x|; in full, while n u^2 < 1 - u,
    u (1 + (1 + n u) (1 + u) / (1 - u - n u^2)) sum |x|. Overflow ends as nan, where the plain sum ends as inf.
    This is Kahan's sum: what the last addition lost goes into the next term. Neumaier's keeps all losses in a second
    sum; its bound is u |sum| + O(n^2 u^2) sum |x|, and in bfloat16 n u is 1 with 256 terms.
    Source: Higham, Accuracy and Stability of Numerical Algorithms (2nd edition, 2002), section 4.3, algorithm 4.2,
    where the loss is (s - total) + y always. It is exact where the larger of s and y stands first (Neumaier, 1974), and
    elsewhere rounded, which the bound survives.
    """
    s = lost = xs.new_zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        y = x + lost
        total = s + y
        larger, smaller = torch.where(s.abs() >= y.abs(), s, y), torch.where(s.abs() >= y.abs(), y, s)
        lost = (larger - total) + smaller  # s + y - total, without a rounding
        s = total
    return s
