"""Stochastic gradient descent with momentum.

grad --+ weight decay--> g --running sum--> buffer --Nesterov looks ahead--> direction --times lr--> param
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes


@torch.no_grad()
def sgd_step(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[dict[str, Tensor]],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """One step, in place, with the arithmetic of `torch.optim.SGD` (dampening 0).

    params, grads  tensors of any shapes, floating dtypes and devices, in pairs of one shape and dtype; grads stay as
                   they are. Where a gradient is None, the parameter and its state stay as they are too. Parameters
                   may require a gradient: nothing is recorded.
    state          one dict per parameter, empty before its first gradient. With momentum it keeps one tensor like the
                   parameter, `momentum`; without momentum it stays empty.
    Cost           one operation per parameter without options, five with all
    Raises BadArgument, before anything is changed, for lr or weight_decay below 0, momentum outside [0, 1), and shapes
    that differ.

    Source: Polyak (1964) for the buffer; Sutskever et al., On the importance of initialization and momentum in deep
    learning (ICML 2013), section 2, for Nesterov's form, in the variables of Bengio et al. (arXiv:1212.0901),
    section 3.5, so that the parameters that are kept are those at which the gradient is taken.
    """
    at_least_zero(lr=lr, weight_decay=weight_decay)
    below_one(momentum=momentum)
    same_shapes(params, grads)
    for param, grad, kept in zip(params, grads, state, strict=True):
        if grad is None:
            continue
        g = grad.add(param, alpha=weight_decay) if weight_decay else grad  # g = grad + wd p
        if momentum:
            if "momentum" not in kept:
                kept["momentum"] = g.clone()  # b = g: the first gradient counts in full
            else:
                kept["momentum"].mul_(momentum).add_(g)  # b <- mu b + g
            b = kept["momentum"]
            g = g.add(b, alpha=momentum) if nesterov else b  # Nesterov: g + mu b, where the next buffer would lead
        param.add_(g, alpha=-lr)  # p <- p - lr g
