"""Adafactor: a second moment in r + c numbers, a decay that grows with age, a step in shares of the parameter's size.

g**2 --means--> row_var, col_var --rank one--> v        g / sqrt(v) --RMS at most d--> u        p -= rho RMS(p) u
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import at_least_zero, same_shapes

State: TypeAlias = dict[str, Tensor]


def adafactor_step(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[State],
    *,
    lr: float = 1e-2,
    beta2_decay: float = -0.8,
    eps: tuple[float | None, float] = (None, 1e-3),
    d: float = 1.0,
    weight_decay: float = 0.0,
) -> None:
    """One step of Adafactor in place, equal to that of torch.optim.Adafactor with the same arguments.

    params  of any floating dtype; the last two dimensions of each are factored, vectors and numbers are not
    grads   one per parameter, or None: then it and its state stay as they are
    state   one dict per parameter, empty before the first step; kept: "step" (), a float32 on the CPU, and "row_var"
            (..., r, 1) with "col_var" (..., 1, c), or "variance" in the shape of a vector
    lr      the largest step, as a share of the RMS of the parameter; the share falls as 1 / sqrt(t)
    eps     the least root of the second moment (None: the dtype's eps) and the least RMS of a parameter
    Raises BadArgument, before anything changes, on numbers out of range and on shapes that differ.
    Source: Shazeer and Stern, Adafactor (arXiv:1804.04235), sections 3 and 6 to 8. Theirs adds eps[0] to g**2 and keeps
    sums; torch's decays weights and has the eps as a lower bound.
    """
    _demand(lr, beta2_decay, eps, d, weight_decay)
    same_shapes(params, grads)
    with torch.no_grad():
        for p, g, kept in zip(params, grads, state, strict=True):
            if g is None:
                continue
            if not kept:
                kept.update(_start(g))
            kept["step"] += 1
            t = kept["step"].item()
            eps1 = torch.finfo(p.dtype).eps if eps[0] is None else eps[0]
            rho = min(lr, t**-0.5)  # rho = min(lr, 1 / sqrt(t))
            alpha = _rms(p).clamp(min=eps[1]) * rho  # alpha = max(eps2, RMS(p)) rho
            p.mul_(1 - lr * weight_decay)  # p <- p - lr decay p
            v = _second_moment(g, kept, t**beta2_decay, eps1)
            u = g * v.clamp(min=eps1**2).rsqrt()  # u = g / max(sqrt(v), eps1)
            u /= (_rms(u) / d).clamp(min=1.0)  # u <- u / max(1, RMS(u) / d)
            p.sub_(alpha * u)


def _start(g: Tensor) -> State:
    """Zeros: r + c of them for each matrix of r c numbers."""
    if g.dim() < 2:
        return {"step": torch.zeros(()), "variance": torch.zeros_like(g)}
    *batch, r, c = g.shape
    return {"step": torch.zeros(()), "row_var": g.new_zeros(*batch, r, 1), "col_var": g.new_zeros(*batch, 1, c)}


def _second_moment(g: Tensor, kept: State, weight: float, eps1: float) -> Tensor:
    """The moving average of g**2 in which the newest has `weight` = 1 - beta2: rank one, or in full for a vector.

    weight = t^-0.8 is 1 at the first step: the zeros at the start never count, and no bias is to be corrected.
    """
    squared = g.square()
    if g.dim() < 2:
        return kept["variance"].lerp_(squared, weight)  # V <- V + weight (g**2 - V)
    rows, cols = kept["row_var"], kept["col_var"]
    rows.lerp_(squared.mean(dim=-1, keepdim=True), weight)  # R <- R + weight (mean over columns - R)
    cols.lerp_(squared.mean(dim=-2, keepdim=True), weight)  # C <- C + weight (mean over rows - C)
    return rows @ cols / rows.mean(dim=-2, keepdim=True).clamp(min=eps1)  # R C / mean(R)


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def _demand(lr: float, beta2_decay: float, eps: tuple[float | None, float], d: float, weight_decay: float) -> None:
    at_least_zero(lr=lr, eps1=eps[0] or 0.0, eps2=eps[1], weight_decay=weight_decay)
    if not beta2_decay <= 0:
        raise BadArgument(f"beta2_decay must be at most 0, got {beta2_decay}: 1 - t**beta2_decay is to grow towards 1")
    if not d >= 1:
        raise BadArgument(f"d must be at least 1, got {d}: it bounds the RMS of an update")
