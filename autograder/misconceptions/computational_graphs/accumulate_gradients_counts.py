"""Wrong ways to write `accumulate_gradients`: sums of losses over the wrong count, or over the wrong groups."""

from __future__ import annotations

import torch
from torch import nn

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.accumulate_gradients_parts import (
    MicroBatches,
    Optimizer,
    groups_of,
    loss_of,
    tokens_of,
    weighted_step,
)


def counts_while_it_goes(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The count grows with the group: the first micro-batch is divided by its own tokens only."""
    losses = []
    for group in groups_of(micro_batches, every):
        weights = [1 / max(1, tokens_of(group[: place + 1])) for place in range(len(group))]
        losses.append(weighted_step(model, optimizer, group, weights, "sum"))
    return losses


def counts_on_and_on(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The same, and the count is never set back."""
    losses, count = [], 0
    for group in groups_of(micro_batches, every):
        weights = [1 / max(1, count + tokens_of(group[: place + 1])) for place in range(len(group))]
        count += tokens_of(group)
        losses.append(weighted_step(model, optimizer, group, weights, "sum"))
    return losses


def counts_its_own_tokens(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Each loss over the tokens of its own micro-batch: means again, by hand."""
    losses = []
    for group in groups_of(micro_batches, every):
        weights = [1 / max(1, tokens_of([each])) for each in group]
        losses.append(weighted_step(model, optimizer, group, weights, "sum"))
    return losses


def counts_all_groups(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Tokens of the whole list: right for one group, and shorter steps the more groups there are."""
    weight = 1 / tokens_of(micro_batches)
    groups = groups_of(micro_batches, every)
    return [weighted_step(model, optimizer, group, [weight] * len(group), "sum") for group in groups]


def counts_sequences(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """`len(targets)` is n: steps T times too long."""
    losses = []
    for group in groups_of(micro_batches, every):
        rows = sum(len(targets) for _, targets in group)
        losses.append(weighted_step(model, optimizer, group, [1 / rows] * len(group), "sum"))
    return losses


def does_not_count_class_0(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """`targets > 0` for `targets != -100`."""
    losses = []
    for group in groups_of(micro_batches, every):
        count = max(1, sum(int((targets > 0).sum()) for _, targets in group))
        losses.append(weighted_step(model, optimizer, group, [1 / count] * len(group), "sum"))
    return losses


def makes_every_groups(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """`every` groups or more, of as many micro-batches as that leaves to each."""
    return _in_groups_of(max(1, len(micro_batches) // every), model, optimizer, micro_batches)


def makes_every_groups_at_most(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same, rounded up."""
    return _in_groups_of(-(-len(micro_batches) // every), model, optimizer, micro_batches)


def _in_groups_of(size: int, model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches) -> list[float]:
    """Right steps of groups of this size; the count is a tensor, so that a group of padding only gives nan."""
    losses = []
    for group in groups_of(micro_batches, size):
        optimizer.zero_grad()
        count = torch.tensor(tokens_of(group))
        total = 0.0
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


MISCONCEPTIONS = (
    Misconception(
        name="counts_while_it_goes",
        witnesses=(counts_while_it_goes, counts_on_and_on),
        hint="You count in the same loop in which you divide: the first micro-batch is divided by its own tokens, the "
        "next by more, so the same token weighs less the later it comes. Count the group before its first backward.",
    ),
    Misconception(
        name="counts_its_own_tokens",
        witnesses=(counts_its_own_tokens,),
        hint="You divide each sum by the tokens of its own micro-batch: means, which then add up. Their sum is as many "
        "times too long as there are micro-batches. Divide each by the tokens of the whole group.",
    ),
    Misconception(
        name="counts_all_groups",
        witnesses=(counts_all_groups,),
        hint="You divide by the tokens of the whole list. Each step is the mean over its own group, so each group has "
        "a count of its own; yours makes the steps shorter the more groups there are.",
    ),
    Misconception(
        name="counts_sequences",
        witnesses=(counts_sequences,),
        hint="You divide the sum by the number of sequences: `len(targets)` is n, and targets is (n, T). The loss has "
        "one term for each token, so count tokens: the targets that are not -100.",
    ),
    Misconception(
        name="class_0_not_counted",
        witnesses=(does_not_count_class_0,),
        hint="You count the targets above 0. Class 0 is a class like the others, and its tokens are in the loss: count "
        "the targets that are not -100.",
    ),
    Misconception(
        name="every_taken_for_the_number_of_groups",
        witnesses=(makes_every_groups, makes_every_groups_at_most),
        hint="You make `every` groups. `every` is the size of a group, the number of micro-batches in it: 5 of them "
        "with every=3 are a group of 3 and one of 2.",
    ),
)
