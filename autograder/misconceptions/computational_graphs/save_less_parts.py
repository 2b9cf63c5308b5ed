"""What right and wrong ways to write `SaveLess` share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Saving(torch.autograd.Function):
    """x is saved, x sigmoid(x) is returned; a wrong answer changes one of the halves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The right derivative."""
        (x,) = saved(ctx)
        return dy * slope(x, torch.sigmoid(x))


def saved(ctx: Any) -> tuple[Tensor, ...]:
    """The saved tensors, typed."""
    tensors: tuple[Tensor, ...] = ctx.saved_tensors
    return tensors


def slope(x: Tensor, s: Tensor) -> Tensor:
    """The derivative of x s, with s = sigmoid(x)."""
    return s + x * s * (1 - s)
