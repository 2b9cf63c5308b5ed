"""Muon: momentum, whose matrix is then orthogonalized, so that every direction is taken with the same step.

g --moving average--> buf --Nesterov--> u --orthogonalize--> o --> p -= lr sqrt(max(1, r / c)) o
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero, same_shapes
from course.reference.optimizers.orthogonalize import orthogonalize


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
) -> None:
    """One step of Muon in place, bit for bit that of torch.optim.Muon with the same arguments.

    params  matrices (r, c) of any floating dtype; biases, norms and embeddings want another optimizer
    grads   one per parameter, or None: then it and its state stay as they are
    state   one dict per parameter, empty before the first step; kept: "momentum_buffer" (r, c)
    Newton-Schulz runs in bfloat16, as torch's does: half the bytes, and its singular values are rough anyhow.
    Raises BadArgument, before anything changes, on negative numbers and on shapes that differ or are no matrices.
    Source: Jordan et al., Muon (kellerjordan.github.io/posts/muon, 2024); decay as in Liu et al. (arXiv:2502.16982).
    """
    at_least_zero(lr=lr, weight_decay=weight_decay, momentum=momentum, steps=steps)
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
            r, c = p.shape
            p.mul_(1 - lr * weight_decay)  # p <- p - lr decay p
            p.add_(o, alpha=-lr * math.sqrt(max(1.0, r / c)))  # p <- p - lr sqrt(max(1, r / c)) o


def _only_matrices(params: list[Tensor]) -> None:
    for number, param in enumerate(params):
        if param.dim() != 2:
            raise BadArgument(
                f"parameter {number} must be a matrix, got the shape {tuple(param.shape)}: use AdamW for the others"
            )
