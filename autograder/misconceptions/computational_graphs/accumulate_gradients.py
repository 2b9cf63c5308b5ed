"""Wrong ways to write `accumulate_gradients`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograder.bank import Misconception

MicroBatches = Sequence[tuple[Tensor, Tensor]]
Optimizer = torch.optim.Optimizer


def _groups(micro_batches: MicroBatches, every: int) -> Iterator[MicroBatches]:
    for start in range(0, len(micro_batches), every):
        yield micro_batches[start : start + every]


def _tokens(group: MicroBatches) -> int:
    return sum(int((targets != -100).sum()) for _, targets in group)


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction)


def _weighted(
    model: nn.Module, optimizer: Optimizer, group: MicroBatches, weights: Sequence[float], reduction: str = "mean"
) -> float:
    """One step with these weights of the micro-batches' losses."""
    optimizer.zero_grad()
    total = 0.0
    for (inputs, targets), weight in zip(group, weights, strict=True):
        loss = _loss(model, inputs, targets, reduction) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    optimizer.step()
    return total


def mean_of_means(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Every micro-batch weighs the same, however many tokens it has."""
    groups = _groups(micro_batches, every)
    return [_weighted(model, optimizer, group, [1 / len(group)] * len(group)) for group in groups]


def divides_by_every(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The same, and the last group is divided by a number of micro-batches that it does not have."""
    groups = _groups(micro_batches, every)
    return [_weighted(model, optimizer, group, [1 / every] * len(group)) for group in groups]


def divides_by_every_and_reports_means(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Divides by `every` for backward; the losses that it returns are means over the group."""
    losses = divides_by_every(model, optimizer, micro_batches, every)
    sizes = [len(group) for group in _groups(micro_batches, every)]
    return [loss * every / size for loss, size in zip(losses, sizes, strict=True)]


def tutorial_loop(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Means over `every`, a step where the index says so, clearing after it: three conditions nobody mentions."""
    losses, total = [], 0.0
    for index, (inputs, targets) in enumerate(micro_batches):
        loss = _loss(model, inputs, targets, "mean") / every
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
    for group in _groups(micro_batches, every):
        rows = [len(targets) for _, targets in group]
        losses.append(_weighted(model, optimizer, group, [n / sum(rows) for n in rows]))
    return losses


def padding_counts(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Padded tokens have no loss, and are counted all the same."""
    losses = []
    for group in _groups(micro_batches, every):
        count = sum(targets.numel() for _, targets in group)
        losses.append(_weighted(model, optimizer, group, [1 / count] * len(group), "sum"))
    return losses


def mean_times_count(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Right weights on means; the mean over no tokens is nan, and its weight 0 does not help."""
    losses = []
    for group in _groups(micro_batches, every):
        shares = [_tokens([each]) / _tokens(group) for each in group]
        losses.append(_weighted(model, optimizer, group, shares))
    return losses


def adds_means(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Gradients add up, so adding up seems to be all: the step is `every` times too long."""
    groups = _groups(micro_batches, every)
    return [_weighted(model, optimizer, group, [1.0] * len(group)) for group in groups]


def adds_means_and_reports_their_mean(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same step; the losses returned are divided."""
    losses = adds_means(model, optimizer, micro_batches, every)
    sizes = [len(group) for group in _groups(micro_batches, every)]
    return [loss / size for loss, size in zip(losses, sizes, strict=True)]


def drops_the_last_group(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Steps where the index says so, and the list may end before."""
    whole = [group for group in _groups(micro_batches, every) if len(group) == every]
    return [_weighted(model, optimizer, group, [1 / _tokens(group)] * every, "sum") for group in whole]


def clears_in_the_loop(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """zero_grad before each backward: only the last micro-batch of a group is left."""
    losses = []
    for group in _groups(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            optimizer.zero_grad()
            loss = _loss(model, inputs, targets) / _tokens(group)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def never_clears(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Each step carries the gradients of all steps before it."""
    losses = []
    for group in _groups(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            loss = _loss(model, inputs, targets) / _tokens(group)
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
    for group in _groups(micro_batches, every):
        losses += never_clears(model, optimizer, group, every)
        optimizer.zero_grad()
    return losses


def steps_each_time(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """A step for each micro-batch, on its share of the group's loss."""
    losses = []
    for group in _groups(micro_batches, every):
        total = 0.0
        for inputs, targets in group:
            optimizer.zero_grad()
            loss = _loss(model, inputs, targets) / _tokens(group)
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
    for group in _groups(micro_batches, every):
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            loss = _loss(model, inputs, targets) / _tokens(group)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


def steps_once_more(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """A step after the loop for what may be left, also where nothing is: gradients are None then, and nothing moves."""
    losses = []
    for group in _groups(micro_batches, every):
        losses.append(_weighted(model, optimizer, group, [1 / _tokens(group)] * len(group), "sum"))
    optimizer.zero_grad()
    optimizer.step()
    return losses


def steps_once_more_on_zeros(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same where clearing leaves zeros: momentum moves the parameters once more."""
    losses = []
    for group in _groups(micro_batches, every):
        losses.append(_weighted(model, optimizer, group, [1 / _tokens(group)] * len(group), "sum"))
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    return losses


def concatenates(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The big batch itself: right where sequences have one length, and as large."""
    losses = []
    for group in _groups(micro_batches, every):
        inputs, targets = (torch.cat(parts) for parts in zip(*group, strict=True))
        losses.append(_weighted(model, optimizer, [(inputs, targets)], [1.0]))
    return losses


def concatenates_tokens(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The same for sequences of any length: all tokens of the group in one row."""
    losses = []
    for group in _groups(micro_batches, every):
        inputs = torch.cat([inputs.flatten(0, 1) for inputs, _ in group])[None]
        targets = torch.cat([targets.flatten() for _, targets in group])[None]
        losses.append(_weighted(model, optimizer, [(inputs, targets)], [1.0]))
    return losses


def one_backward_for_all(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """One call per micro-batch, but all graphs wait for one backward at the end of the group."""
    losses = []
    for group in _groups(micro_batches, every):
        optimizer.zero_grad()
        loss = torch.stack([_loss(model, inputs, targets) for inputs, targets in group]).sum() / _tokens(group)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def reports_the_last_loss(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The right step; the loss is what the variable held last, one micro-batch's share."""
    losses = []
    for group in _groups(micro_batches, every):
        optimizer.zero_grad()
        for inputs, targets in group:
            loss = _loss(model, inputs, targets) / _tokens(group)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


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
    Misconception(
        name="last_group_dropped",
        witnesses=(drops_the_last_group,),
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
        name="concatenates",
        witnesses=(concatenates, concatenates_tokens),
        hint="The numbers are those of the big batch because you built it: its activations are in memory all "
        "at once, which is what accumulation is there to avoid. Run the model on one micro-batch at a time.",
    ),
    Misconception(
        name="one_backward_at_the_end",
        witnesses=(one_backward_for_all,),
        hint="You call the model on one micro-batch at a time, but backward only once for the summed loss. "
        "Until then every micro-batch's graph stays alive, and memory is that of the big batch. Call backward "
        "right after each forward.",
    ),
    Misconception(
        name="loss_of_the_last_micro_batch",
        witnesses=(reports_the_last_loss,),
        hint="The step is right. The loss that you return is what your variable held at the end, the share of the last "
        "micro-batch. Add up the shares of the group.",
    ),
)
