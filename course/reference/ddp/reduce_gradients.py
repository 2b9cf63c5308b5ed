"""The gradient of the whole batch, from local means over unequal shards.

    samples of all ranks, who has which gradient  --one small all_reduce-->  known to all
    gradient * own samples / all samples  --all_reduce, sum-->  gradient of the mean over all samples

DistributedDataParallel divides by the number of ranks, whatever their samples (S. Li et al., "PyTorch Distributed:
Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2, also for what is used by some ranks only).
"""

from __future__ import annotations

import torch
from torch import nn

from course.cluster import Comm


def reduce_gradients(comm: Comm, model: nn.Module, weight: int) -> None:
    """Every .grad becomes sum_r(w_r g_r) / sum_r(w_r), a missing g_r being 0; None where all are missing."""
    trained = [each for each in model.parameters() if each.requires_grad]
    known = torch.tensor([weight, *(each.grad is not None for each in trained)])
    comm.all_reduce(known)
    samples, *ranks = known.tolist()
    for each, having in zip(trained, ranks, strict=True):
        if having:
            grad = torch.zeros_like(each) if each.grad is None else each.grad
            grad = grad * (weight / samples)  # before the sum: float16 ends at 65,504
            comm.all_reduce(grad)
            each.grad = grad
