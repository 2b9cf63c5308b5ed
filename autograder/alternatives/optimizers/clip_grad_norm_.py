"""Other right ways to write `clip_grad_norm_`."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from autograder.bank import Alternative


def _refuse(max_norm: float) -> None:
    if not max_norm >= 0:
        raise ValueError(f"max_norm must be at least 0, got {max_norm}")


def one_long_vector(grads: list[Tensor], max_norm: float) -> Tensor:
    """All numbers end to end; tensors of two dtypes become one of the finer."""
    _refuse(max_norm)
    if len(grads) == 0:
        return torch.zeros(())
    norm: Tensor = torch.cat([g.reshape(-1) for g in grads]).norm()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g *= factor
    return norm


def python_numbers(grads: list[Tensor], max_norm: float) -> float:
    """Squares are added up as Python floats; a nan is asked for by name."""
    _refuse(max_norm)
    norm = math.sqrt(math.fsum(float(g.double().pow(2).sum()) for g in grads))
    factor = max_norm / (norm + 1e-6)
    if factor < 1 or math.isnan(factor):
        for g in grads:
            g.copy_(g * factor)
    return norm


def unless_below(grads: list[Tensor], max_norm: float) -> Tensor:
    """Nothing is multiplied below the limit; `not <=` is true of a nan."""
    _refuse(max_norm)
    norm = sum(((g**2).sum() for g in grads), torch.tensor(0.0)).sqrt()
    if not norm <= max_norm:
        torch._foreach_mul_(grads, max_norm / (norm + 1e-6))
    return norm


def numpy_views(grads: list[Tensor], max_norm: float) -> Tensor:
    """Arrays that share the tensors' memory; np.minimum passes a nan on."""
    _refuse(max_norm)
    arrays = [g.numpy() for g in grads]
    norm = np.sqrt(sum(float(np.vdot(a.astype("float64"), a.astype("float64"))) for a in arrays))
    factor = np.minimum(max_norm / (norm + 1e-6), 1.0)
    for a in arrays:
        np.multiply(a, factor, out=a, casting="same_kind")
    return torch.tensor(norm)


ALTERNATIVES = (
    Alternative(name="one_long_vector", answer=one_long_vector),
    Alternative(name="python_numbers", answer=python_numbers),
    Alternative(name="unless_below", answer=unless_below),
    Alternative(name="numpy_views", answer=numpy_views),
)
