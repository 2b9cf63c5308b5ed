"""Wrong ways to write `SaveLess` that are right once and cannot be differentiated again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.save_less_parts import Saving, saved, slope


class KeepsSigmoidForX(Saving):
    """s and y in place of x: as few bytes, but s is a constant to the second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves s, and y, which costs nothing because the caller holds it."""
        s = torch.sigmoid(x)
        y = x * s
        ctx.save_for_backward(s, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """y' = y + s (1 - y)."""
        s, y = saved(ctx)
        return dy * (y + s * (1 - y))


class DetachesInBackward(Saving):
    """`detach` cuts x off from its history: the second derivative with respect to x is zero, without a word."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Right once."""
        x = ctx.saved_tensors[0].detach()
        return dy * slope(x, torch.sigmoid(x))


class KeepsACopy(Saving):
    """forward does not record, so a copy made there has no history either."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves a clone in place of x."""
        ctx.save_for_backward(x.clone())
        return x * torch.sigmoid(x)


class KeepsTheSlope(Saving):
    """The whole derivative is computed in forward: one tensor, and a constant later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves y' and nothing else."""
        s = torch.sigmoid(x)
        ctx.save_for_backward(slope(x, s))
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """One product."""
        (factor,) = saved(ctx)
        return dy * factor


class NoGradInBackward(Saving):
    """torch raises: element 0 of tensors does not require grad."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Nothing is recorded here."""
        (x,) = saved(ctx)
        with torch.no_grad():
            return dy * slope(x, torch.sigmoid(x))


class OnceDifferentiable(Saving):
    """`.backward()` would raise here. `grad` with respect to x finds no path back: zeros for x, and for dy too."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        """Right once, and marked so."""
        (x,) = saved(ctx)
        return dy * slope(x, torch.sigmoid(x))


MISCONCEPTIONS = (
    Misconception(
        name="keeps_sigmoid_for_x",
        witnesses=(KeepsSigmoidForX,),
        hint="With y in the caller's hands, sigmoid(x) is as few bytes as x, and the first derivative is "
        "right. But forward runs without recording, so the saved sigmoid is a constant afterwards, and its "
        "share of the second derivative is missing. Save the input itself and compute the rest in backward.",
    ),
    Misconception(
        name="breaks_double_backward",
        witnesses=(DetachesInBackward, KeepsACopy, KeepsTheSlope, NoGradInBackward, OnceDifferentiable),
        hint="The first derivative is right, but yours cannot be differentiated again with respect to x: no_grad, "
        "once_differentiable, detach, a tensor made in forward (which does not record), or an operation that has no "
        "derivative cuts it off. Save the very x that was given, and let backward be ordinary torch operations on it.",
    ),
)
