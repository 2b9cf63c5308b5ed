"""LLM.int8(): the few input columns that hold outliers in full precision, all others in int8."""

from __future__ import annotations

import torch
from torch import Tensor

from course.lessons.int8 import int8_product


def split_outliers(x: Tensor, w: Tensor, threshold: float) -> Tensor:
    """y = x W', (N, m), from x (N, n) and w (m, n): a column of x with any |x| >= threshold is multiplied as it is.

    Steps are each row's largest magnitude over 127, of what is left; 1 where that is all 0, or nothing.
    Source: Dettmers et al., arXiv 2208.07339, section 3, equation 8.
    """
    outlier = (x.float().abs() >= threshold).any(0)
    (qx, dx), (qw, dw) = _codes(x[:, ~outlier]), _codes(w[:, ~outlier])
    exact = x[:, outlier].float() @ w[:, outlier].float().T
    return (exact + int8_product(qx, qw.T) * dx * dw.T).to(x.dtype)


def _codes(rows: Tensor) -> tuple[Tensor, Tensor]:
    rows = rows.float()
    largest = torch.nn.functional.pad(rows.abs(), (0, 1)).amax(1, keepdim=True)  # a 0 more, for rows without columns
    step = torch.where(largest > 0, largest / 127, 1.0)
    return (rows / step).round().to(torch.int8), step
