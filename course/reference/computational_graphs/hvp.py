"""Hessian times vector by double backward.

x --f--> loss --grad, with its graph--> g --sum of g v--> number --grad--> H v
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def hvp(f: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
    """The Hessian of f at x, times v, in the shape and dtype of x.

    f  from a tensor of x's shape to a number
    v  of x's shape; a constant, so that the derivative of sum(g v) by x is H v (H is symmetric)
    Where f is linear, no graph leads from the gradient back to x, and H v is 0.
    Costs two backward passes, and never holds the n x n numbers of the Hessian.
    Source: Pearlmutter, Fast exact multiplication by the Hessian (Neural Computation 6, 1994), section 3.
    """
    x = x.detach().requires_grad_()
    g = _gradient(f(x), x, create_graph=True)
    product = _gradient((g * v).sum(), x)
    return product


def _gradient(y: Tensor, x: Tensor, *, create_graph: bool = False) -> Tensor:
    """The gradient of y by x: zeros, as torch.func has it, where y does not depend on x."""
    if not y.requires_grad:
        return torch.zeros_like(x)
    (gradient,) = torch.autograd.grad(y, x, create_graph=create_graph, materialize_grads=True)
    return gradient
