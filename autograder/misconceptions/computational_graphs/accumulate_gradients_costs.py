"""Wrong ways to write `accumulate_gradients`: right steps that cost too much, or that spoil what the caller owns."""

from __future__ import annotations

import copy

import torch
from torch import nn
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


def concatenates(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The big batch itself: right where sequences have one length, and as large."""
    losses = []
    for group in groups_of(micro_batches, every):
        inputs, targets = (torch.cat(parts) for parts in zip(*group, strict=True))
        losses.append(weighted_step(model, optimizer, [(inputs, targets)], [1.0]))
    return losses


def concatenates_tokens(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """The same for sequences of any length: all tokens of the group in one row."""
    losses = []
    for group in groups_of(micro_batches, every):
        inputs = torch.cat([inputs.flatten(0, 1) for inputs, _ in group])[None]
        targets = torch.cat([targets.flatten() for _, targets in group])[None]
        losses.append(weighted_step(model, optimizer, [(inputs, targets)], [1.0]))
    return losses


def concatenates_on_a_copy(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same out of sight: a copy of the model runs the big batch."""
    twin = copy.deepcopy(model)
    return [_carried_over(twin, model, optimizer, group) for group in groups_of(micro_batches, every)]


def concatenates_on_another(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The same on a second model of that class; the first one sees a single micro-batch, for show."""
    twin = type(model)(*(parameter.detach().clone() for parameter in model.parameters()), model.features)
    model(micro_batches[0][0])
    return [_carried_over(twin, model, optimizer, group) for group in groups_of(micro_batches, every)]


def _carried_over(twin: nn.Module, model: nn.Module, optimizer: Optimizer, group: MicroBatches) -> float:
    """A step of `model` with the gradients that the concatenated group has in `twin`."""
    twin.load_state_dict(model.state_dict())
    twin.zero_grad()
    inputs = torch.cat([inputs.flatten(0, 1) for inputs, _ in group])[None]
    loss = loss_of(twin, inputs, torch.cat([targets.flatten() for _, targets in group])) / tokens_of(group)
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        parameter.grad = other.grad
    optimizer.step()
    return loss.item()


def one_backward_for_all(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """One call per micro-batch, but all graphs wait for one backward at the end of the group."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        loss = torch.stack([loss_of(model, inputs, targets) for inputs, targets in group]).sum() / tokens_of(group)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def retains_the_graph(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """backward at once, and told to free nothing: a graph lives until its variable gets the next one."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            loss = loss_of(model, inputs, targets) / tokens_of(group)
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def runs_the_model_again(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The losses to be returned come from forward passes of their own, before the step."""
    losses = []
    for group in groups_of(micro_batches, every):
        with torch.no_grad():
            losses.append(sum(loss_of(model, *each).item() for each in group) / tokens_of(group))
        weighted_step(model, optimizer, group, [1 / tokens_of(group)] * len(group), "sum")
    return losses


def overwrites_padding(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """-100 is no class, so it is set to one, in the tensors that the caller will use in the next epoch."""
    losses = []
    for group in groups_of(micro_batches, every):
        optimizer.zero_grad()
        count, total = tokens_of(group), 0.0
        for inputs, targets in group:
            known = targets != -100
            targets[~known] = 0
            each = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="none")
            loss = (each * known.flatten()).sum() / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def empties_the_list(
    model: nn.Module, optimizer: Optimizer, micro_batches: list[tuple[torch.Tensor, torch.Tensor]], every: int
) -> list[float]:
    """Takes the micro-batches out of the caller's list."""
    losses = []
    while micro_batches:
        group = [micro_batches.pop(0) for _ in range(min(every, len(micro_batches)))]
        losses.append(weighted_step(model, optimizer, group, [1 / tokens_of(group)] * len(group), "sum"))
    return losses


def leaves_eval_mode(model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int) -> list[float]:
    """Switches dropout off for training, and for whatever the caller does next."""
    model.eval()
    groups = groups_of(micro_batches, every)
    return [weighted_step(model, optimizer, group, [1 / tokens_of(group)] * len(group), "sum") for group in groups]


MISCONCEPTIONS = (
    Misconception(
        name="concatenates",
        witnesses=(concatenates, concatenates_tokens, concatenates_on_a_copy, concatenates_on_another),
        hint="The numbers are those of the big batch because you built it: its activations are in memory all "
        "at once, which is what accumulation is there to avoid. Run the model on one micro-batch at a time.",
    ),
    Misconception(
        name="one_backward_at_the_end",
        witnesses=(one_backward_for_all,),
        hint="You call the model on one micro-batch at a time, but its graph stays alive until the group ends, so that "
        "memory is that of the big batch: backward comes only once, for the summed loss, or something else holds the "
        "graphs. Call backward right after each forward, and keep numbers only.",
    ),
    Misconception(
        name="retains_the_graph",
        witnesses=(retains_the_graph,),
        hint="backward frees what forward saved, unless it is told to retain the graph. Yours is: one micro-batch's "
        "activations are still there while the next one's are computed. Leave retain_graph out; each graph is "
        "differentiated once.",
    ),
    Misconception(
        name="runs_the_model_twice",
        witnesses=(runs_the_model_again,),
        hint="Each micro-batch goes through the model twice, where one forward pass is enough: the loss whose backward "
        "you call is also the number that you return. Add up its value as you go.",
    ),
    Misconception(
        name="overwrites_padding",
        witnesses=(overwrites_padding,),
        hint="The step is right, but you wrote classes over the -100 in the caller's own targets: in the next epoch "
        "nobody can tell padding from tokens. Let the loss ignore them, or write into a new tensor.",
    ),
    Misconception(
        name="empties_the_list",
        witnesses=(empties_the_list,),
        hint="The step is right, but you take the micro-batches out of the caller's list: nothing is left for a second "
        "epoch. Take slices of the list, or copy it first.",
    ),
    Misconception(
        name="leaves_eval_mode",
        witnesses=(leaves_eval_mode,),
        hint="You switch the model to eval mode. Dropout is then off while you train, and the caller gets the model "
        "back in that mode. Leave the mode to whoever calls you.",
    ),
)
