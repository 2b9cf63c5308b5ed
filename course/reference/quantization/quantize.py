"""Codes of numbers on an affine grid."""

from __future__ import annotations

import torch
from torch import Tensor


def quantize(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """int8: x / step to the nearest integer (ties to even), plus zero, within [-2**(bits - 1), 2**(bits - 1) - 1]."""
    low = -(2 ** (bits - 1))
    return ((x.detach().to(step.dtype) / step).round() + zero).clamp(low, -low - 1).to(torch.int8)
