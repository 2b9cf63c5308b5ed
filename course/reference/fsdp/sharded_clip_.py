"""Gradients that lie in shards on several ranks, shortened together.

    squares of this rank's shards  --one all-reduce of one number-->  squares of all  --root-->  norm, factor

A sum of squares splits over the ranks as it splits over tensors; a norm does not. torch's DTensor does the same: the
norm of a sharded one is partial, and its placement raises to the power before it reduces (_NormPartial in
torch/distributed/tensor/_ops/_math_ops.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.cluster import Comm


def sharded_clip_(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """Multiplies all shards by min(1, max_norm / (norm + 1e-6)) in place; returns the norm of all."""
    squares = torch.zeros((), dtype=torch.float64).to(comm.device)  # of one dtype on all ranks, whatever they hold
    for grad in grads:
        squares += grad.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # keeps a nan
    for grad in grads:
        grad.mul_(factor)
    return norm
