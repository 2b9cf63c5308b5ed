"""Micro-batches add up on a rank, ranks add up once.

    rows of all ranks  --all_reduce-->  known to all
    each micro-batch: loss * its rows / all rows  --backward-->  added to .grad
    .grad  --all_reduce, once-->  gradient of the mean over all rows

DistributedDataParallel.no_sync does it (S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
Training", VLDB 2020, section 3.2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from course.cluster import Comm

Batch: TypeAlias = tuple[Tensor, Tensor]


def accumulate(
    comm: Comm, model: nn.Module, loss_of: Callable[[nn.Module, Batch], Tensor], micro_batches: Sequence[Batch]
) -> None:
    """Every .grad, None before, becomes the gradient of the mean over all rows of all micro-batches of all ranks."""
    rows = torch.tensor(sum(len(inputs) for inputs, _ in micro_batches))
    comm.all_reduce(rows)
    for batch in micro_batches:
        share = len(batch[0]) / rows.item()
        (loss_of(model, batch) * share).backward()  # type: ignore[no-untyped-call]
    trained = [each for each in model.parameters() if each.requires_grad]
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.all_reduce(p.grad)
