"""`accumulate(comm, model, loss_of, micro_batches)`: the gradient of a batch that no rank can hold, with one reduction.

The loss notes which rows go through it, and whether what an earlier call saved for its backward pass is still there.
What lies around the gradients (modes, flags, hooks, the list itself) is looked at afterwards.
"""

from __future__ import annotations

import operator
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from course.exercises.ddp.models import TRAINED, built, dtypes, gradients, nbytes, part
from course.exercises.ddp.traffic import at_most
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

ONE, ALONE, EQUAL, UNEQUAL = "one micro-batch", "one rank", "equal micro-batches", "unequal micro-batches"
NUMBERS, NONE, FROZEN = "unequal numbers of micro-batches", "ranks without micro-batches", "a frozen parameter"
LENGTHS = "rows of unequal lengths"
MANY = "6 micro-batches on each rank, many small parameters"
MANY_ROWS = [[1, 2, 1, 3, 1, 2], [2, 1, 1, 1, 2, 1], [1, 1, 3, 1, 1, 1], [1, 1, 1, 1, 2, 3]]
HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_post_accumulate_grad_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
)
NUMBERS_IN_ALL = 150  # parameters of the shape () in one model
SLACK = 1_000  # bytes for what the ranks must agree on


def cases(rng: torch.Generator) -> list[Case]:
    """Rows of each micro-batch of each rank: equal, unequal, more on one rank than on another, none at all.

    Rows are vectors, and once sequences of vectors, whose lengths differ from micro-batch to micro-batch. Every row's
    gradient is positive, because targets are negative and all else is not, so that no sum cancels. One case has more
    rows than a byte can count. Where bytes are judged all is float64, so that no answer sends wider numbers than it
    was given.
    """

    def case(
        name: str,
        rows: list[list[int]],
        shape: tuple[int, int] = (4, 3),
        kind: str = "parameter",
        more: tuple[Any, ...] = (),
        lengths: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Case:
        def draw(*shape: int) -> Tensor:
            return (torch.rand(shape, generator=rng, dtype=torch.float64) + 0.1).to(dtype)

        width = shape[0] + NUMBERS_IN_ALL * (kind == "numbers")

        def batches(of_rank: list[int]) -> list[Any]:
            found: list[Any] = []
            for at, count in enumerate(of_rank):
                row = (count, lengths[at]) if lengths else (count,)
                found.append([draw(*row, width), -3 * draw(*row, shape[1])])
            return found

        parts = [part("body.weight"), part("body.bias"), part("scale", kind), *more]
        scale = draw(NUMBERS_IN_ALL) / NUMBERS_IN_ALL if kind == "numbers" else draw()
        inputs: Any = {
            "parts": parts,
            "values": [[draw(*shape) / shape[0], draw(shape[1]), scale, *(draw(20, 20) for _ in more)]] * len(rows),
            "micro_batches": [batches(of_rank) for of_rank in rows],
        }
        return Case(name=name, inputs=inputs)

    return [
        case(ONE, [[6]]),
        case(ALONE, [[4, 1, 3]]),
        case(EQUAL, [[3, 3], [3, 3]]),
        case(UNEQUAL, [[5, 1], [2, 2], [1, 7]]),
        case(LENGTHS, [[3, 1], [2, 2]], lengths=(2, 5)),
        case(NUMBERS, [[4, 1, 2], [250], [2, 2]]),
        case(NONE, [[2, 3], [], [4], []], more=(part("unused", "frozen"),), dtype=torch.float64),
        case(FROZEN, [[2, 1], [3, 4]], kind="frozen"),
        case(MANY, MANY_ROWS, kind="numbers", more=(part("unused", "frozen"),), dtype=torch.float64),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank the same model, and its own micro-batches."""
    pairs = zip(inputs["values"], inputs["micro_batches"], strict=True)
    return [{"parts": inputs["parts"], "values": values, "micro_batches": each} for values, each in pairs]


class _Kept:
    """A tensor that a graph has saved for its backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # else tanh's output would keep tanh's node, which keeps its output


class MeanSquaredError:
    """Of scale * tanh(x W + b), over all numbers of the targets. Where scale is many numbers, x goes on with a factor
    for each, so that their gradients differ.

    rows     of each call
    waiting  how many tensors that earlier calls had saved were alive in a call, at most
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.waiting = 0
        self._kept: weakref.WeakSet[_Kept] = weakref.WeakSet()

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The loss of one batch."""
        inputs, targets = batch
        self.rows.append(len(inputs))
        self.waiting = max(self.waiting, len(self._kept))
        weight, bias = (model.get_parameter(name) for name in ("body.weight", "body.bias"))
        few, factors = inputs[..., : len(weight)], inputs[..., len(weight) :]
        scales: list[Tensor] = [each for name, each in model.named_parameters() if name.startswith("scale")]
        with saved_tensors_hooks(self._save, lambda kept: kept.tensor):
            scale = scales[0] if len(scales) == 1 else factors @ torch.stack(scales)[:, None]
            return (scale * (few @ weight + bias).tanh() - targets).square().mean()

    def _save(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor)
        self._kept.add(kept)
        return kept


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """The gradients afterwards, what went through the loss, and what must be as it was."""
    model, loss_of = built(inputs["parts"], inputs["values"]), MeanSquaredError()
    model.train(all(each["kind"] != "frozen" for each in inputs["parts"]))
    batches = [(each[0], each[1]) for each in inputs["micro_batches"]]
    given, before = list(batches), [each.detach().clone() for each in model.parameters()]
    before_dtypes = dtypes(model)
    answer(comm, model, loss_of, batches)
    return observe(
        {
            "grads": dict(gradients(inputs["parts"], model)),
            "calls": {"rows": list(loss_of.rows), "waiting": loss_of.waiting},
            "around": {
                "list": len(batches) == len(given) and all(map(operator.is_, batches, given)),
                "batches": [each.requires_grad or each.grad is not None for batch in given for each in batch],
                "model": [each.training for each in model.modules()],
                "parameters": list(map(torch.equal, model.parameters(), before)),
                "dtypes": dtypes(model) == before_dtypes,
                "trained": [each.requires_grad for each in model.parameters()],
                "hooks": sum(
                    len(getattr(each, name, None) or ())
                    for each in (*model.modules(), *model.parameters())
                    for name in HOOKS
                ),
            },
        }
    )


def _one_at_a_time(inputs: Inputs, got: Values, expected: Values) -> str | None:
    for rank, batches in enumerate(inputs["micro_batches"]):
        largest, waiting = max(len(each[0]) for each in batches), got[f"{rank}/calls/waiting"]
        most = max(_rows(got, rank))
        if most > largest:
            return f"{most} rows in one call on rank {rank}, where its largest micro-batch has {largest}"
        if waiting != 0:
            return f"on rank {rank} an earlier micro-batch still waits for its backward pass when the next one begins"
    return None


def _each_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    for rank, batches in enumerate(inputs["micro_batches"]):
        through, given = sum(_rows(got, rank)), sum(len(each[0]) for each in batches)
        if through != given:
            return f"{through} rows went through the loss on rank {rank}, which has {given}"
        if len(_rows(got, rank)) != len(batches):
            return f"rank {rank} called loss_of {len(_rows(got, rank))} times for {len(batches)} micro-batches"
    return None


def _rows(got: Values, rank: int) -> list[int]:
    found = got[f"{rank}/calls/rows"]
    assert isinstance(found, Tensor)
    return [int(each) for each in found]


EXERCISE = Exercise(
    id="ddp.accumulate",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "reduce", "broadcast", "all_gather", "gather"),
    properties=(
        Property(
            "one_rank",
            "On one rank the gradients of the micro-batches add up in `.grad` to that of the mean over all rows: a "
            "micro-batch with more of them counts for more.",
            keys=("*/grads/*",),
            cases=(ONE, ALONE),
        ),
        Property(
            "equal_micro_batches",
            "Where all micro-batches are equal, the gradient is the mean of all of them, of all ranks.",
            keys=("*/grads/*",),
            cases=(ONE, EQUAL),
        ),
        Property(
            "unequal_micro_batches",
            "Every row of every micro-batch of every rank has the same say. The mean that loss_of returns has divided "
            "by the rows of one micro-batch; what it must be divided by is the number of all. A longer row is one row.",
            points=2,
            keys=("*/grads/*",),
            cases=(EQUAL, UNEQUAL, LENGTHS),
        ),
        Property(
            "unequal_numbers",
            "How many micro-batches a rank has is its own business, and so no call may depend on it: reduce when all "
            "of them are done.",
            keys=("*/grads/*",),
            cases=(NUMBERS,),
        ),
        Property(
            "without_micro_batches",
            "A rank without micro-batches has no gradient of its own. It takes part in all calls with zeros, and ends "
            "with the gradient of the others; a frozen parameter has none here, either.",
            keys=("*/grads/*",),
            cases=(NONE,),
        ),
        Property(
            "frozen_parameters",
            "A parameter that requires no gradient has none afterwards.",
            keys=("*/grads/*",),
            cases=(FROZEN,),
        ),
        Property(
            "one_at_a_time",
            "Call loss_of with one micro-batch, and backward at once, which frees what forward has saved. So memory "
            "is that of one micro-batch.",
            points=2,
            holds=_one_at_a_time,
            cases=(MANY, UNEQUAL),
            needs=("equal_micro_batches",),
        ),
        Property(
            "each_once",
            "One call of loss_of for each micro-batch is enough.",
            holds=_each_once,
            cases=(MANY, UNEQUAL),
            needs=("equal_micro_batches",),
        ),
        Property(
            "one_reduction",
            "The micro-batches of a rank add up in its own memory, where adding costs no message. Reduce once, after "
            "the last of them.",
            points=2,
            evidence="ledger",
            holds=at_most(lambda inputs: 2 * nbytes(*TRAINED)(inputs) + SLACK),
            beside=("*/grads/*", "*/around/dtypes"),
            shows="bytes_sent",
            cases=(MANY,),
            needs=("equal_micro_batches",),
        ),
        Property(
            "nothing_else",
            "Besides the gradients something is not as it was: the list, the model's mode or parameters, what requires "
            "a gradient, or a hook is left. The caller goes on with all of it.",
            keys=("*/around/*",),
            cases=(UNEQUAL, FROZEN),
            needs=("equal_micro_batches",),
        ),
    ),
    hints=(
        "Backward adds to `.grad`. What must each micro-batch's loss be multiplied by, so that the sum over all "
        "micro-batches of all ranks is the mean over all rows?",
        "That factor needs the number of all rows, which no rank knows alone, but which can be told before the first "
        "backward.",
        "all_reduce the number of rows. For each micro-batch: its loss times its share of the rows, backward. Then "
        "all_reduce each `.grad`, or zeros where a rank has none.",
    ),
    keeps=("micro_batches",),
    promises={
        "in float32 or float64": ("one_rank", NONE, MANY),
        "some of them frozen": ("frozen_parameters", NONE),
        "on any number of ranks": ("one_rank", "equal_micro_batches", NONE),
        "the mean loss over the rows of one batch": ("one_rank",),
        "their numbers of rows may differ, and the lengths of rows": ("unequal_micro_batches", LENGTHS),
        "The list may be of another length on another rank, or empty, but not on all": (
            "unequal_numbers",
            "without_micro_batches",
        ),
        "the gradient of the mean loss over all rows of all micro-batches of all ranks": (
            "equal_micro_batches",
            "unequal_micro_batches",
            "one_rank",
        ),
        "on ranks without micro-batches, too": ("without_micro_batches",),
        "in frozen parameters it stays None": ("frozen_parameters", NONE),
        "one call of loss_of for each micro-batch": ("each_once",),
        "backward has freed what one call saved before the next one": ("one_at_a_time",),
        "at most two numbers for each element of a gradient, and 1,000 bytes more": ("one_reduction",),
        "Nothing but `.grad` is changed, and no hook is left": ("nothing_else", "arguments_unchanged"),
    },
    seconds=20.0,
)
