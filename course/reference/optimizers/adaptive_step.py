"""Adagrad, RMSprop and Adadelta: how far a number moves depends on the gradients that this number has seen.

Adagrad    v <- v + g^2                          d = g / (sqrt(v) + eps)
RMSprop    v <- decay v + (1 - decay) g^2        d = g / (sqrt(v) + eps)
           centered: m <- m + (1 - decay) (g - m), and d has v - m^2 for v; with momentum: b <- mu b + d for d
Adadelta   v as in RMSprop                       d = g sqrt(u + eps) / sqrt(v + eps)
           then u <- decay u + (1 - decay) d^2
all                                              param <- param - lr d
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes

ACCUMULATORS = {"adagrad": ("squares",), "rmsprop": ("squares",), "adadelta": ("squares", "squared_moves")}
PIECE = 2**18  # numbers, of which a temporary tensor has 1 MiB in float32


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
    momentum: float = 0.0,
    centered: bool = False,
) -> None:
    """One step of `rule` ("adagrad", "rmsprop" or "adadelta") on `param`, in place.

    param, grad  of one shape and dtype; grad is not changed
    state        empty before the first step; afterwards it holds one tensor like `param`, for Adadelta two; one more
                 with momentum, and one more where it is centered
    decay        of the moving averages; Adagrad, which sums, does not use it, but a bad one is refused there too
    eps          outside the root in Adagrad and RMSprop (as in torch), inside both roots in Adadelta
    momentum     mu, of RMSprop alone, in which moves are summed as gradients are in SGD; 0 means none
    centered     of RMSprop alone: whether the root is of the variance of the gradients, not of their mean square
    Raises BadArgument, before anything is changed, on an unknown rule, lr or eps below 0, decay or momentum outside
    [0, 1), momentum or centered with another rule than RMSprop, and shapes that differ.
    Sources: Duchi, Hazan and Singer, Adaptive Subgradient Methods (JMLR 12, 2011), diagonal form; Hinton, Neural
    Networks for Machine Learning (2012), lecture 6e; Graves, Generating Sequences With Recurrent Neural Networks
    (arXiv:1308.0850), section 4.2, for the centered form with momentum; Zeiler, ADADELTA (arXiv:1212.5701), algorithm
    1, whose step is that of lr = 1.
    """
    if rule not in ACCUMULATORS:
        raise BadArgument(f"rule must be one of {', '.join(ACCUMULATORS)}, got {rule!r}")
    at_least_zero(lr=lr, eps=eps)
    below_one(decay=decay, momentum=momentum)
    if rule != "rmsprop" and (momentum or centered):
        raise BadArgument(f"momentum and centered must be left out of {rule}, got {momentum} and {centered}")
    same_shapes([param], [grad])
    for name in (*ACCUMULATORS[rule], *["mean"] * centered, *["buffer"] * (momentum > 0)):
        if name not in state:
            state[name] = torch.zeros_like(param)
    v = state["squares"]
    if rule == "adagrad":
        v.addcmul_(grad, grad)  # v <- v + g^2
    else:
        v.mul_(decay).addcmul_(grad, grad, value=1 - decay)  # v <- decay v + (1 - decay) g^2
    if rule == "adadelta":
        for p, g, v, u in _pieces(param, grad, state["squares"], state["squared_moves"]):
            d = (u + eps).sqrt_().div_((v + eps).sqrt_()).mul_(g)  # d = g sqrt(u + eps) / sqrt(v + eps)
            u.mul_(decay).addcmul_(d, d, value=1 - decay)  # u <- decay u + (1 - decay) d^2
            p.sub_(d, alpha=lr)  # param <- param - lr d
        return
    if centered:
        m = state["mean"].lerp_(grad, 1 - decay)  # m <- m + (1 - decay) (g - m)
        root = v.addcmul(m, m, value=-1).sqrt_().add_(eps)  # sqrt(v - m^2) + eps
    else:
        root = v.sqrt().add_(eps)  # sqrt(v) + eps
    if momentum:
        b = state["buffer"].mul_(momentum).addcdiv_(grad, root)  # b <- mu b + d, d = g / root
        param.add_(b, alpha=-lr)  # param <- param - lr b
    else:
        param.addcdiv_(grad, root, value=-lr)  # param <- param - lr d


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in views of the same rows, at most PIECE numbers each or one row; all at once where not on the CPU.

    On the CPU the memory of two large temporaries goes back to the system after every step, and the next step waits
    until its pages are cleared, which doubles Adadelta's time. A GPU keeps it, and would only start more kernels.
    """
    first = tensors[0]
    if first.dim() == 0 or first.device.type != "cpu":
        return iter([tensors])
    rows = max(1, PIECE // max(1, first.shape[1:].numel()))
    return (tuple(each[start : start + rows] for each in tensors) for start in range(0, len(first), rows))
