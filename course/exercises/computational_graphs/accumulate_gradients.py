"""`accumulate_gradients(model, optimizer, micro_batches, every)`: a big batch's step in the memory of a small one.

What goes through the model, and what waits for its backward pass, is counted by an oracle that computes its features.
The optimizer is SGD with momentum: Adam would hide a gradient of the wrong length, because it divides by it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.exercises.computational_graphs.token_model import Asked, Known, TokenModel
from course.exercises.computational_graphs.token_oracle import TokenOracle
from course.performing.exercise import Answer, Ask, Case, Exercise, Inputs, Observation, Property, Values, observe

FEATURES, CLASSES = 3, 4
PADDED = -100
FULL_GROUPS = ("equal micro-batches", "ragged micro-batches")  # what costs are judged on
PARAMETERS = ("weight", "bias", "gain")


def cases(rng: torch.Generator) -> list[Case]:
    """Each case takes away one thing that a careless loop relies on: equal sizes, full groups, no leftovers.

    One slip shall not spoil every case: the ragged micro-batches are one group, so what leaks between groups does not
    show there; in the single micro-batch nothing is accumulated, and there are as many tokens as sequences.
    """

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
            "gain": draw(FEATURES),
            "stale": stale * draw(CLASSES),
        }
        matrices: dict[str, Any] = {"matrices": draw(2, FEATURES, FEATURES)}
        if name in FULL_GROUPS:
            return Case(name=name, inputs=inputs, hidden=matrices)
        return Case(name=name, inputs={**inputs, **matrices})

    return [
        case("a single micro-batch", 1, [(6, 1)], [0]),
        case("equal micro-batches", 2, [(2, 5)] * 4, [0, 0, 0, 0]),
        case("ragged micro-batches", 4, [(3, 5), (1, 4), (1, 5), (4, 3)], [0, 0, 0, 0]),
        case("padded tokens", 2, [(2, 5)] * 4, [0, 7, 3, 8]),
        case("last group smaller", 3, [(2, 5)] * 5, [0, 0, 0, 0, 0]),
        case("gradients left from before", 2, [(2, 5)] * 2, [0, 0], stale=1.0),
        case("a micro-batch of padding only", 3, [(2, 5)] * 3, [0, 10, 4]),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call on a fresh model and optimizer: parameters and losses, and what was changed besides."""
    features = Known(inputs["matrices"]) if "matrices" in inputs else Asked(ask)
    model = TokenModel(inputs["weight"], inputs["bias"], inputs["gain"], features)
    if bool(inputs["stale"].any()):
        model.bias.grad = inputs["stale"].clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: _tell(ask))
    micro_batches = list(zip(inputs["inputs"], inputs["targets"], strict=True))
    losses = [float(loss) for loss in answer(model, optimizer, micro_batches, inputs["every"])]
    after = {"micro_batches": len(micro_batches), "training": model.training}
    values: dict[str, Any] = {name: getattr(model, name) for name in PARAMETERS}
    values.update(losses=losses, after=after)
    return observe(values)


def _tell(ask: Ask) -> None:
    """One more step of the optimizer."""
    ask("step", {})


