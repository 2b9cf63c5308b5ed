"""Clipping by the norm of all gradients together.

gradients --norm of each--> norms --norm of these--> norm
min(1, max_norm / (norm + 1e-6)) --times each gradient, in place--> gradients
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.reference.optimizers.demands import at_least_zero


def clip_grad_norm_(grads: list[Tensor], max_norm: float) -> Tensor:
    """Shortens the gradients of a model, seen as one long vector, to a Euclidean norm of `max_norm`, in place.

    Any shapes, dtypes and devices; all tensors get the same factor, so the direction stays. Where the norm is below
    max_norm - 1e-6 that is 1, and no bit changes. Returns the norm before, a tensor of shape (), 0 for an empty list.
    Nothing is raised for an infinite or undefined norm: inf gives the factor 0 (and 0 * inf = nan where the infinity
    was), nan gives the factor nan.
    Raises BadArgument where max_norm is negative or nan.
    Source: Pascanu, Mikolov and Bengio (arXiv 1211.5063), algorithm 1; the 1e-6 is torch.nn.utils.clip_grad_norm_'s.
    """
    at_least_zero(max_norm=max_norm)
    if not grads:
        return torch.tensor(0.0)
    norms = [torch.linalg.vector_norm(g).to(grads[0].device) for g in grads]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))  # |g| = sqrt(sum of |g_k|^2)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # nan stays nan; Python's min(1.0, nan) would be 1
    for g in grads:
        g.mul_(factor.to(g.device))
    return norm
