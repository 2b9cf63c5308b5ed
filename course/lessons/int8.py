"""The product that a chip has for int8: exact, in int32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def int8_product(a: Tensor, b: Tensor) -> Tensor:
    """(m, n), int32: the product of int8 matrices (m, k) and (k, n), which may be views; any size may be 0 or 1.

    It is `torch._int_mm`. On a CPU torch 2.13 mistakes rows for columns where a size is 1 and the matrix a view, such
    as w.T of w (n, 1); such matrices get a row and a column of zeros more here.
    """
    (m, k), n = a.shape, b.shape[1]
    if 1 in (m, k, n):
        return torch._int_mm(pad(a, (0, 1, 0, 1)), pad(b, (0, 1, 0, 1)))[:m, :n]
    return torch._int_mm(a, b)
