"""What many ways to write `accumulate_gradients` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MicroBatches = Sequence[tuple[Tensor, Tensor]]
Optimizer = torch.optim.Optimizer


def groups_of(micro_batches: MicroBatches, every: int) -> Iterator[MicroBatches]:
    """The groups, the last of them perhaps smaller."""
    for start in range(0, len(micro_batches), every):
        yield micro_batches[start : start + every]


def tokens_of(group: MicroBatches) -> int:
    """How many tokens of a group are not padding."""
    return sum(int((targets != -100).sum()) for _, targets in group)


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    """Cross-entropy of a micro-batch, without padding."""
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction)


def weighted_step(
    model: nn.Module, optimizer: Optimizer, group: MicroBatches, weights: Sequence[float], reduction: str = "mean"
) -> float:
    """One step with these weights of the micro-batches' losses; returns the weighted loss."""
    optimizer.zero_grad()
    total = 0.0
    for (inputs, targets), weight in zip(group, weights, strict=True):
        loss = loss_of(model, inputs, targets, reduction) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    optimizer.step()
    return total