def _one_step_per_group(inputs: Inputs, got: Values, expected: Values) -> str | None:
    steps, groups = got["optimizer_steps"], -(-len(inputs["inputs"]) // inputs["every"])
    return None if steps == groups else f"{steps} optimizer steps for {groups} groups"


def _one_micro_batch(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Neither in one call nor in several graphs that wait for their backward; nor past the model."""
    largest = max(targets.numel() for targets in inputs["targets"])
    at_least = sum(int((targets != PADDED).sum()) for targets in inputs["targets"])
    called, alive, through = (got[key] for key in ("tokens_in_one_call", "tokens_alive", "tokens_through_the_model"))
    if not (isinstance(called, int) and isinstance(alive, int) and isinstance(through, int)):
        return "token counts that cannot be read"
    if through < at_least:
        return f"{through} tokens went through the model, where {at_least} have a target"
    if 0 < called <= largest and 0 < alive <= largest:
        return None
    return f"{called} tokens in one call and {alive} alive at once, where a micro-batch has {largest}"


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Padding may be left out before the model; nothing needs to go through it twice."""
    through, all_tokens = got["tokens_through_the_model"], sum(targets.numel() for targets in inputs["targets"])
    if isinstance(through, int) and 0 < through <= all_tokens:
        return None
    return f"{through} tokens went through the model, where the micro-batches have {all_tokens}"


EXERCISE = Exercise(
    id="computational_graphs.accumulate_gradients",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "a_single_micro_batch",
            "A group of one micro-batch is an ordinary step: the mean cross-entropy over its tokens, backward, "
            "step. F.cross_entropy wants one row for each token, or the classes in dimension 1.",
            keys=PARAMETERS,
            cases=("a single micro-batch",),
        ),
        Property(
            "equals_the_big_batch",
            "The gradients of a group's micro-batches add up in `.grad`; what they add up to must be the "
            "gradient of the group's mean, and each group starts from none.",
            keys=PARAMETERS,
            cases=("equal micro-batches",),
        ),
        Property(
            "ragged_micro_batches",
            "A mean over all tokens gives every token the same weight, also those of a large micro-batch.",
            points=2,
            keys=PARAMETERS,
            cases=("ragged micro-batches",),
        ),
        Property(
            "padded_tokens",
            "Count what the loss counts: the targets of the whole group that are not -100.",
            points=2,
            keys=PARAMETERS,
            cases=("padded tokens",),
        ),
        Property(
            "last_group_smaller",
            "When the list ends in the middle of a group, that group is a batch of its own: with its own "
            "count and step.",
            keys=PARAMETERS,
            cases=("last group smaller",),
        ),
        Property(
            "loss_of_each_step",
            "One number for each step: the mean loss over the tokens of its whole group, before the step.",
            keys=("losses",),
            cases=("equal micro-batches", "ragged micro-batches", "padded tokens", "last group smaller"),
        ),
        Property(
            "padding_only",
            "The mean over no tokens is nan, and nan times 0 is nan. Sum the losses, and divide by the group's count.",
            cases=("a micro-batch of padding only",),
            needs=("loss_of_each_step",),
        ),
        Property(
            "nothing_left_from_before",
            "`.grad` may hold anything when your function starts: clear it before the first backward.",
            keys=PARAMETERS,
            cases=("gradients left from before",),
            needs=("equals_the_big_batch",),
        ),
        Property(
            "one_step_per_group",
            "optimizer.step() belongs after the last backward of a group, once.",
            evidence="ledger",
            holds=_one_step_per_group,
            cases=(*FULL_GROUPS, "last group smaller"),
            needs=("a_single_micro_batch",),
        ),
        Property(
            "one_micro_batch_at_a_time",
            "Run the model on one micro-batch and call backward at once: backward frees what forward "
            "saved, and only the gradients, which are as large as the parameters, stay.",
            points=3,
            evidence="ledger",
            holds=_one_micro_batch,
            cases=FULL_GROUPS,
            needs=("a_single_micro_batch",),
        ),
        Property(
            "each_micro_batch_once",
            "One forward pass for each micro-batch gives both its share of the loss and, by backward, its share "
            "of the gradient.",
            evidence="ledger",
            holds=_once,
            cases=FULL_GROUPS,
            needs=("a_single_micro_batch",),
        ),
        Property(
            "arguments_unchanged",
            "The caller still needs what was handed in: the inputs and targets, the list of them, and the mode of "
            "the model (train or eval). Only the parameters, their gradients and the optimizer may change.",
            keys=("after/*",),
            roundings=0,
            needs=("a_single_micro_batch",),
        ),
    ),
    hints=(
        "If every token of a group shall weigh the same, what must be known before the first backward of that group?",
        "Take the group as a slice of the list and count its tokens from the targets alone. Each micro-batch "
        "contributes the sum of its losses divided by that count.",
        "For each group: clear the gradients; count; for each micro-batch, backward of its summed loss over the count, "
        "adding up the number; then one step. F.cross_entropy has ignore_index and reduction.",
    ),
    keeps=("inputs", "targets"),
    oracle=TokenOracle,
    seconds=5.0,
)
