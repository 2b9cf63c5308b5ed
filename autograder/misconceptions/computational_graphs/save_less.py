"""Wrong ways to write `SaveLess`: slips in the formulas here; in cost, twice or far from 0 beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs import save_less_far, save_less_memory, save_less_second
from autograder.misconceptions.computational_graphs.save_less_parts import Saving, saved, slope


class OnlyTheFirstTerm(Saving):
    """s alone: sigmoid is taken for a constant."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Half of the product rule."""
        return dy * torch.sigmoid(ctx.saved_tensors[0])


class OnlyTheSecondTerm(Saving):
    """x s' alone: x is taken for a constant."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The other half."""
        (x,) = saved(ctx)
        s = torch.sigmoid(x)
        return dy * x * s * (1 - s)


class ChainRuleForProduct(Saving):
    """s' alone: the factor x is forgotten."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The derivative of sigmoid."""
        s = torch.sigmoid(ctx.saved_tensors[0])
        return dy * s * (1 - s)


class SecondTermWithoutX(Saving):
    """s + s': the second term has lost its factor x."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Two terms, one of them too short."""
        s = torch.sigmoid(ctx.saved_tensors[0])
        return dy * (s + s * (1 - s))


class TakesSOutAndLeavesIt(Saving):
    """s (1 + x s (1 - s)): s is taken out of both terms, and still stands in the second."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """One s too many."""
        (x,) = saved(ctx)
        s = torch.sigmoid(x)
        return dy * s * (1 + x * s * (1 - s))


class TakesTheWrongSlope(Saving):
    """s' is written as x (1 - x), although it is s (1 - s)."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """sigmoid's derivative at the wrong place."""
        (x,) = saved(ctx)
        return dy * (torch.sigmoid(x) + x * x * (1 - x))


class IgnoresDy(Saving):
    """The local derivative alone, as if y were the root."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """dy is not used."""
        (x,) = saved(ctx)
        return slope(x, torch.sigmoid(x))


class WorksInPlace(Saving):
    """Saves memory by overwriting the caller's x: y becomes s squared."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x is its own sigmoid after the first line."""
        s = x.detach().sigmoid_()
        ctx.save_for_backward(x)
        return x * s


class MultipliesInPlace(Saving):
    """The same with the product: x becomes y, and backward finds y in its place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """y lies where x was."""
        ctx.save_for_backward(x)
        return x.mul_(torch.sigmoid(x))


class TakesYForX(Saving):
    """Only y is kept, and put in the place of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves y."""
        y = x * torch.sigmoid(x)
        ctx.save_for_backward(y)
        return y


class TakesYForXInAShorterForm(TakesYForX):
    """The same in the form s + y (1 - s), whose s is that of y."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """sigmoid of the wrong thing."""
        (y,) = saved(ctx)
        s = torch.sigmoid(y)
        return dy * (s + y * (1 - s))


class CallsSilu:
    """torch's own operation under the name that a Function would have."""

    apply = staticmethod(torch.nn.functional.silu)


class ReplacesApply(Saving):
    """A Function for show."""

    apply = staticmethod(torch.nn.functional.silu)


class HasNoBackward(torch.autograd.Function):
    """Half of a Function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x for nobody."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)


MISCONCEPTIONS = (
    *save_less_memory.MISCONCEPTIONS,
    *save_less_second.MISCONCEPTIONS,
    *save_less_far.MISCONCEPTIONS,
    Misconception(
        name="half_a_product_rule",
        witnesses=(OnlyTheFirstTerm, OnlyTheSecondTerm, ChainRuleForProduct, SecondTermWithoutX),
        hint="x sigmoid(x) is a product of two functions of x, so its derivative has two terms: "
        "sigmoid(x) times 1, plus x times the derivative of sigmoid. Part of that is missing in yours: a term, or the "
        "factor x of the second one.",
    ),
    Misconception(
        name="s_taken_out_twice",
        witnesses=(TakesSOutAndLeavesIt,),
        hint="You take s = sigmoid(x) out of both terms of the product rule. It then stands in front and no longer "
        "inside: divide each term by s once, also the second.",
    ),
    Misconception(
        name="slope_of_sigmoid_in_x",
        witnesses=(TakesTheWrongSlope,),
        hint="The rule s' = s (1 - s) holds for s = sigmoid(x), the result. You put x in its place.",
    ),
    Misconception(
        name="ignores_dy",
        witnesses=(IgnoresDy,),
        hint="backward gets dy, the derivative of some loss with respect to y, and returns that loss's derivative with "
        "respect to x: the local derivative times dy. Yours is right only where dy is 1.",
    ),
    Misconception(
        name="overwrites_x",
        witnesses=(WorksInPlace, MultipliesInPlace),
        hint="A method with a trailing underscore (`sigmoid_`, `mul_`) writes into the caller's x. After it x is gone: "
        "what is computed from it afterwards, in forward or in backward, is computed from something else. Make a new "
        "tensor.",
    ),
    Misconception(
        name="keeps_y_for_x",
        witnesses=(TakesYForX, TakesYForXInAShorterForm),
        hint="You keep y and use it in backward as if it were x. y costs no memory, because the caller holds it, but "
        "it does not tell which x it came from: x sigmoid(x) first falls and then rises, so two x have one y. Keep x.",
    ),
    Misconception(
        name="no_function_of_its_own",
        witnesses=(CallsSilu, ReplacesApply, HasNoBackward),
        hint="SaveLess must be a class below torch.autograd.Function: its forward says what is computed, its backward "
        "how that is differentiated, both as static methods. apply comes from Function and calls them.",
    ),
)
