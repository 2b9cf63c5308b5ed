"""Wrong ways to write `SaveLess` that are right for small |x| and nan where exp overflows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.save_less_parts import Saving, saved, slope


class InfinityOverInfinity(Saving):
    """s' as exp(-x) / (1 + exp(-x)) squared: far below 0 that is infinity over infinity."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The quotient rule, written down as it stands in books."""
        (x,) = saved(ctx)
        e = torch.exp(-x)
        return dy * (1 / (1 + e) + x * e / (1 + e) ** 2)


class SigmoidOfLargeX(Saving):
    """exp(x) / (1 + exp(x)) in backward: far above 0 that is infinity over infinity."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The right derivative of a sigmoid of one's own."""
        (x,) = saved(ctx)
        return dy * slope(x, torch.exp(x) / (1 + torch.exp(x)))


class SigmoidOfLargeXTwice(SigmoidOfLargeX):
    """The same in forward too: y is nan as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x, and returns nan above 88."""
        ctx.save_for_backward(x)
        return x * torch.exp(x) / (1 + torch.exp(x))


class KeepsSigmoidAndInverts(Saving):
    """s alone, and x computed back from it: nothing comes back where s is rounded to 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves s."""
        s = torch.sigmoid(x)
        ctx.save_for_backward(s)
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The inverse of sigmoid."""
        (s,) = saved(ctx)
        return dy * slope(torch.log(s / (1 - s)), s)


MISCONCEPTIONS = (
    Misconception(
        name="inverts_sigmoid",
        witnesses=(KeepsSigmoidAndInverts,),
        hint="You keep sigmoid(x) and compute x back from it. For large x it is rounded to 1, and no x comes back from "
        "that; and what forward computed is a constant to a second derivative. Keep x: sigmoid can be computed from "
        "it at any time.",
    ),
    Misconception(
        name="exp_overflows",
        witnesses=(InfinityOverInfinity, SigmoidOfLargeX, SigmoidOfLargeXTwice),
        hint="Your formulas are right, but exp is infinite in float32 above 88. Where it stands above and below the "
        "fraction bar, or next to a factor that is 0, the result is nan, and one nan spoils every weight of a model. "
        "torch.sigmoid never overflows: make the derivative of it.",
    ),
)
