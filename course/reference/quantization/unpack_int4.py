"""Codes of 4 bits out of bytes."""

from __future__ import annotations

import torch
from torch import Tensor


def unpack_int4(packed: Tensor, count: int) -> Tensor:
    """int8 (count,), of each byte the lower code first: a shift to the right of a signed number repeats its sign."""
    signed = packed.to(torch.int8)
    return torch.stack([signed << 4 >> 4, signed >> 4], 1).flatten()[:count]
