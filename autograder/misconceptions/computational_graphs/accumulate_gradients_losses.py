"""Wrong ways to write `accumulate_gradients`: the shapes that cross_entropy gets, and the losses that are returned."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.accumulate_gradients_parts import (
    MicroBatches,
    Optimizer,
    groups_of,
    loss_of,
    tokens_of,
    weighted_step,
)

Loss = Callable[[Tensor, Tensor], Tensor]


def _with_loss(model: nn.Module, optimizer: Optimizer, group: MicroBatches, loss_of_logits: Loss) -> float:
    """One right step but for the loss, which is summed by `loss_of_logits(logits, targets)`."""
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in group:
        loss = loss_of_logits(model(inputs), targets) / tokens_of(group)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    optimizer.step()
    return total


def classes_come_last(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Logits (n, T, C) as the model returns them; torch takes T for the number of classes and raises."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="sum")

    return [_with_loss(model, optimizer, group, loss) for group in groups_of(micro_batches, every)]


def reshapes_for_moves(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """(n, C, T) by reshape: the shape is right, and the numbers stand in wrong places."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.reshape(len(logits), logits.shape[2], -1), targets, reduction="sum")

    return [_with_loss(model, optimizer, group, loss) for group in groups_of(micro_batches, every)]


def reports_each_share(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The right steps; the shares of the micro-batches are returned one by one."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
        optimizer.step()
    return losses


def reports_mean_of_means(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The right steps; the number returned is the mean of the micro-batches' means."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        means = []
        for inputs, targets in group:
            logits, flat = model(inputs).flatten(0, 1), targets.flatten()
            loss = F.cross_entropy(logits, flat, reduction="sum") / tokens_of(group)
            loss.backward()  # type: ignore[no-untyped-call]
            means.append(F.cross_entropy(logits.detach(), flat).item())
        optimizer.step()
        losses.append(sum(means) / len(group))
    return losses


def reports_sums(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The right steps; the number returned is the sum over the tokens."""
    losses = []
    for group in groups_of(micro_batches, every):
        count = tokens_of(group)
        losses.append(count * weighted_step(model, optimizer, group, [1 / count] * len(group), "sum"))
    return losses


MISCONCEPTIONS = (
    Misconception(
        name="classes_come_last",
        witnesses=(classes_come_last,),
        hint="F.cross_entropy wants the classes in dimension 1. Your logits are (n, T, C), so it takes T for the "
        "number of classes, and the targets do not fit. Make each token a row, with flatten(0, 1) of the logits and "
        "flatten() of the targets.",
    ),
    Misconception(
        name="reshaped_for_moved",
        witnesses=(reshapes_for_moves,),
        hint="Your logits have the shape (n, C, T), but by reshape, which fills it with the numbers in the order in "
        "which they lie: logits of different tokens are mixed. Move the dimension with transpose(1, 2), or make each "
        "token a row with flatten(0, 1).",
    ),
    Misconception(
        name="loss_of_each_micro_batch",
        witnesses=(reports_each_share,),
        hint="The steps are right, but you return a number for each micro-batch. One for each step is asked for: add "
        "up the shares of a group, and append their sum after the step.",
    ),
    Misconception(
        name="reports_another_loss",
        witnesses=(reports_mean_of_means, reports_sums),
        hint="The steps are right, but the losses that you return are not those whose gradients you took. The loss of "
        "a step is the mean over the tokens of its group, neither their sum nor a mean of means: add up the values of "
        "the very losses on which you call backward.",
    ),
)
