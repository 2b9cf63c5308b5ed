"""Wrong ways to write `SaveLess`: most differ only in what they keep or in what backward does with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from autograder.bank import Misconception


class Saving(torch.autograd.Function):
    """What right and wrong answers share: x is saved, x sigmoid(x) is returned. Each class below changes a half."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The right derivative."""
        (x,) = _saved(ctx)
        return dy * _slope(x, torch.sigmoid(x))


def _saved(ctx: Any) -> tuple[Tensor, ...]:
    saved: tuple[Tensor, ...] = ctx.saved_tensors
    return saved


def _slope(x: Tensor, s: Tensor) -> Tensor:
    return s + x * s * (1 - s)


# --- keeps too much --------------------------------------------------------------------------------


class SavesXAndSigmoid(Saving):
    """Two saved tensors; hooks see both, and the second derivative takes s for a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves the intermediate too."""
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Uses what was saved."""
        x, s = _saved(ctx)
        return dy * _slope(x, s)


class SigmoidAsAttribute(Saving):
    """The intermediate hides in an attribute, where hooks do not look."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x as one should, and s as an attribute."""
        ctx.save_for_backward(x)
        ctx.s = s = torch.sigmoid(x)
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Uses both."""
        (x,) = _saved(ctx)
        return dy * _slope(x, ctx.s)


class SavesYAndSigmoidToo(Saving):
    """x, s and y; the derivative is written with y, which has a history, and s, which has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves everything in sight."""
        s = torch.sigmoid(x)
        y = x * s
        ctx.save_for_backward(x, s, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """y' = y + s (1 - y)."""
        _, s, y = _saved(ctx)
        return dy * (y + s * (1 - y))


class KeepsAnUnusedSigmoid(Saving):
    """backward computes s again, but forward still keeps its own: every value is right, the bytes are not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x and an s that nobody asks for."""
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The right derivative from x alone."""
        x, _ = _saved(ctx)
        return dy * _slope(x, torch.sigmoid(x))


class KeepsAnUnusedAttribute(Saving):
    """The same, hidden in an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x; the attribute is a leftover."""
        ctx.save_for_backward(x)
        ctx.s = s = torch.sigmoid(x)
        return x * s


class KeepsTheGraph(Saving):
    """forward turns recording on and keeps the graph of its own computation, which holds x and s."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Records x sigmoid(x) for later."""
        with torch.enable_grad():
            ctx.x = x = x.detach().requires_grad_()
            ctx.y = y = x * torch.sigmoid(x)
        return y.detach()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Walks the kept graph."""
        dx: Tensor = torch.autograd.grad(ctx.y, ctx.x, dy)[0]
        return dx


# --- cannot be differentiated again ----------------------------------------------------------------


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
        s, y = _saved(ctx)
        return dy * (y + s * (1 - y))


class DetachesInBackward(Saving):
    """`detach` cuts x off from its history: the second derivative with respect to x is zero, without a word."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Right once."""
        x = ctx.saved_tensors[0].detach()
        return dy * _slope(x, torch.sigmoid(x))


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
        ctx.save_for_backward(_slope(x, s))
        return x * s

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """One product."""
        (slope,) = _saved(ctx)
        return dy * slope


class NoGradInBackward(Saving):
    """torch raises: element 0 of tensors does not require grad."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Nothing is recorded here."""
        (x,) = _saved(ctx)
        with torch.no_grad():
            return dy * _slope(x, torch.sigmoid(x))


class OnceDifferentiable(Saving):
    """`.backward()` would raise here. `grad` with respect to x finds no path back: zeros for x, and for dy too."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        """Right once, and marked so."""
        (x,) = _saved(ctx)
        return dy * _slope(x, torch.sigmoid(x))


# --- slips in the formulas -------------------------------------------------------------------------


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
        (x,) = _saved(ctx)
        s = torch.sigmoid(x)
        return dy * x * s * (1 - s)


class ChainRuleForProduct(Saving):
    """s' alone: the factor x is forgotten."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The derivative of sigmoid."""
        s = torch.sigmoid(ctx.saved_tensors[0])
        return dy * s * (1 - s)


class TakesTheWrongSlope(Saving):
    """s' is written as x (1 - x), although it is s (1 - s)."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """sigmoid's derivative at the wrong place."""
        (x,) = _saved(ctx)
        return dy * (torch.sigmoid(x) + x * x * (1 - x))


class IgnoresDy(Saving):
    """The local derivative alone, as if y were the root."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """dy is not used."""
        (x,) = _saved(ctx)
        return _slope(x, torch.sigmoid(x))


class WorksInPlace(Saving):
    """Saves memory by overwriting the caller's x: y becomes s squared."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x is its own sigmoid after the first line."""
        s = x.detach().sigmoid_()
        ctx.save_for_backward(x)
        return x * s


MISCONCEPTIONS = (
    Misconception(
        name="keeps_intermediates",
        witnesses=(
            SavesXAndSigmoid,
            SigmoidAsAttribute,
            SavesYAndSigmoidToo,
            KeepsAnUnusedSigmoid,
            KeepsAnUnusedAttribute,
            KeepsTheGraph,
        ),
        hint="Besides x you keep sigmoid(x) until backward: as many bytes again for each layer. It makes no "
        "difference whether it lies in save_for_backward, in an attribute of ctx or in a graph of your own. "
        "Keep x; one sigmoid in backward is cheaper than a tensor of memory. What forward computed is also a "
        "constant to a second derivative.",
    ),
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
        "once_differentiable, detach, or a tensor made in forward (which does not record) cuts it off. Save the very x "
        "that was given, and let backward be ordinary torch operations on it.",
    ),
    Misconception(
        name="half_a_product_rule",
        witnesses=(OnlyTheFirstTerm, OnlyTheSecondTerm, ChainRuleForProduct),
        hint="x sigmoid(x) is a product of two functions of x, so its derivative has two terms: "
        "sigmoid(x) times 1, plus x times the derivative of sigmoid. Part of that is missing in yours.",
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
        witnesses=(WorksInPlace,),
        hint="A method with a trailing underscore (`sigmoid_`) writes into the caller's x. After it x is gone, "
        "the product is sigmoid squared, and what backward finds is not x. Make a new tensor.",
    ),
)
