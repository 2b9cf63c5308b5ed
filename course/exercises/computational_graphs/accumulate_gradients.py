"""`accumulate_gradients(model, optimizer, micro_batches, every)`: a big batch's step in the memory of a small one.

The optimizer is SGD with momentum: Adam would hide a gradient of the wrong length, because it divides by it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.meter import KeptBytes, counted

FEATURES, CLASSES = 3, 4
PADDED = -100


class TokenModel(nn.Module):
    """One linear layer on every token, which remembers how much of it is alive.

    Each call saves a copy of its input for backward, so the copies alive are the micro-batches whose graphs are.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.alive = KeptBytes()
        self.most_alive = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (n, T, F) to logits (n, T, C)."""
        copy = inputs.clone()
        self.alive.watch(copy)
        self.most_alive = max(self.most_alive, self.alive.bytes_alive())
        return nn.functional.linear(copy, self.weight, self.bias)


def cases(rng: torch.Generator) -> list[Case]:
    """Each case takes away one thing that a careless loop relies on: equal sizes, full groups, no leftovers."""

    def case(name: str, every: int, shapes: list[tuple[int, int]], padding: list[int], stale: float = 0.0) -> Case:
        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=rng)

        targets = [torch.randint(CLASSES, shape, generator=rng) for shape in shapes]
        for rows, tokens in zip(targets, padding, strict=True):
            rows.view(-1)[rows.numel() - tokens :] = PADDED
        inputs: Any = {
            "inputs": [draw(*shape, FEATURES) for shape in shapes],
            "targets": targets,
            "every": every,
            "weight": draw(CLASSES, FEATURES),
            "bias": draw(CLASSES),
            "stale": stale * draw(CLASSES),
        }
        return Case(name=name, inputs=inputs)

    return [
        case("equal micro-batches", 2, [(2, 5)] * 4, [0, 0, 0, 0]),
        case("ragged micro-batches", 2, [(3, 5), (1, 4), (1, 5), (4, 3)], [0, 0, 0, 0]),
        case("padded tokens", 2, [(2, 5)] * 4, [0, 7, 3, 8]),
        case("last group smaller", 3, [(2, 5)] * 5, [0, 0, 0, 0, 0]),
        case("gradients left from before", 2, [(2, 5)] * 2, [0, 0], stale=1.0),
        case("a micro-batch of padding only", 3, [(2, 5)] * 3, [0, 10, 4]),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call on a fresh model and optimizer: parameters and losses; calls, steps and activations alive."""
    model = TokenModel(inputs["weight"], inputs["bias"])
    if bool(inputs["stale"].any()):
        model.bias.grad = inputs["stale"].clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    steps = counted(lambda *_: None)
    optimizer.register_step_post_hook(steps)
    calls = counted(model.forward)
    model.forward = calls  # type: ignore[method-assign]
    micro_batches = list(zip(inputs["inputs"], inputs["targets"], strict=True))
    losses = answer(model, optimizer, micro_batches, inputs["every"])
    token = FEATURES * inputs["weight"].element_size()
    return observe(
        {
            "weight": model.weight,
            "bias": model.bias,
            "losses": [float(loss) for loss in losses],
        },
        {
            "optimizer_steps": steps.calls,
            "tokens_in_one_call": max((math.prod(shape[:-1]) for shape in calls.shapes), default=0),
            "tokens_alive": model.most_alive // token,
        },
    )


def _one_step_per_group(inputs: Inputs, got: Values, expected: Values) -> str | None:
    steps, groups = got["optimizer_steps"], -(-len(inputs["inputs"]) // inputs["every"])
    return None if steps == groups else f"{steps} optimizer steps for {groups} groups"


def _one_micro_batch(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Neither in one call nor in several graphs that wait for their backward."""
    largest = max(math.prod(x.shape[:-1]) for x in inputs["inputs"])
    called, alive = got["tokens_in_one_call"], got["tokens_alive"]
    if isinstance(called, int) and isinstance(alive, int) and 0 < called <= largest and 0 < alive <= largest:
        return None
    return f"{called} tokens in one call and {alive} alive at once, where a micro-batch has {largest}"


COSTS = ("equal micro-batches", "ragged micro-batches", "last group smaller")

EXERCISE = Exercise(
    id="computational_graphs.accumulate_gradients",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            name="equals_the_big_batch",
            points=2,
            keys=("weight", "bias"),
            cases=("equal micro-batches",),
            hint="The gradients of a group's micro-batches add up in `.grad`; what they add up to must be the "
            "gradient of the group's mean, and each group starts from none.",
        ),
        Property(
            name="ragged_micro_batches",
            points=2,
            keys=("weight", "bias"),
            cases=("ragged micro-batches",),
            hint="A mean over all tokens gives every token the same weight, also those of a large micro-batch.",
        ),
        Property(
            name="padded_tokens",
            points=2,
            keys=("weight", "bias"),
            cases=("padded tokens",),
            hint="Count what the loss counts: the targets of the whole group that are not -100.",
        ),
        Property(
            name="last_group_smaller",
            points=2,
            keys=("weight", "bias"),
            cases=("last group smaller",),
            hint="When the list ends in the middle of a group, that group is a batch of its own: with its own "
            "count and step.",
        ),
        Property(
            name="padding_only",
            points=1,
            keys=("weight", "bias", "losses"),
            cases=("a micro-batch of padding only",),
            hint="The mean over no tokens is nan, and nan times 0 is nan. Sum the losses, and divide by the "
            "group's count.",
        ),
        Property(
            name="nothing_left_from_before",
            points=1,
            keys=("weight", "bias"),
            cases=("gradients left from before",),
            needs=("equals_the_big_batch",),
            hint="`.grad` may hold anything when your function starts: clear it before the first backward.",
        ),
        Property(
            name="loss_of_each_step",
            points=1,
            keys=("losses",),
            cases=("equal micro-batches", "ragged micro-batches", "padded tokens", "last group smaller"),
            hint="One number for each step: the mean loss over the tokens of its whole group, before the step.",
        ),
        Property(
            name="one_step_per_group",
            points=1,
            evidence="ledger",
            holds=_one_step_per_group,
            cases=COSTS,
            needs=("equals_the_big_batch",),
            hint="optimizer.step() belongs after the last backward of a group, once.",
        ),
        Property(
            name="one_micro_batch_at_a_time",
            points=3,
            evidence="ledger",
            holds=_one_micro_batch,
            cases=COSTS,
            needs=("equals_the_big_batch",),
            hint="Run the model on one micro-batch and call backward at once: backward frees what forward "
            "saved, and only the gradients, which are as large as the parameters, stay.",
        ),
    ),
    hints=(
        "If every token of a group shall weigh the same, what must be known before the first backward of that group?",
        "Take the group as a slice of the list and count its tokens from the targets alone. Each micro-batch "
        "contributes the sum of its losses divided by that count.",
        "For each group: clear the gradients; count; for each micro-batch, backward of its summed loss over the count, "
        "adding up the number; then one step. F.cross_entropy has ignore_index and reduction.",
    ),
    seconds=5.0,
)
