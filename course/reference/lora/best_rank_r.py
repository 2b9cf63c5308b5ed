"""The nearest matrix of rank r, as two factors.

delta = U S V'  ->  B = first r columns of U S,  A = first r rows of V'
"""

from __future__ import annotations

import torch
from torch import Tensor


def best_rank_r(delta: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """B (m, r) and A (r, n), with |delta - B A| as small as rank r allows: the root of the sum of s_k^2 over k > r.

    Cost: one singular value decomposition, O(m n min(m, n)).
    Source: Eckart and Young, The approximation of one matrix by another of lower rank (Psychometrika 1, 1936).
    """
    U, S, Vh = torch.linalg.svd(delta, full_matrices=False)
    return U[:, :r] * S[:r], Vh[:r]
