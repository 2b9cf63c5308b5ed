"""Random numbers that every processor draws alike."""

from __future__ import annotations

import torch
from torch import Tensor


def integer(rng: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high - 1."""
    return int(torch.randint(low, high, (), generator=rng))


def normal(rng: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, drawn in float64: in float32 their last bits depend on the processor's vectors, which a
    form of the case in float64 would show.
    """
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
