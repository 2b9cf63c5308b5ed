"""Wrong ways to write `accumulate_gradients`: micro-batches with wrong weights."""

from __future__ import annotations

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


def mean_of_means(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Every micro-batch weighs the same, however many tokens it has."""
    groups = groups_of(micro_batches, every)
    return [weighted_step(model, optimizer, group, [1 / len(group)] * len(group)) for group in groups]


def divides_by_every(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The same, and the last group is divided by a number of micro-batches that it does not have."""
    groups = groups_of(micro_batches, every)
    return [weighted_step(model, optimizer, group, [1 / every] * len(group)) for group in groups]


def divides_by_every_and_reports_means(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Divides by `every` for backward; the losses that it returns are means over the group."""
    losses = divides_by_every(model, optimizer, micro_batches, every)
    sizes = [len(group) for group in groups_of(micro_batches, every)]
    return [loss * every / size for loss, size in zip(losses, sizes, strict=True)]


def tutorial_loop(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Means over `every`, a step where the index says so, clearing after it: three conditions nobody mentions."""
    losses, total = [], 0.0
    for index, (inputs, targets) in enumerate(micro_batches):
        loss = loss_of(model, inputs, targets, "mean") / every
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
        if (index + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
            total = 0.0
    return losses


def tutorial_loop_from_clean(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same, with one zero_grad before the loop."""
    optimizer.zero_grad()
    return tutorial_loop(model, optimizer, micro_batches, every)


def weighted_by_rows(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Weights by sequences: right without padding."""
    losses = []
    for group in groups_of(micro_batches, every):
        rows = [len(targets) for _, targets in group]
        losses.append(weighted_step(model, optimizer, group, [n / sum(rows) for n in rows]))
    return losses


def padding_counts(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Padded tokens have no loss, and are counted all the same."""
    losses = []
    for group in groups_of(micro_batches, every):
        count = sum(targets.numel() for _, targets in group)
        losses.append(weighted_step(model, optimizer, group, [1 / count] * len(group), "sum"))
    return losses


def mean_times_count(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Right weights on means; the mean over no tokens is nan, and its weight 0 does not help."""
    losses = []
    for group in groups_of(micro_batches, every):
        shares = [tokens_of([each]) / tokens_of(group) for each in group]
        losses.append(weighted_step(model, optimizer, group, shares))
    return losses


def adds_means(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Gradients add up, so adding up seems to be all: the step is `every` times too long."""
    groups = groups_of(micro_batches, every)
    return [weighted_step(model, optimizer, group, [1.0] * len(group)) for group in groups]


def adds_means_and_reports_their_mean(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same step; the losses returned are divided."""
    losses = adds_means(model, optimizer, micro_batches, every)
    sizes = [len(group) for group in groups_of(micro_batches, every)]
    return [loss / size for loss, size in zip(losses, sizes, strict=True)]


MISCONCEPTIONS = (
    Misconception(
        name="mean_of_means",
        witnesses=(mean_of_means,),
        hint="You average the means of the micro-batches, so a token in a small micro-batch weighs more than one in a "
        "large one. Sum the losses of all tokens in the group and divide once, by the number of tokens.",
    ),
    Misconception(
        name="divides_by_every",
        witnesses=(divides_by_every, divides_by_every_and_reports_means),
        hint="Dividing each mean by `every` is right only where all micro-batches have the same number of "
        "tokens and the group is full. The last group may be smaller, and its step comes out too short. Divide "
        "sums by the group's tokens.",
    ),
    Misconception(
        name="tutorial_loop",
        witnesses=(tutorial_loop, tutorial_loop_from_clean),
        hint="This is the loop of many tutorials: mean / every, backward, and a step when the index says so. "
        "It equals the big batch only where all micro-batches have the same number of tokens and the list ends "
        "with a full group. Take the group first: sums over its own count, and a step at its end, however many "
        "it has.",
    ),
    Misconception(
        name="weighted_by_rows",
        witnesses=(weighted_by_rows,),
        hint="You weight micro-batches by their number of sequences. With padding, sequences have different numbers of "
        "tokens that count: weight by targets that are not -100.",
    ),
    Misconception(
        name="padding_counts_as_tokens",
        witnesses=(padding_counts,),
        hint="Padded tokens contribute no loss, but you count them when you divide, so the loss and the step "
        "shrink with the padding. Count the targets that are not -100.",
    ),
    Misconception(
        name="mean_of_no_tokens",
        witnesses=(mean_times_count,),
        hint="Your weights are right. But in a micro-batch of padding only, the mean is 0/0 = nan, and nan "
        "times its weight 0 is nan still, so the loss of the whole step is nan. (The parameters survive: torch "
        "sends no gradient to ignored targets.) Use reduction='sum' and divide by the group's count.",
    ),
    Misconception(
        name="adds_means",
        witnesses=(adds_means, adds_means_and_reports_their_mean),
        hint="`.grad` adds up what each backward brings. If each brings the gradient of a mean, their sum is "
        "as many times too long as there are micro-batches. Divide each loss before its backward.",
    ),
)
