"""Wrong ways to write `accumulate_gradients`: steps and zero_grad in wrong places."""

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


def drops_the_last_group(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Steps where the index says so, and the list may end before."""
    whole = [group for group in groups_of(micro_batches, every) if len(group) == every]
    return [weighted_step(model, optimizer, group, [1 / tokens_of(group)] * every, "sum") for group in whole]


def computes_the_last_group_for_nothing(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same, where the micro-batches of the last group go through the model before that."""
    losses = []
    for group in groups_of(micro_batches, every):
        if len(group) == every:
            losses.append(weighted_step(model, optimizer, group, [1 / tokens_of(group)] * every, "sum"))
        else:
            for inputs, targets in group:
                loss_of(model, inputs, targets).backward()  # type: ignore[no-untyped-call]
    return losses


def clears_in_the_loop(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """zero_grad before each backward: only the last micro-batch of a group is left."""
    losses = []
    for group in groups_of(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            optimizer.zero_grad()
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def never_clears(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Each step carries the gradients of all steps before it."""
    losses = []
    for group in groups_of(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def clears_only_after_steps(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Clean between groups; what lay in `.grad` at the start goes into the first step."""
    losses = []
    for group in groups_of(micro_batches, every):
        losses += never_clears(model, optimizer, group, every)
        optimizer.zero_grad()
    return losses


def steps_each_time(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """A step for each micro-batch, on its share of the group's loss."""
    losses = []
    for group in groups_of(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            optimizer.zero_grad()
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


def steps_on_growing_sums(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Steps each time too, with gradients cleared once per group."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


def steps_once_more(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """A step after the loop for what may be left, also where nothing is: gradients are None then, and nothing moves."""
    losses = []
    for group in groups_of(micro_batches, every):
        losses.append(weighted_step(model, optimizer, group, [1 / tokens_of(group)] * len(group), "sum"))
    optimizer.zero_grad()
    optimizer.step()
    return losses


def steps_once_more_on_zeros(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same where clearing leaves zeros: momentum moves the parameters once more."""
    losses = []
    for group in groups_of(micro_batches, every):
        losses.append(weighted_step(model, optimizer, group, [1 / tokens_of(group)] * len(group), "sum"))
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    return losses


def reports_the_last_loss(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The right step; the loss is what the variable held last, one micro-batch's share."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


MISCONCEPTIONS = (
    Misconception(
        name="last_group_dropped",
        witnesses=(drops_the_last_group, computes_the_last_group_for_nothing),
        hint="You step when `every` micro-batches are complete, and the list may end before that: the last, "
        "smaller group is computed for nothing or not at all. It needs a step too.",
    ),
    Misconception(
        name="clears_in_the_loop",
        witnesses=(clears_in_the_loop,),
        hint="zero_grad before each micro-batch throws away what the ones before it have accumulated: your step sees "
        "only the last. Clear once per group, before its first backward.",
    ),
    Misconception(
        name="never_clears",
        witnesses=(never_clears,),
        hint="backward adds to `.grad`, and nothing clears it for you: your second step contains the first group's "
        "gradients once more. Call zero_grad at the start of each group.",
    ),
    Misconception(
        name="clears_only_after_steps",
        witnesses=(clears_only_after_steps,),
        hint="Between groups you clear, but what the caller had left in `.grad` goes into your first step. Clear "
        "before the first backward of a group, not only after the step.",
    ),
    Misconception(
        name="steps_each_time",
        witnesses=(steps_each_time, steps_on_growing_sums),
        hint="You step after every micro-batch. Then the second one is computed at other parameters than the "
        "first, and momentum decays too often: many small steps are not one big one. Step once, after the "
        "group.",
    ),
    Misconception(
        name="steps_once_more",
        witnesses=(steps_once_more, steps_once_more_on_zeros),
        hint="After the loop you step once more, whether a group was left or not. Where gradients are None "
        "nothing moves, but where they are zeros momentum does, and a schedule that counts steps is one ahead. "
        "Step only for a group.",
    ),
    Misconception(
        name="loss_of_the_last_micro_batch",
        witnesses=(reports_the_last_loss,),
        hint="The step is right. The loss that you return is what your variable held at the end, the share of the last "
        "micro-batch. Add up the shares of the group.",
    ),
)
