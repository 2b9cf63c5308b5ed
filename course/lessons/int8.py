"""The product that a chip has for int8: exact, in int32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

LARGEST = torch.full((8, 16), 127, dtype=torch.int8)

# Asked of this processor while the module is loaded: later, a meter would see the tensors of the first caller's test.
SUMS_IN_INT32 = bool((torch._int_mm(LARGEST, LARGEST.T) == 16 * 127 * 127).all())


def int8_product(a: Tensor, b: Tensor) -> Tensor:
    """(m, n), int32: the product of int8 matrices (m, k) and (k, n), which may be views; any size may be 0 or 1.

    It is `torch._int_mm`, clear of two faults that it has on a CPU in torch 2.13. It mistakes rows for columns where a
    size is 1 and the matrix a view, such as w.T of w (n, 1); such matrices get a row and a column of zeros more here.
    And where a processor has no instruction that adds int8 products in int32 (VNNI), oneDNN adds two of them in int16,
    which does not hold them all; torch's own loop is taken there, slower and exact.
    """
    (m, k), n = a.shape, b.shape[1]
    if 1 in (m, k, n):
        return _product(pad(a, (0, 1, 0, 1)), pad(b, (0, 1, 0, 1)))[:m, :n]
    return _product(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    if not a.is_cpu or SUMS_IN_INT32:
        return torch._int_mm(a, b)
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return torch._int_mm(a, b)
    finally:
        torch._C._set_mkldnn_enabled(before)
