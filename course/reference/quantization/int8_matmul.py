"""A product of two quantized matrices: the product of their codes, and what the zero points take off it.

sum (a - za)(b - zb) = sum a b - zb sum a - za sum b + k za zb
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.lessons.int8 import int8_product


def int8_matmul(qa: Tensor, qb: Tensor, za: Tensor, zb: Tensor) -> Tensor:
    """(m, n), int32: the sum over k of (qa - za)(qb - zb) for int8 codes (m, k) and (k, n), exact for k up to 33,000.

    za, zb  int32: za (m, 1) or (), zb (1, n) or ()
    A partial sum may leave int32 and come back: int32 counts modulo 2^32.
    Source: Jacob et al., arXiv 1712.05877, section 2.3.
    """
    rows = qa.sum(1, keepdim=True, dtype=torch.int32)
    columns = qb.sum(0, keepdim=True, dtype=torch.int32)
    return int8_product(qa, qb) - zb * rows - za * columns + qa.shape[1] * za * zb
