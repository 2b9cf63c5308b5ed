"""Other right ways to write `hvp`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Alternative

Function = Callable[[Tensor], Tensor]


def forward_over_reverse(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient's derivative along v, in forward mode."""
    product: Tensor = torch.func.jvp(torch.func.grad(f), (x,), (v,))[1]
    return product


def v_as_upstream_gradient(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """v is what flows into the second backward pass; the result still carries a graph."""
    point = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(point), point, create_graph=True)
    return torch.autograd.grad(g, point, grad_outputs=v, create_graph=True)[0]


def through_the_grad_field(f: Function, x: Tensor, v: Tensor) -> Tensor | None:
    """Two calls of backward, with the field cleared between them."""
    x = x.detach().requires_grad_()
    f(x).backward(create_graph=True)  # type: ignore[no-untyped-call]
    g, x.grad = x.grad, None
    assert g is not None
    g.backward(v)  # type: ignore[no-untyped-call]
    return x.grad


def derivative_along_a_line(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """d/dt of the gradient at x + t v: the gradient by x of df/dt."""
    t = torch.zeros((), dtype=x.dtype, requires_grad=True)
    point = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(f(point + t * v), t, create_graph=True)
    return torch.autograd.grad(slope, point)[0]


ALTERNATIVES = (
    Alternative(name="forward_over_reverse", answer=forward_over_reverse),
    Alternative(name="v_as_upstream_gradient", answer=v_as_upstream_gradient),
    Alternative(name="through_the_grad_field", answer=through_the_grad_field),
    Alternative(name="derivative_along_a_line", answer=derivative_along_a_line),
)
