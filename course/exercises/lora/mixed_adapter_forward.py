"""`mixed_adapter_forward(x, ids, linear, adapters)`: one pass of a layer in which each row has an adapter of its own.

Costs are those of torch's own operators: products by their shapes, numbers that are made in all, for products that
are written element by element, and the numbers in the largest tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.lora.adapted_models import modules_of
from course.meter import Run, metered
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import at_once, cut, in_dtype, put, strided
from course.performing.refusals import all_refused, refused
from course.tree import Tree

MIXED, UNUSED, NONE, SQUARE = "three adapters", "adapters that nobody uses", "rows without an adapter", "a square layer"
COST, REFUSALS, EMPTY = "what it costs", "ids of no adapter", "an empty batch in float64"
TENSORS = ("x", "weight", "bias", "adapters")
ROOM = 4  # times the numbers that products of own rows take element by element; right answers take up to 3 times


def cases(rng: torch.Generator) -> list[Case]:
    """Rows in no order, several with one adapter, adapters of different r; and a layer whose weight is large."""

    def case(name: str, ids: Sequence[int], rs: Sequence[int], sizes: tuple[int, int, int] = (3, 5, 4)) -> Case:
        time, n, m = sizes
        inputs: dict[str, Any] = {
            "x": normal(rng, len(ids), time, n),
            "ids": _shuffled(ids, rng),
            "weight": normal(rng, m, n),
            "bias": normal(rng, m),
            "adapters": [_adapter(rng, r, n, m) for r in rs],
        }
        return Case(name=name, inputs=inputs)

    square = case(SQUARE, (-1, 0, 0, 1, 1), (4, 1), (2, 4, 4))
    square.inputs["bias"] = None
    refusing = case(REFUSALS, (-1, 0, 1), (1, 2))
    refusing.inputs["refusals"] = True
    # Many adapters, and each r well above 1: to make all rows element by element takes 6 times the own ones.
    cost = case(COST, (-1, -1, -1, 0, 1, 1, 1, 3, 4, 5, 6, 7), (10, 5, 12, 9, 14, 11, 10, 9), (2, 40, 36))
    cost.inputs["cost"] = True
    return [
        case(MIXED, (-1, 0, 0, 1, 2, 2, 2), (1, 3, 2)),
        case(UNUSED, (1, 1, 3, 3, 3), (2, 1, 3, 1, 2)),
        case(NONE, (-1, -1, -1), (2, 3)),
        square,
        refusing,
        cost,
    ]


def _adapter(rng: torch.Generator, r: int, n: int, m: int) -> dict[str, Tree]:
    """No scale is near 1 or near another's."""
    return {"A": normal(rng, r, n), "B": normal(rng, m, r), "scale": 2 + r + float(torch.rand((), generator=rng)) / 4}


def _shuffled(ids: Sequence[int], rng: torch.Generator) -> Tensor:
    """In an order that sorting changes, and that sorting twice does not bring back; -1 is not the last."""
    given = torch.tensor(ids)
    if len(set(ids)) == 1:
        return given
    while True:
        found = given[torch.randperm(len(given), generator=rng)]
        order = found.argsort(stable=True)
        if found[-1] >= 0 and not torch.equal(order[order], torch.arange(len(ids))) and found[0] != found[-1]:
            return found


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, with a layer that holds the weight and the bias of the case."""
    weight, bias = inputs["weight"], inputs["bias"]
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    linear.train(bias is not None)  # either mode
    adapters = [(each["A"], each["B"], each["scale"]) for each in inputs["adapters"]]
    x, ids = inputs["x"], inputs["ids"]
    if not inputs.get("cost"):
        values: dict[str, Any] = {"y": answer(x, ids, linear, adapters)}
        if inputs.get("refusals"):
            call = partial(answer, x, linear=linear, adapters=adapters)
            unknown = {"an id of -2": -2, "an id of 2 where there are 2 adapters": 2, "an id of 9": 9}
            calls = {words: partial(call, _with(ids, it)) for words, it in unknown.items()}
            calls["ids of 0 and 1 where there is no adapter"] = partial(answer, x, ids, linear, [])
            values["refused"] = refused(calls)
        return observe({**values, "after": _flags(x, linear, adapters)})
    with metered(evaluations=[linear]) as run:
        y = answer(x, ids, linear, adapters)
    largest = run.largest.bytes // run.largest.dtype.itemsize if run.largest else 0
    cost = {"flops": sum(run.flops.values()), "numbers": _numbers(run), "largest": largest}
    return observe({"y": y, "calls": run.evaluations[linear], **cost, "after": _flags(x, linear, adapters)})


def _flags(x: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]) -> dict[str, Any]:
    """What of the arguments is no number: the layer's mode and hooks, and how many tensors require a gradient."""
    tensors = [x, *(factor for A, B, _ in adapters for factor in (A, B))]
    return {"linear": modules_of(linear), "require a gradient": sum(each.requires_grad for each in tensors)}


