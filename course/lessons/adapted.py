"""A linear layer with an adapter beside it, as the exercises after `LoRALinear` meet it: what it holds, and no more."""

from __future__ import annotations

from torch import Tensor, nn


class Adapted(nn.Module):
    """Holds what `LoRALinear` holds, and computes nothing.

    base    the nn.Linear that is adapted, its weight (m, n)
    A, B    parameters (r, n) and (m, r)
    scale   alpha / r, a float
    merged  whether the adapter is added into the weight of `base` at present
    """

    def __init__(self, base: nn.Linear, A: Tensor, B: Tensor, scale: float) -> None:
        super().__init__()
        self.base = base
        self.A = nn.Parameter(A)
        self.B = nn.Parameter(B)
        self.scale = scale
        self.merged = False
