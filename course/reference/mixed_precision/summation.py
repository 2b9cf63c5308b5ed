"""Three sums in few digits: one after the other, by halves, and with what was lost added to what comes next.

plain     ((x1 + x2) + x3) + x4             error up to (n - 1) u sum |x|
pairwise  (x1 + x2) + (x3 + x4)             (log2 n) u
Kahan     x3 + lost, then s + that          2 u, as long as n u is small
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
    where the loss is (s - total) + y always; it is exact where the larger of s and y stands first (Neumaier, 1974).
    """
    s = lost = xs.new_zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        y = x + lost
        total = s + y
        larger, smaller = torch.where(s.abs() >= y.abs(), s, y), torch.where(s.abs() >= y.abs(), y, s)
        lost = (larger - total) + smaller  # s + y - total, without a rounding
        s = total
    return s


def plain_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """`compensated_sum` without the compensation: an error of at most (n - 1) u sum |x|.

    Source: Higham, section 4.2; without terms of order u^2: Rump (BIT 52, 2012).
    """
    s = xs.new_zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        s = s + x
    return s


def pairwise_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The same sum by neighbours, then by neighbours of the sums, and so on: an error of at most
    L u / (1 - L u) sum |x|, L = log2 n rounded up.

    Source: Higham, section 4.2, equation (4.6).
    """
    terms = xs.to(dtype)
    if len(terms) == 0:
        return plain_sum(terms, dtype)
    while len(terms) > 1:
        even = len(terms) // 2 * 2
        terms = torch.cat([terms[0:even:2] + terms[1:even:2], terms[even:]])  # an odd one out goes up as it is
    return terms[0]
