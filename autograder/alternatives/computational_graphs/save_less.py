"""Other right ways to write `SaveLess`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Alternative


class WithSetupContext(torch.autograd.Function):
    """forward without ctx, as torch's newer style has it; another form of the derivative, y + s (1 - y)."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """x / (1 + exp(-x))"""
        return x / (1 + torch.exp(-x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Saves the input."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Computes y and s again."""
        x: Tensor = ctx.saved_tensors[0]
        s = 1 / (1 + torch.exp(-x))
        y = x * s
        return dy * (y + s * (1 - y))


class KeepsXAsAnAttribute(torch.autograd.Function):
    """The input as an attribute: saved-tensor hooks do not see it, its storage is one all the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Keeps the very tensor that was given, with its history."""
        ctx.x = x
        return x.clone().mul_(x.sigmoid())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The product rule in one line."""
        x: Tensor = ctx.x
        return torch.sigmoid(x) * (1 + x * torch.sigmoid(-x)) * dy


class LetsAutogradDoIt(torch.autograd.Function):
    """backward runs forward again under autograd, as checkpointing does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x only."""
        ctx.save_for_backward(x)
        return x.sigmoid().mul_(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """A derivative with a graph of its own, from x as it was given."""
        x: Tensor = ctx.saved_tensors[0]
        with torch.enable_grad():
            y = x * torch.sigmoid(x)
        return torch.autograd.grad(y, x, dy, create_graph=torch.is_grad_enabled())[0]


class _Derivative(torch.autograd.Function):
    """dx as a function of x and dy, with its own derivative written out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dy: Tensor) -> Tensor:
        ctx.save_for_backward(x, dy)
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor]:
        x, dy = ctx.saved_tensors
        s = torch.sigmoid(x)
        slope = s * (1 - s)
        return v * dy * slope * (2 + x * (1 - 2 * s)), v * (s + x * slope)


class WritesTheSecondDerivative(torch.autograd.Function):
    """backward calls a second Function, which holds the second derivative as a formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves x only."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """Hands over to the other Function."""
        x: Tensor = ctx.saved_tensors[0]
        return _Derivative.apply(x, dy)  # type: ignore[no-untyped-call]


class SavesYToo(torch.autograd.Function):
    """y beside x: it costs nothing, because the caller holds it, and like x it has a history."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Saves the input and the output."""
        y = x * torch.sigmoid(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """y' = s + y (1 - s)."""
        tensors: tuple[Tensor, ...] = ctx.saved_tensors
        x, y = tensors
        s = torch.sigmoid(x)
        return dy * (s + y * (1 - s))


ALTERNATIVES = (
    Alternative(name="with_setup_context", answer=WithSetupContext),
    Alternative(name="keeps_x_as_an_attribute", answer=KeepsXAsAnAttribute),
    Alternative(name="saves_y_too", answer=SavesYToo),
    Alternative(name="lets_autograd_do_it", answer=LetsAutogradDoIt),
    Alternative(name="writes_the_second_derivative", answer=WritesTheSecondDerivative),
)
