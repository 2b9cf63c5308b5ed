"""The backward of a reversible block, which keeps no activation.

y1 --g, recorded--> x2 = y2 - g(y1) --f, recorded--> x1 = y1 - f(x2)
dy2 --back through g--> dx1 = dy1 + ... --back through f--> dx2 = dy2 + ...
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def reversible_backward(block: Any, y: Pair, dy: Pair) -> tuple[Pair, Pair]:
    """(x1, x2) and (dx1, dx2) of y1 = x1 + f(x2), y2 = x2 + g(y1); parameters' gradients are added to .grad.

    One evaluation of f and one of g, as many as their own backward needs anyway where nothing was kept.
    Source: Gomez et al., The Reversible Residual Network (arXiv 1707.04585), section 3.2, algorithm 1.
    """
    y1, y2, dy1, dy2 = (each.detach() for each in (*y, *dy))
    g_of_y1, through_g = _both_ways(block.g, y1, dy2)
    x2 = y2 - g_of_y1
    dx1 = dy1 + through_g  # all that reaches y1 reaches x1
    f_of_x2, through_f = _both_ways(block.f, x2, dx1)
    return (y1 - f_of_x2, x2), (dx1, dy2 + through_f)


def _both_ways(layer: Any, x: Tensor, dy: Tensor) -> Pair:
    """layer(x), and the gradient that dy becomes on its way back through it; its graph is gone afterwards."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = layer(leaf)
    torch.autograd.backward(y, dy)
    assert leaf.grad is not None
    return y.detach(), leaf.grad
