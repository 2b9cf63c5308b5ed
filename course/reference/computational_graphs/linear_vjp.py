"""The vector-Jacobian product of a linear layer.

out = x w^T + b        dx = dout w        dw = sum over rows of dout^T x        db = sum over rows of dout
"""

from __future__ import annotations

from torch import Tensor


def linear_vjp(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients (dx, dw, db) of a scalar whose gradient with respect to `out = x @ w.T + b` is `dout`.

    dout (..., out), x (..., in), w (out, in); any number of batch dimensions, also none; sizes may be 0.
    Returns dx (..., in), dw (out, in), db (out,) in the dtype of the inputs.
    Source: Giles, Collected matrix derivative results for forward and reverse mode algorithmic differentiation
    (Advances in Automatic Differentiation, Springer 2008): the reverse mode of a matrix product.
    """
    rows = x.shape[:-1].numel()  # reshape cannot work out a -1 beside a 0
    rows_of_dout = dout.reshape(rows, w.shape[0])
    rows_of_x = x.reshape(rows, w.shape[1])
    dx = dout @ w
    dw = rows_of_dout.T @ rows_of_x
    db = rows_of_dout.sum(dim=0)
    return dx, dw, db
