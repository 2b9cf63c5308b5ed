"""Batch norm whose batch lies on several ranks: one collective forward, one backward.

    forward    (n, mean, m2) of each rank --all_gather--> mean and variance of all
    backward   (sum of dy, sum of dy * y) of each rank --all_reduce--> what the mean and the variance pass on

T. Chan, G. Golub and R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm


def sync_batch_norm(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """x, (n, C) or (n, C, L), normalised over the samples of all ranks, in its dtype."""
    y: Tensor = _Normalise.apply(x, comm, eps)  # type: ignore[no-untyped-call]
    return y


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, eps: float) -> Tensor:
        rows = _rows(x)
        mean = rows.sum(0) / max(len(rows), 1)  # a rank without samples has a count of 0, and must not say nan
        mine = torch.stack([torch.full_like(mean, len(rows)), mean, (rows - mean).square().sum(0)])
        counts, means, m2s = _gathered(comm, mine).unbind(1)
        total = counts.sum(0)
        mean = (counts * means).sum(0) / total
        variance = (m2s + counts * (means - mean).square()).sum(0) / total
        scale = (variance + eps).rsqrt()
        unit = (rows - mean) * scale
        ctx.comm, ctx.shape, ctx.dtype = comm, x.shape, x.dtype
        ctx.save_for_backward(unit, scale, total)
        return _as(unit, x.shape).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        unit, scale, total = ctx.saved_tensors
        rows = _rows(dy)
        sums = torch.stack([rows.sum(0), (rows * unit).sum(0)])
        ctx.comm.all_reduce(sums)
        by_mean, by_variance = sums / total
        dx = scale * (rows - by_mean - unit * by_variance)
        return _as(dx, ctx.shape).to(ctx.dtype), None, None


def _gathered(comm: Comm, mine: Tensor) -> Tensor:
    """Those of all ranks, (P, ...)."""
    everybodys = mine.new_empty(comm.size, *mine.shape)
    comm.all_gather(everybodys.unbind(), mine)
    return everybodys


def _rows(x: Tensor) -> Tensor:
    """(n, C) or (n, C, L) as (n * L, C), in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide.movedim(1, -1).reshape(-1, x.shape[1])


def _as(rows: Tensor, shape: torch.Size) -> Tensor:
    """Back from (n * L, C)."""
    return rows.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
