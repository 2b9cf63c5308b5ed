"""Kashin's representation, found greedily: x = u + Q v with small entries in both.

r = x --the basis with the larger 1-norm--> its projection on its sign vector --> u or v, and off r
"""

from __future__ import annotations

import torch
from torch import Tensor


def kashin_split(x: Tensor, q: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """u and v like x, (n,) or (rows, n), which counts as one vector; q (n, n) is the basis of each row.

    Each step leaves 1 - |r|_1^2 / (N |r|^2) of the squared residual, N entries: about 0.36 of it where they are normal.
    Cost: two multiplications by q at most for each step. A sign of 0 counts as 1.
    Source: Merkulov et al., arXiv 2404.09737, algorithm 1; Kashin and Romskii (2023).
    """
    factors = [torch.zeros_like(x), torch.zeros_like(x)]
    residual = x.clone()
    for _ in range(steps):
        seen = (residual, residual @ q)
        norms = [each.abs().sum() for each in seen]
        basis = 0 if norms[0] >= norms[1] else 1
        size = norms[basis] / x.numel()
        part = torch.where(seen[basis] < 0, -size, size)
        factors[basis] += part
        residual -= part @ q.T if basis else part
    return factors[0], factors[1]
