"""Two codes of 4 bits in a byte."""

from __future__ import annotations

import torch
from torch import Tensor


def pack_int4(codes: Tensor) -> Tensor:
    """uint8, one dimension: codes (int8, -8 to 7) in row-major order, the first of two in the lower four bits."""
    flat = torch.nn.functional.pad(codes.flatten(), (0, codes.numel() % 2))
    return (flat[::2] & 15 | flat[1::2] << 4).view(torch.uint8)
