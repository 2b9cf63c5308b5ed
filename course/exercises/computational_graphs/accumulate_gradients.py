"""`accumulate_gradients(model, optimizer, micro_batches, every)`: a big batch's step in the memory of a small one.

What goes through the model, and what waits for its backward pass, is counted by an oracle that computes its features.
That a graph is gone is told by the process of the answer, which may say so of graphs that it keeps. So the memory of a
group is measured from outside as well, in grading, where its micro-batches have thousands of rows. There the oracle
works out for itself what a step on all of them gives.

The optimizer is SGD with momentum: Adam would hide a gradient of the wrong length, because it divides by it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.computational_graphs.token_model import (
    PARAMETERS,
    RATE,
    Asked,
    Known,
    Steps,
    TokenModel,
    long_ones,
)
from course.exercises.computational_graphs.token_oracle import TokenOracle
from course.performing.blocks import over_peak
from course.performing.draws import integer, normal
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    in_form,
    observe,
)
from course.performing.forms import cut, in_dtype, put, strided
from course.performing.oracle import is_here

FEATURES, CLASSES = 3, 4
HIDDEN = (
    32  # so 288 numbers are hidden, and the 40 tokens that are due tell 240: with others in their place none is known
)
PADDED = -100
FULL_GROUPS = ("equal micro-batches", "ragged micro-batches")  # what costs are judged on
PADDED_TOKENS, IN_EVAL, LEFT = "padded tokens", "last group smaller", "gradients left from before"
LONG = "long micro-batches"  # in grading
PEAK = 14 * 2**20  # bytes in grading: right answers take 7 to 12 MiB, a whole group 19 MiB and more
SPARE = 4  # micro-batches alive at once that memory does not tell from one


def cases(rng: torch.Generator) -> list[Case]:
    """Each case takes away one thing that a careless loop relies on: equal sizes, full groups, no leftovers.

    A token depends on its neighbours, those of padding too, and once there is a class more. One slip shall not spoil
    every case: the ragged micro-batches are one group, so what leaks between groups does not show there; in the single
    micro-batch nothing is accumulated, and there are as many tokens as sequences. Class 0 is among the targets of every
    micro-batch, and padding lies at the end or, in every second one, at the beginning; once at the end of all rows.
    """

    def case(name: str, every: int, shapes: list[tuple[int, int]], padding: list[int]) -> Case:
        def draw(*shape: int) -> Tensor:
            return normal(rng, *shape)

        classes = CLASSES + (name == IN_EVAL)
        targets = [torch.randint(classes, shape, generator=rng) for shape in shapes]
        for index, (rows, tokens) in enumerate(zip(targets, padding, strict=True)):
            at = tokens if index % 2 else 0
            rows.view(-1)[at : at + 1] = 0
            rows.view(-1)[:at] = PADDED
            rows.view(-1)[rows.numel() - tokens + at :] = PADDED
        if name == PADDED_TOKENS:
            targets[2][:, -1] = PADDED
        inputs: Any = {
            "inputs": [draw(*shape, FEATURES) for shape in shapes],
            "targets": targets,
            "every": every,
            "weight": draw(classes, FEATURES),
            "bias": draw(classes),
            "gain": draw(FEATURES),
            "training": name != IN_EVAL,
        }
        if name == LEFT:
            inputs.update(stale=draw(CLASSES), spare=draw(CLASSES))
        width = HIDDEN if name in FULL_GROUPS else FEATURES
        matrices: dict[str, Any] = {"matrices": draw(3, width, FEATURES)}
        if name == LONG:
            inputs["seed"] = integer(rng, 0, 2**31)
        if name in (*FULL_GROUPS, LONG):
            return Case(name=name, inputs=inputs, hidden=matrices)
        return Case(name=name, inputs={**inputs, **matrices})

    return [
        case("a single micro-batch", 1, [(6, 1)], [0]),
        case("equal micro-batches", 2, [(2, 5)] * 4, [0, 0, 0, 0]),
        case("ragged micro-batches", 4, [(3, 5), (1, 4), (1, 5), (4, 3)], [0, 0, 0, 0]),
        case(PADDED_TOKENS, 2, [(2, 5)] * 4, [0, 7, 3, 8]),
        case(IN_EVAL, 3, [(2, 5)] * 5, [0, 0, 0, 0, 0]),
        case(LEFT, 2, [(2, 5)] * 2, [0, 0]),
        case("a micro-batch of padding only", 2, [(2, 5)] * 4, [10, 3, 0, 10]),
        case(LONG, 16, [(1, 4)] * 16, [0] * 16),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call on a fresh model and optimizer: parameters and losses, and what was changed besides."""
    outside = "seed" in inputs and not is_here(ask)
    matrices = ask("matrices", {}) if outside else inputs.get("matrices")
    features = Asked(ask) if matrices is None else Known(cast(Tensor, matrices))
    model = TokenModel(inputs["weight"], inputs["bias"], inputs["gain"], features, inputs.get("spare"))
    if "stale" in inputs:
        model.leave(inputs["stale"])
    model.train(inputs["training"])
    groups = [{"params": [each]} for each in model.parameters()]
    optimizer = torch.optim.SGD(groups, lr=RATE, momentum=0.9)
    steps = Steps(model, ask)
    optimizer.register_step_post_hook(steps)
    given = [*(long_ones(inputs) if outside else zip(inputs["inputs"], inputs["targets"], strict=True))]
    micro_batches = [*given]
    losses = answer(model, optimizer, micro_batches, inputs["every"])
    values: dict[str, Any] = steps.parameters(-(-len(given) // inputs["every"]))
    if "seed" in inputs:
        ask("result", {name: values[name][1] for name in PARAMETERS})
    values.update(losses=losses, floats=_floats(losses))
    same = [mine is theirs for mine, theirs in zip(given, micro_batches, strict=False)]
    values["after"] = {
        "micro_batches": [len(micro_batches), *same],
        "training": model.training,
        "modes": sorted(model.modes),
    }
    return observe(values)


def _floats(losses: object) -> bool:
    """Whether a list of floats was returned; a tuple of them is as good."""
    return isinstance(losses, (list, tuple)) and all(isinstance(each, float) for each in losses)


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


def _memory_of_one(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """In bytes where a process was measured. What that does not tell apart is one here, too."""
    if "peak_bytes" in got:
        if "tokens_alive" in got:
            return "not all rows of the long micro-batches: whoever uses those is told the matrices"
        sentence = "{peak:,} bytes at the highest, where {most:,} are enough for one micro-batch and the list of them"
        return over_peak(got["peak_bytes"], PEAK, sentence)
    allowed = SPARE * inputs["targets"][0].numel()
    called, alive = (got[key] for key in ("tokens_in_one_call", "tokens_alive"))
    if isinstance(called, int) and isinstance(alive, int) and 0 < called <= allowed and 0 < alive <= allowed:
        return None
    return f"{called} tokens in one call and {alive} alive at once, where {allowed} are more than enough"


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Padding may be left out before the model; nothing needs to go through it twice."""
    through, all_tokens = got["tokens_through_the_model"], sum(targets.numel() for targets in inputs["targets"])
    if isinstance(through, int) and 0 < through <= all_tokens:
        return None
    return f"{through} tokens went through the model, where the micro-batches have {all_tokens}"


def _groups_of_one(case: Case) -> Case:
    """One of them is padded; no gradient is left from before, so frozen and unused parameters have none at all."""
    rest: dict[str, Any] = {name: value for name, value in case.inputs.items() if name != "stale"}
    first, second = rest["targets"]
    padded = torch.cat([second[:1], torch.full_like(second[1:], PADDED)])
    return in_form(
        dataclasses.replace(case, inputs={**rest, "targets": [first, padded]}),
        strided("inputs", "targets"),
        put("", every=1),
    )


def _few(case: Case) -> Case:
    """The first of two micro-batches has one row and one token, whose target is the least likely one.

    The loss of a likely one is a small difference of large numbers, of which float32 keeps few digits.
    """
    rows: dict[str, Any] = {"inputs/0": (0, 1), "targets/0": (0, 1)}
    few = in_form(case, cut("", **rows), cut("", inputs=(1, 1), targets=(1, 1)), put("", every=5))
    given: Inputs = {**few.inputs}
    features = Known(given["matrices"])(given["inputs"][0], given["gain"])
    logits = features @ given["weight"].T + given["bias"] + given["spare"]
    targets = [logits.argmin(-1), *given["targets"][1:]]
    return dataclasses.replace(few, inputs={**given, "targets": targets})


VIEWS = Form(name="groups of one, whose tensors are views", change=_groups_of_one, of=LEFT)
# Alone: another form would make the least likely target another one.
FEW = Form(name="one row, one token, and an `every` beyond the list", change=_few, of=LEFT, alone=True)

EXERCISE = Exercise(
    id="computational_graphs.accumulate_gradients",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "loss_of_a_single_micro_batch",
            "The mean cross-entropy over the tokens of the micro-batch, in a list of one number. F.cross_entropy wants "
            "one row for each token, or the classes in dimension 1.",
            keys=("losses",),
            cases=("a single micro-batch",),
        ),
        Property(
            "a_single_micro_batch",
            "A group of one micro-batch is an ordinary step: clear the gradients, backward of its loss, one step.",
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
            cases=(PADDED_TOKENS,),
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
            cases=("equal micro-batches", "ragged micro-batches", PADDED_TOKENS, "last group smaller"),
        ),
        Property(
            "losses_are_floats",
            "A loss is one Python float: loss.item(). A list of tensors keeps what hangs on them.",
            keys=("floats",),
            cases=("equal micro-batches",),
            needs=("loss_of_a_single_micro_batch",),
        ),
        Property(
            "padding_only",
            "The mean over no tokens is nan, and nan times 0 is nan. Sum the losses, and divide by the group's count.",
            keys=("losses", *PARAMETERS),
            cases=("a micro-batch of padding only",),
        ),
        Property(
            "nothing_left_from_before",
            "`.grad` may hold anything when your function starts, also that of a parameter which is frozen or unused, "
            "and gets no new one: clear all of them before the first backward. One that has none holds None.",
            keys=(*PARAMETERS, "frozen", "unused"),
            cases=(LEFT,),
        ),
        Property(
            "one_step_per_group",
            "optimizer.step() belongs after the last backward of a group, once.",
            evidence="ledger",
            holds=_one_step_per_group,
            cases=(
                "a single micro-batch",
                *FULL_GROUPS,
                "last group smaller",
                "a micro-batch of padding only",
                FEW.name,
            ),
            needs=("loss_of_a_single_micro_batch",),
        ),
        Property(
            "memory_of_one_micro_batch",
            "Nothing of a micro-batch may stay when the next one goes through the model: no graph, no logits, no loss "
            "that is still a tensor with a history.",
            points=2,
            evidence="ledger",
            holds=_memory_of_one,
            beside=("right_parameters",),
            cases=(LONG,),
            needs=("a_single_micro_batch",),
        ),
        Property(
            "one_micro_batch_at_a_time",
            "Run the model on one micro-batch and call backward at once: backward frees what forward "
            "saved, and only the gradients, which are as large as the parameters, stay.",
            evidence="ledger",
            holds=_one_micro_batch,
            cases=FULL_GROUPS,
            needs=("a_single_micro_batch", "memory_of_one_micro_batch"),
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
            "the model (train or eval), also while you use it. Only the parameters, their gradients and the optimizer "
            "may change.",
            keys=("after/*",),
            roundings=0,
            cases=("equal micro-batches", PADDED_TOKENS, "last group smaller"),
            needs=("a_single_micro_batch",),
        ),
        every_form(
            needs=("loss_of_a_single_micro_batch",),
            keys=("losses", *PARAMETERS, "frozen", "unused"),
            roundings=32,
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
    forms=(
        in_dtype(torch.float64, "inputs", "matrices", "weight", "bias", "gain", "stale", "spare", of=LEFT),
        put("an old gradient that is infinite", stale=torch.full((CLASSES,), math.inf), of=LEFT),
        VIEWS,
        FEW,
    ),
    promises={
        "(n, T, F) floating -> (n, T, C)": ("a_single_micro_batch", "last_group_smaller", "in float64"),
        "a token's logits may depend on others of its sequence": ("padded_tokens", "last_group_smaller"),
        "some may be frozen, or not used by the model": ("nothing_left_from_before", VIEWS.name),
        "n and T may differ from pair to pair": ("ragged_micro_batches", FEW.name),
        "a pair may be padding only": ("padding_only",),
        "at least 1": ("a single micro-batch", VIEWS.name),
        "the last group may be smaller": ("last_group_smaller", FEW.name),
        "the mean cross-entropy over all tokens of the group that are not padding": ("loss_of_each_step",),
        "One float per step": ("losses_are_floats", "one_step_per_group"),
        "one micro-batch at a time goes through the model": (
            "one_micro_batch_at_a_time",
            "memory_of_one_micro_batch",
        ),
        "goes through the model once": ("each_micro_batch_once",),
        "that lie in any of the parameters before the call": ("nothing_left_from_before",),
        "the list and its tensors, and the model's mode (train or eval), also during the call": (
            "arguments_unchanged",
        ),
    },
    oracle=TokenOracle,
    measured=(LONG,),
    first_uses=("torch.optim",),
)
