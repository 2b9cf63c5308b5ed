"""What codes of an affine grid stand for."""

from __future__ import annotations

from torch import Tensor


def dequantize(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """step (codes - zero), in the dtype of step; the difference needs nine bits, so it is not taken in int8."""
    return (codes.to(step.dtype) - zero) * step
