"""A Function that trades one sigmoid for one tensor of memory.

forward:  x --save x--> y = x s,  s = sigmoid(x)
backward: x --sigmoid again--> s --> dx = dy (s + x s (1 - s))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SaveLess(torch.autograd.Function):
    """y = x sigmoid(x), element by element; x of any shape and floating dtype.

    Written with torch's own ops it would keep x and sigmoid(x); this keeps x. Backward is made of differentiable ops
    on x, so it can be differentiated again.
    Source: Elfwing, Uchibe and Doya, Sigmoid-weighted linear units (Neural Networks 107, 2018), equations 4 and 5.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Runs without recording: what it computes is a constant to any later derivative."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """dy times the derivative of x s, in which s is a function of x."""
        x: Tensor = ctx.saved_tensors[0]
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))