def _numbers(run: Run) -> int:
    """Numbers in all tensors that ops made, in any dtype, and those that were multiplied into a given tensor."""
    return sum(
        max(op.made // op.outputs[0].itemsize, math.prod(op.shape) if op.name in ("mul", "mul_") else 0)
        for op in run.trace
        if op.outputs
    )


def _with(ids: Tensor, unknown: int) -> Tensor:
    """The ids, the second one replaced."""
    changed = ids.clone()
    changed[1] = unknown
    return changed


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: calls of the layer."""
    return None if got["calls"] == 1 else f"linear was called {got['calls']} times, where once is enough for all rows"


def _own_rows(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the products of the base with all rows, and of each adapter with its own."""
    (batch, time, n), m = inputs["x"].shape, len(inputs["weight"])
    uses = [int((inputs["ids"] == number).sum()) for number in range(len(inputs["adapters"]))]
    products = sum(count * len(each["A"]) for count, each in zip(uses, inputs["adapters"], strict=True)) * (m + n)
    most, flops, numbers = 2 * time * (batch * m * n + products), got["flops"], got["numbers"]
    if isinstance(flops, int) and flops <= most:
        enough = ROOM * time * products
        if isinstance(numbers, int) and numbers <= enough:
            return None
        return f"{numbers} numbers were made on the way, where {enough} are enough, also for products by elements"
    return f"{flops} FLOPs, where {most} are enough: {2 * time * batch * m * n} of the base, the rest of the adapters"


def _nothing_merged(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: all tensors are smaller than the weight."""
    largest, limit = got["largest"], inputs["weight"].numel()
    if isinstance(largest, int) and largest < limit:
        return None
    return f"a tensor of {largest} numbers was made, and the weight has {limit}"


def _dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: y in the dtype of x. The reference, which is performed in float64, is not asked."""
    y, wanted = got["y"], inputs["x"].dtype
    return f"y is in {y.dtype}, where x is in {wanted}" if isinstance(y, Tensor) and y.dtype != wanted else None


HALVES = ("in float16", "in bfloat16")
FORMS = (
    in_dtype(torch.float64, *TENSORS),
    in_dtype(torch.float16, *TENSORS),
    in_dtype(torch.bfloat16, *TENSORS),
    strided("x", of=UNUSED, name="an x that is not contiguous"),
    cut("a batch of 1", x=(0, 1), ids=(0, 1), of=UNUSED),
    cut("one token", x=(1, 1), of=SQUARE),
    at_once(EMPTY, cut("no rows", x=(0, 0), ids=(0, 0)), in_dtype(torch.float64, *TENSORS)),
    put("no adapters at all", adapters=[], of=NONE),
    cut("n = 1", of=MIXED, x=(2, 1), weight=(1, 1), **{f"adapters/{at}/A": (1, 1) for at in range(3)}),
    cut("m = 1", of=MIXED, weight=(0, 1), bias=(0, 1), **{f"adapters/{at}/B": (0, 1) for at in range(3)}),
    put("all rows with one adapter", ids=torch.ones(5, dtype=torch.int64), of=SQUARE),
)

EXERCISE = Exercise(
    id="lora.mixed_adapter_forward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "Row i is linear(x[i]) + scale * x[i] A' B' with A, B and scale of the adapter that ids[i] names, in the "
            "place where row i stood. A row of x is (time, n): all its tokens have the same adapter.",
            points=3,
            keys=("y",),
            cases=(MIXED, UNUSED, SQUARE, COST),
        ),
        Property(
            "rows_without_adapter",
            "-1 means none: such a row is the base's result. As an index, -1 would be the last adapter.",
            keys=("y",),
            cases=(NONE, COST),
        ),
        Property(
            "dtype_of_x",
            "y comes in the dtype of x, which is that of the weight and of the factors. A buffer made without a dtype "
            "is in float32.",
            holds=_dtype,
            cases=(MIXED, "in float64", *HALVES, EMPTY),
            needs=("value",),
        ),
        Property(
            "base_once",
            "Call linear once, with all rows. The base's product is nearly all of the work, and it is the same "
            "whatever the adapter.",
            points=2,
            holds=_once,
            cases=(COST,),
            needs=("value",),
        ),
        Property(
            "adapters_on_their_own_rows",
            "Take the rows of an adapter out of x first, then multiply these by A' and the result by B'. To multiply "
            "all rows and mask most of them pays for every adapter on every row, by `@` or element by element; to pad "
            "all factors to one r pays for the largest; and to make B A, row by row too, pays for a whole weight.",
            points=2,
            holds=_own_rows,
            cases=(COST,),
            needs=("value",),
        ),
        Property(
            "nothing_merged",
            "No product B A, and no weight with an adapter in it: both are as large as the weight. Multiply the rows "
            "by A' first, which leaves r numbers of each token.",
            holds=_nothing_merged,
            cases=(COST,),
            needs=("value",),
        ),
        Property(
            "refusals",
            "An id below -1, or one that is not below the number of adapters, names nothing. Raise a ValueError: a "
            "caller with a wrong id would take the base's result, or another customer's, for its own.",
            holds=all_refused,
            cases=(REFUSALS,),
            needs=("value",),
        ),
    ),
    hints=(
        "Which part of y is the same for all rows, and which rows need anything besides?",
        "The base first, for all rows. Then for each adapter the numbers of the rows that use it: `ids == number` "
        "says which. Indexing with a tensor copies, and an assignment to an indexed tensor writes into it.",
        "y = linear(x). For each adapter: the rows where ids is its number; x of these times A' times B' times scale, "
        "added to y at these rows.",
    ),
    keeps=("x", "ids", "weight", "bias", "adapters"),
    forms=FORMS,
    promises={
        "any floating dtype": ("in float64", *HALVES),
        "views too": ("an x that is not contiguous",),
        "(batch, time, n)": ("n = 1", "one token"),
        "batch may be 0": (EMPTY, "a batch of 1"),
        "in any order": ("value",),
        "-1: none": ("rows_without_adapter",),
        "with its bias or without": (SQUARE,),
        "may be empty": ("no adapters at all",),
        "r may differ": ("value",),
        "some used by no row": (UNUSED,),
        "(batch, time, m)": ("m = 1",),
        "in the dtype of x": ("dtype_of_x",),
        "called once": ("base_once",),
        "with the rows that use the adapter, and no others": ("adapters_on_their_own_rows",),
        "No tensor as large as the weight": ("nothing_merged",),
        "nor B A in pieces": ("adapters_on_their_own_rows",),
        "None of the arguments is changed": ("arguments_unchanged",),
        "an id below -1, or not below the number of adapters": ("refusals",),
    },
)
