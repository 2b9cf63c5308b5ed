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
    Costs two backward passes, and never holds the n x n numbers of the Hessian.
    Source: Pearlmutter, Fast exact multiplication by the Hessian (Neural Computation 6, 1994), section 3.
    """
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    (product,) = torch.autograd.grad((g * v).sum(), x)
    return product
