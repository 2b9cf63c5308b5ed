"""Other right ways to write `linear_vjp`."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from autograder.bank import Alternative


def einsum(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The index notation says which dimensions are summed."""
    return (
        torch.einsum("...o,oi->...i", dout, w),
        torch.einsum("...o,...i->oi", dout, x),
        torch.einsum("...o->o", dout),
    )


def adds_row_by_row(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every row of the batch on its own: an outer product for w, itself for b."""
    dx, dw, db = torch.zeros_like(x), torch.zeros_like(w), torch.zeros_like(w[:, 0])
    for row in itertools.product(*[range(size) for size in x.shape[:-1]]):
        dx[row] = w.T @ dout[row]
        dw += torch.outer(dout[row], x[row])
        db += dout[row]
    return dx, dw, db


def broadcasts_then_sums(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every product of an element of dout and one of x, then sums over leading dimensions one at a time."""
    dx = (dout[..., :, None] * w).sum(-2)
    dw, db = dout[..., :, None] * x[..., None, :], dout
    while db.dim() > 1:
        dw, db = dw.sum(0), db.sum(0)
    return dx, dw, db


ALTERNATIVES = (
    Alternative(name="einsum", answer=einsum),
    Alternative(name="adds_row_by_row", answer=adds_row_by_row),
    Alternative(name="broadcasts_then_sums", answer=broadcasts_then_sums),
)
