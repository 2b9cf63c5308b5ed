"""Rounding to a format of fewer bits: to a whole number of gaps between its neighbouring values.

2^e <= |x| < 2^(e + 1)        gap = 2^e eps, eps = 2^-mantissa_bits        x / gap --nearest integer--> times gap
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.errors import BadArgument

EXPONENT = 0x7F80_0000  # these bits of a float32, the others zero, are 2^e


@torch.no_grad()
def round_to(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """x rounded to the nearest value of a binary format, of two equally near ones to the even one.

    x              float32 of any shape; so is what is returned
    exponent_bits  2 to 8; (5, 10) is float16, (8, 7) bfloat16, (5, 2) float8_e5m2, (8, 23) float32 itself
    mantissa_bits  1 to 23, without the leading one
    The format follows IEEE 754: below the smallest normal value all gaps are equal; from half a gap beyond the largest
    value on, x becomes inf; zero keeps its sign; nan stays nan, of any payload. Bit for bit torch's cast from float32.
    torch.float8_e4m3fn is no such format. It has no inf and counts on in inf's exponent, up to 448, where (4, 3) here
    ends at 240; and torch's cast saturates: whatever lies beyond 448, inf included, becomes 448.
    Raises BadArgument for another dtype of x, and for bits that float32 cannot hold.
    Source: IEEE 754-2019, sections 3.3 and 4.3.1; e4m3 in Micikevicius et al. (arXiv:2209.05433), section 3.
    """
    if not (2 <= exponent_bits <= 8 and 1 <= mantissa_bits <= 23):
        raise BadArgument(
            f"exponent_bits must be from 2 to 8 and mantissa_bits from 1 to 23, got {exponent_bits} and {mantissa_bits}"
        )
    bias = 2 ** (exponent_bits - 1) - 1  # the largest exponent too
    eps = 2.0**-mantissa_bits
    step = gap(x, 2.0 ** (1 - bias), eps)
    rounded = (x / step).round() * step  # torch.round takes ties to even; both others are exact
    return torch.where(rounded.abs() > (2 - eps) * 2.0**bias, rounded * torch.inf, rounded)


def gap(x: Tensor, smallest_normal: float, eps: float) -> Tensor:
    """The distance between the neighbours of x in a format, as if its exponents had no end; float32 of x's shape.

    Raises BadArgument where x is not float32.
    """
    if x.dtype != torch.float32:
        raise BadArgument(f"x must be float32, got {x.dtype}: from a wider dtype it would be rounded twice")
    power = (x.view(torch.int32) & EXPONENT).view(torch.float32)  # 2^e; inf for inf and nan
    return power.clamp(smallest_normal, 2.0**127) * eps
