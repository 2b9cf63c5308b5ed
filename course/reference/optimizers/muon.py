"""Muon: momentum, whose matrix is then orthogonalized, so that every direction is taken with the same step.

g --moving average--> buf --Nesterov--> u --orthogonalize--> o --> p -= lr ratio(r, c) o
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero, same_shapes
from course.reference.optimizers.orthogonalize import orthogonalize

RATIOS: dict[str, Callable[[int, int], float]] = {
    "original": lambda r, c: math.sqrt(max(1.0, r / c)),
    "match_rms_adamw": lambda r, c: 0.2 * math.sqrt(max(r, c)),
}


def muon_step(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[dict[str, Tensor]],
    *,
    lr: float = 1e-3,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    nesterov: bool = True,
    steps: int = 5,
    adjust_lr_fn: str | None = None,
) -> None:
    """One step of Muon in place, as that of torch.optim.Muon with the same arguments.

    params        matrices (r, c) of any floating dtype; biases, norms and embeddings want another optimizer
    grads         one per parameter, or None: then it and its state stay as they are
    state         one dict per parameter, empty before the first step; kept: "momentum_buffer" (r, c)
    steps         of Newton-Schulz, torch's `ns_steps`
    adjust_lr_fn  the ratio that multiplies the rate: "original", or None, is sqrt(max(1, r / c)); "match_rms_adamw" is
                  0.2 sqrt(max(r, c)), with which steps are as large as AdamW's, and its rate and decay can be kept
    Newton-Schulz runs in bfloat16, as torch's does: half the bytes, and its singular values are rough anyhow.
    Parameters and buffers are torch's bit for bit, but for bfloat16 without Nesterov. There torch 2.13 gives
    Newton-Schulz the buffer itself, which is divided by its norm in place. Here it stays the moving average: the first
    step is torch's, the buffer is not, and so the later steps are not, unless momentum is 0.
    Raises BadArgument, before anything changes, on negative numbers, an unknown adjust_lr_fn, and on shapes that differ
    or are no matrices.
    Source: Jordan et al., Muon (kellerjordan.github.io/posts/muon, 2024); decay, and the ratio that matches AdamW, as
    in Liu et al. (arXiv:2502.16982), section 2.2.
    """
    at_least_zero(lr=lr, weight_decay=weight_decay, momentum=momentum, steps=steps)
    ratio = _ratio("original" if adjust_lr_fn is None else adjust_lr_fn)
    same_shapes(params, grads)
    _only_matrices(params)
    with torch.no_grad():
        for p, g, kept in zip(params, grads, state, strict=True):
            if g is None:
                continue
            if not kept:
                kept["momentum_buffer"] = torch.zeros_like(g)
            buf = kept["momentum_buffer"]
            buf.lerp_(g, 1 - momentum)  # buf <- momentum buf + (1 - momentum) g
            u = g.lerp(buf, momentum) if nesterov else buf  # (1 - momentum) g + momentum buf
            o = orthogonalize(u.bfloat16(), steps)
            p.mul_(1 - lr * weight_decay)  # p <- p - lr decay p
            p.add_(o, alpha=-lr * ratio(*p.shape))  # p <- p - lr ratio(r, c) o


def _ratio(adjust_lr_fn: str) -> Callable[[int, int], float]:
    if adjust_lr_fn not in RATIOS:
        raise BadArgument(f"adjust_lr_fn must be None or one of {', '.join(RATIOS)}, got {adjust_lr_fn!r}")
    return RATIOS[adjust_lr_fn]


def _only_matrices(params: list[Tensor]) -> None:
    for number, param in enumerate(params):
        if param.dim() != 2:
            raise BadArgument(
                f"parameter {number} must be a matrix, got the shape {tuple(param.shape)}: use AdamW for the others"
            )
