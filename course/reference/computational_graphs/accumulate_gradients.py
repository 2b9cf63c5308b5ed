"""Gradient accumulation that equals the big batch, whatever the sizes.

group --count tokens--> for each micro-batch: sum of losses / count --backward--> .grad adds up --> one step
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDED = -100


def accumulate_gradients(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[tuple[Tensor, Tensor]],
    every: int,
) -> list[float]:
    """One optimizer step for each group of `every` micro-batches; returns the loss of each step.

    inputs (n, T, F), targets (n, T) int64 with -100 where padded; model(inputs) gives logits (n, T, C), in which a
    token may depend on others of its sequence. The loss of a step is the mean cross-entropy over all tokens of its
    group that are not padding. The last group may be smaller; a micro-batch may be padding only, a group may not. At
    most one micro-batch's activations are alive at a time.
    Source: Goyal et al., Accurate, Large Minibatch SGD (arXiv:1706.02677), section 3, remark 3: normalise once, by
    the total count.
    """
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        count = sum(int((targets != PADDED).sum()) for _, targets in group)
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            logits = model(inputs)
            summed = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDED, reduction="sum")
            loss = summed / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses
