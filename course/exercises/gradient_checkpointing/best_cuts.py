"""`best_cuts(bytes_, cost, budget)`: which blocks to checkpoint, and in which segments, within a budget of bytes.

A plan is judged by what it costs and by what is live with it. Both are computed here, so any plan of least cost is
right. Nothing here searches for one: budgets are drawn between what blocks one by one need and what keeping all needs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from typing import Any, cast

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.lessons.experiments.planned import live_bytes
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.refusals import all_refused, refused

Question = dict[str, Any]  # bytes_, cost, budget
Plan = list[tuple[int, int]]
UNEVEN, LONG, EXACT, SMALLEST, TOO_FEW = (
    "uneven blocks",
    "200 blocks",
    "exactly the budget",
    "everything fits",
    "what is refused",
)
BLOCKS = 200
LEFT, REFUSED = "lists afterwards", "a ValueError"


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks several questions: label -> the arguments of one call."""

    def draw(low: int, high: int) -> int:
        return integer(rng, low, high + 1)

    def row(count: int, given: int, inside: int) -> tuple[list[list[int]], list[int]]:
        return [[draw(1, given), draw(1, inside)] for _ in range(count)], [draw(1, 999) for _ in range(count)]

    def between(share: float, bytes_: list[list[int]], cost: list[int]) -> Question:
        """A budget at this share of the way from what a segment for each block needs to what no segment needs."""
        least, most = _peak(bytes_, [(at, at + 1) for at in range(len(cost))]), _peak(bytes_, [])
        return {"bytes_": bytes_, "cost": cost, "budget": round(least + share * (most - least))}

    long: Question = dict(zip(("bytes_", "cost"), row(BLOCKS, 1, 2), strict=True))
    one_long: Question = {"bytes_": [*[[1, 1]] * 98, [1, 198]], "cost": [1] * 99, "budget": 200}  # (0, 98)
    dozens = [(at, min(at + 12, BLOCKS)) for at in range(0, BLOCKS, 12)]
    uneven = {f"a share of {share}": between(share, *row(8, 8, 16)) for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.6)}
    above = [10**9 + more for more in (9, 1, 5, 7)]  # alike in float32
    uneven["costs above 10**9"] = {"bytes_": [[1, 9]] * 4, "cost": above, "budget": 31}
    uneven["the same bytes at other costs"] = {**uneven["costs above 10**9"], "cost": above[1:] + above[:1]}
    odd = [above[at] for at in (2, 0, 1, 3)]
    uneven["a byte less"] = {**uneven["costs above 10**9"], "cost": odd, "budget": 30}  # (0, 1) and (2, 3)
    uneven["the last block is cheapest"] = {"bytes_": [[5, 5]] * 4, "cost": [9, 7, 8, 1], "budget": 35}  # (1, 2)
    one, (few, costs) = [[draw(1, 9), draw(1, 99)]], row(5, 9, 30)
    some = between(0.5, *row(6, 2, 5))
    fits: dict[str, Question] = {
        "one block": {"bytes_": one, "cost": [draw(1, 999)], "budget": sum(one[0])},
        "five blocks": {"bytes_": few, "cost": costs, "budget": _peak(few, [])},
        "all of 200 units": {"bytes_": [[60, 40], [50, 50]], "cost": [1, 1], "budget": 200},
    }
    too_few = {
        "one block, a byte too few": {**fits["one block"], "budget": sum(one[0]) - 1},
        "the largest block does not fit": {**some, "bytes_": [*some["bytes_"], [1, 190]], "cost": [*some["cost"], 9]}
        | {"budget": 190},
        "no bytes": {**some, "budget": 0},
        "four blocks, a byte too few": {"bytes_": [[9, 1]] * 4, "cost": [1] * 4, "budget": 27},  # (0, 2) and twice one
    }
    return [
        Case(name=UNEVEN, inputs={**uneven}),
        Case(name=EXACT, inputs=_exact(draw)),
        Case(name=SMALLEST, inputs={**fits}),
        Case(
            name=LONG, inputs={"all": {**long, "budget": _peak(long["bytes_"], dozens) + draw(2, 4)}, "one": one_long}
        ),
        Case(name=TOO_FEW, inputs={**too_few}),
    ]


def _exact(draw: Any) -> Inputs:
    """Two blocks and a last one; the first is the cheapest to run again.

    The budget is what one segment of the first needs: when backward has run it again, or after the forward. One byte
    less, and another plan must be found.
    """
    given, inside = draw(3, 5), draw(40, 60)
    cost = [draw(1, 9), draw(500, 900), draw(100, 400)]
    at_work = [[given, inside], [2, 3], [1, draw(10, 20)]]
    kept = [[given, draw(30, 40)], [2, draw(20, 27)], [1, draw(30, 39)]]  # the second is the smallest by 3
    after = given + sum(map(sum, kept[1:]))
    return {
        "when a segment is live": {"bytes_": at_work, "cost": cost, "budget": given + inside},
        "after the forward": {"bytes_": kept, "cost": cost, "budget": after},
        "a byte less after the forward": {"bytes_": kept, "cost": cost, "budget": after - 1},
    }


def _peak(bytes_: list[list[int]], plan: Plan) -> int:
    return max(live_bytes([(given, inside) for given, inside in bytes_], plan))


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question: the plan, int64 (segments, 2), or REFUSED under its label; its lists afterwards under
    LEFT. Answers that refuse too much can be told apart by the plans that they do find.
    """
    left: dict[str, Any] = {}

    def ask(label: str, bytes_: list[list[int]], cost: list[int], budget: int) -> Tensor:
        left[label] = [(given, inside) for given, inside in bytes_], [*cost]
        return _pairs(answer(*left[label], budget))

    calls = {label: partial(ask, label, **asked) for label, asked in inputs.items()}
    if "no bytes" in inputs:
        found: dict[str, Any] = {"refused": {**refused(calls)}}
    else:
        found = {label: _unless_refused(call) for label, call in calls.items()}
    return observe({**found, LEFT: {label: _numbers(*lists) for label, lists in left.items()}})


def _unless_refused(call: Callable[[], Tensor]) -> Tensor | str:
    try:
        return call()
    except ValueError:
        return REFUSED


def _numbers(bytes_: list[tuple[int, int]], cost: list[int]) -> Tensor:
    return torch.tensor([*chain.from_iterable(bytes_), *cost])


def _pairs(plan: Any) -> Tensor:
    try:
        pairs = [(operator.index(start), operator.index(end)) for start, end in plan]
    except (TypeError, ValueError):
        raise WrongOutput(f"must return a list of pairs (start, end) of ints, got {plan!r:.80}") from None
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


def _plans(inputs: Inputs, got: Values) -> dict[str, Plan]:
    return {
        label: [(start, end) for start, end in cast(Tensor, got[label]).tolist()]
        for label in inputs
        if got[label] != REFUSED
    }


def _in_order(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no ValueError; segments are in the row, not empty, sorted, and share no block."""
    if refusing := [label for label in inputs if got[label] == REFUSED]:
        return f"{refusing[0]}: {REFUSED}, where a plan fits"
    for label, plan in _plans(inputs, got).items():
        count = len(inputs[label]["cost"])
        outside = [pair for pair in plan if not 0 <= pair[0] < pair[1] <= count]
        if outside:
            return f"{label}: {outside[0]} is no segment of {count} blocks"
        mixed = [pair for pair in pairwise(plan) if pair[0][1] > pair[1][0]]
        if mixed:
            return f"{label}: {mixed[0][0]} and then {mixed[0][1]}"
    return None


def _segments(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: `_in_order`, and some plan has a segment: no budget is enough without."""
    wrong = _in_order(inputs, got, expected)
    return wrong or (None if any(_plans(inputs, got).values()) else "no segment in any plan, where not everything fits")


def _fits(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: what is live never exceeds the budget."""
    for label, plan in _plans(inputs, got).items():
        peak, budget = _peak(inputs[label]["bytes_"], plan), inputs[label]["budget"]
        if peak > budget:
            return f"{label}: {peak} bytes are live with {plan!s:.60}, and the budget is {budget}"
    return None


def _least(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the plans fit, and cost what ours cost."""

    def spent(label: str, plan: Plan) -> int:
        return sum(sum(inputs[label]["cost"][start:end]) for start, end in plan)

    wrong = _in_order(inputs, got, expected) or _fits(inputs, got, expected)
    ours = _plans(inputs, expected)
    for label, plan in _plans(inputs, got).items():
        if not wrong and spent(label, plan) != spent(label, ours[label]):
            wrong = f"{label}: a cost of {spent(label, plan)}, where {spent(label, ours[label])} is enough"
    return wrong


EXERCISE = Exercise(
    id="gradient_checkpointing.best_cuts",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "segments",
            "A segment (start, end) holds the blocks start, ..., end - 1, at least one. Return them in order; no block "
            "stands in two of them.",
            holds=_segments,
            cases=(UNEVEN, EXACT),
        ),
        Property(
            "fits",
            "Two moments count: after the forward, and when backward has run a segment again. At the second, what is "
            "kept before the segment is there, and all inputs and insides of its blocks.",
            points=2,
            holds=_fits,
            cases=(UNEVEN,),
            needs=("segments",),
        ),
        Property(
            "least_cost",
            "Another plan within the budget costs less. What is best so far depends on two things: how far you have "
            "come in the row, and how many bytes are kept. The cheapest start may keep too much for what follows.",
            points=4,
            holds=_least,
            cases=(UNEVEN,),
            needs=("fits",),
        ),
        Property(
            "the_last_byte",
            "A plan that needs exactly the budget fits, and one that needs a byte more does not. A segment's input is "
            "counted once.",
            points=2,
            holds=_least,
            cases=(EXACT,),
            needs=("segments",),
        ),
        Property(
            "nothing_recomputed",
            "Where everything fits without a checkpoint, no block is run again: the list is empty.",
            holds=_least,
            cases=(SMALLEST,),
            needs=("least_cost",),
        ),
        Property(
            "200_blocks",
            "A row of 200 blocks needs a plan in seconds. There are more plans than can be tried: keep for each place "
            "in the row, and each number of bytes kept so far, only the cheapest way to come there. A segment of 41 "
            "blocks is allowed too.",
            points=2,
            holds=_least,
            cases=(LONG,),
            needs=("least_cost",),
        ),
        Property(
            "lists_unchanged",
            "The caller still needs `bytes_` and `cost`, also where you refuse: work on new lists.",
            keys=(f"{LEFT}/*",),
            cases=(UNEVEN, TOO_FEW),
            needs=("fits",),
        ),
        Property(
            "refusals",
            "Where no plan fits, raise a ValueError.",
            holds=all_refused,
            cases=(TOO_FEW,),
            needs=("segments",),
        ),
    ),
    hints=(
        "You have decided about the first i blocks. What must you know about that decision to go on: which segments "
        "there are, or only a number or two?",
        "For each place in the row and each number of bytes kept so far, keep the least cost and how it was reached. "
        "From there the next block keeps all, or a segment of 1, 2, 3, ... blocks begins.",
        "table[i][kept] = (cost, plan so far), table[0] = {0: (0, [])}. A plain block adds its input and its inside to "
        "kept. A segment adds the input of its first block, and is allowed if kept and all its bytes are within the "
        "budget. At the end, the cheapest entry of table[n].",
    ),
    promises={
        "for each block of a row (bytes of its input, bytes kept inside it)": ("fits",),
        "what running it again costs": ("least_cost",),
        "ints of at least 1": ("least_cost",),
        "at most 200 blocks": ("200_blocks",),
        "at most 200 units": ("nothing_recomputed",),
        "the most that may be live": ("fits",),
        "may be used to the last unit": ("the_last_byte",),
        "no block is in two": ("segments",),
        "of a segment the input of its first block": ("fits",),
        "its checkpoint counted once": ("the_last_byte",),
        "Any plan of least cost is right": ("least_cost", "the_last_byte"),
        "none where everything fits": ("nothing_recomputed",),
        "a budget in which no plan fits": ("refusals",),
        "Neither list is changed": ("lists_unchanged",),
    },
    seconds=5.0,
)
