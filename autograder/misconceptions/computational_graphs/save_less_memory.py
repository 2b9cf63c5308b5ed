"""Wrong ways to write `SaveLess` that keep too much; most get every value right."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.save_less_parts import Saving, saved, slope


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
        x, s = saved(ctx)
        return dy * slope(x, s)


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
        (x,) = saved(ctx)
        return dy * slope(x, ctx.s)


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
        _, s, y = saved(ctx)
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
        x, _ = saved(ctx)
        return dy * slope(x, torch.sigmoid(x))


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
        hint="Besides x you keep another tensor of its size (mostly sigmoid(x)) until backward: as many bytes again "
        "for each layer. It makes no difference whether it lies in save_for_backward, in an attribute of ctx or in a "
        "graph of your own. Keep x; one sigmoid in backward is cheaper than a tensor of memory. What forward computed "
        "is also a constant to a second derivative.",
    ),
)
