"""Adagrad, RMSprop and Adadelta: how far a number moves depends on the gradients that this number has seen.

Adagrad    v <- v + g^2                          d = g / (sqrt(v) + eps)
RMSprop    v <- decay v + (1 - decay) g^2        d = g / (sqrt(v) + eps)
Adadelta   v as in RMSprop                       d = g sqrt(u + eps) / sqrt(v + eps)
           then u <- decay u + (1 - decay) d^2
all                                              param <- param - lr d
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes

ACCUMULATORS = {"adagrad": ("squares",), "rmsprop": ("squares",), "adadelta": ("squares", "squared_moves")}


@torch.no_grad()
def adaptive_step(
    rule: str,
    param: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    *,
    lr: float,
    decay: float = 0.9,
    eps: float = 1e-8,
) -> None:
    """One step of `rule` ("adagrad", "rmsprop" or "adadelta") on `param`, in place.

    param, grad  of one shape and dtype; grad is not changed
    state        empty before the first step; afterwards it holds one tensor like `param`, for Adadelta two
    decay        of the moving averages; Adagrad, which sums, does not use it, but a bad one is refused there too
    eps          outside the root in Adagrad and RMSprop (as in torch), inside both roots in Adadelta
    Raises BadArgument, before anything is changed, on an unknown rule, lr or eps below 0, decay outside [0, 1), and
    shapes that differ.
    Sources: Duchi, Hazan and Singer, Adaptive Subgradient Methods (JMLR 12, 2011), diagonal form; Hinton, Neural
    Networks for Machine Learning (2012), lecture 6e; Zeiler, ADADELTA (arXiv:1212.5701), algorithm 1, whose step is
    that of lr = 1.
    """
    if rule not in ACCUMULATORS:
        raise BadArgument(f"rule must be one of {', '.join(ACCUMULATORS)}, got {rule!r}")
    at_least_zero(lr=lr, eps=eps)
    below_one(decay=decay)
    same_shapes([param], [grad])
    for name in ACCUMULATORS[rule]:
        if name not in state:
            state[name] = torch.zeros_like(param)
    v = state["squares"]
    if rule == "adagrad":
        v.addcmul_(grad, grad)  # v <- v + g^2
    else:
        v.mul_(decay).addcmul_(grad, grad, value=1 - decay)  # v <- decay v + (1 - decay) g^2
    if rule == "adadelta":
        u = state["squared_moves"]
        d = (u + eps).sqrt_().div_((v + eps).sqrt_()).mul_(grad)  # d = g sqrt(u + eps) / sqrt(v + eps)
        u.mul_(decay).addcmul_(d, d, value=1 - decay)  # u <- decay u + (1 - decay) d^2
    else:
        d = grad / v.sqrt().add_(eps)  # d = g / (sqrt(v) + eps)
    param.sub_(d, alpha=lr)  # param <- param - lr d
