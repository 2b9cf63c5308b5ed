"""Rounding column by column, each error made good by the columns after it.

H + damping --inverse, Cholesky--> U --row j--> how the error of column j moves the columns after it
"""

from __future__ import annotations

import torch
from torch import Tensor


def gptq_quantize(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> Tensor:
    """Codes int8 (m, n) of w (m, n), for H = hessian (n, n), the sum of x x', and one step for each row, (m, 1).

    The damped H + damp mean(diag H) I has the inverse U' U, U upper triangular. Computed in float64.
    Cost: O(n^3 + m n^2). Source: Frantar et al., arXiv 2210.17323, sections 3.3 and 4, without its blocks of columns.
    """
    m, n = w.shape
    top = 2 ** (bits - 1) - 1
    H = hessian.double()
    damped = H + damp * H.diagonal().mean() * torch.eye(n, dtype=H.dtype, device=H.device)
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
    rest, scale = w.double().clone(), step.double()[:, 0]
    codes = torch.empty(m, n, dtype=torch.int8, device=w.device)
    for j in range(n):
        code = torch.round(rest[:, j] / scale).clamp(-top, top)
        error = (rest[:, j] - scale * code) / U[j, j]
        rest[:, j:] -= torch.outer(error, U[j, j:])
        codes[:, j] = code
    return codes
