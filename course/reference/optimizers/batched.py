"""SGD and AdamW as a GPU likes them: each line of the plain form, once for all parameters.

A GPU spends a few microseconds on every operation that it starts, whatever its size, and a model has hundreds of small
tensors. `torch._foreach_*` starts one operation for a whole list, if its tensors are of one device and dtype; so the
parameters are grouped by these two. Values are those of the plain forms, up to roundings.

On the CPU torch goes through such a list tensor by tensor, and nothing is gained. In bfloat16 something is lost there:
the in-place product of a list with a number rounds the number to bfloat16 first (torch 2.13), and 0.999 becomes 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes

State: TypeAlias = dict[str, Tensor]
Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]


@torch.no_grad()
def sgd_step_foreach(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[State],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """`sgd_step`, with at most five operations per group of parameters of one device and dtype.

    Arguments, state and refusals are those of `sgd_step`. The gradients are copied once for weight decay, and once for
    Nesterov's momentum.
    """
    at_least_zero(lr=lr, weight_decay=weight_decay)
    below_one(momentum=momentum)
    same_shapes(params, grads)
    for ps, given, kept in _groups(params, grads, state):
        gs: Tensors = torch._foreach_add(given, ps, alpha=weight_decay) if weight_decay else given  # g = grad + wd p
        if momentum:
            bs = [_kept("momentum", p, each) for p, each in zip(ps, kept, strict=True)]
            torch._foreach_mul_(bs, momentum)
            torch._foreach_add_(bs, gs)  # b <- mu b + g; mu 0 + g = g in the first step
            gs = torch._foreach_add(gs, bs, alpha=momentum) if nesterov else bs
        torch._foreach_add_(ps, gs, alpha=-lr)  # p <- p - lr g


@torch.no_grad()
def adamw_step_foreach(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[State],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    amsgrad: bool = False,
) -> None:
    """`adamw_step`, with eight operations per group of parameters of one device and dtype, with amsgrad nine.

    Arguments, state and refusals are those of `adamw_step`. Each parameter has its own age, so the corrections are
    lists of numbers. One temporary tensor per parameter is made, and all of them are alive at once.
    """
    beta1, beta2 = betas
    at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
    below_one(beta1=beta1, beta2=beta2)
    same_shapes(params, grads)
    for ps, gs, kept in _groups(params, grads, state):
        ages = [_next_step(p, each) for p, each in zip(ps, kept, strict=True)]
        ms, vs = [each["m"] for each in kept], [each["v"] for each in kept]
        torch._foreach_mul_(ps, 1 - lr * weight_decay)  # p <- p - lr wd p
        torch._foreach_lerp_(ms, gs, 1 - beta1)  # m <- beta1 m + (1 - beta1) g
        torch._foreach_mul_(vs, beta2)
        torch._foreach_addcmul_(vs, gs, gs, 1 - beta2)  # v <- beta2 v + (1 - beta2) g^2
        if amsgrad:
            largest = [_kept("v_max", p, each) for p, each in zip(ps, kept, strict=True)]
            torch._foreach_maximum_(largest, vs)  # v_max <- max(v_max, v)
            vs = largest
        roots = torch._foreach_sqrt(vs)
        torch._foreach_div_(roots, [math.sqrt(1 - beta2**t) for t in ages])  # sqrt(v_hat)
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(ps, ms, roots, [-lr / (1 - beta1**t) for t in ages])


def _groups(
    params: Sequence[Tensor], grads: Sequence[Tensor | None], state: Sequence[State]
) -> Iterator[tuple[list[Tensor], list[Tensor], list[State]]]:
    """Parameters that have a gradient, with it and their state, by device and dtype; no group is empty."""
    groups = defaultdict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor], list[State]]](
        lambda: ([], [], [])
    )
    for param, grad, kept in zip(params, grads, state, strict=True):
        if grad is not None:
            ps, gs, states = groups[param.device, param.dtype]
            ps.append(param)
            gs.append(grad)
            states.append(kept)
    yield from groups.values()


def _kept(name: str, param: Tensor, kept: State) -> Tensor:
    """What the parameter's state has under this name; it begins as zeros."""
    if name not in kept:
        kept[name] = torch.zeros_like(param)
    return kept[name]


def _next_step(param: Tensor, kept: State) -> int:
    """The parameter's age in steps, this one included; its moments begin as zeros."""
    if not kept:
        kept.update(step=torch.zeros(()), m=torch.zeros_like(param), v=torch.zeros_like(param))
    kept["step"] += 1
    return int(kept["step"])
