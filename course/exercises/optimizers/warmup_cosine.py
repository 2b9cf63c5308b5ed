"""`warmup_cosine(step, *, peak, warmup, total, floor)`: the learning rate of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import all_refused, refused
from course.performing.compare import as_numbers, describe
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

NEAR = 1e-5  # of the peak: far less than what a wrong schedule is off, far more than a rounding of float32


def cases(rng: torch.Generator) -> list[Case]:
    """Each stretch of a schedule on its own, one that starts at its peak, and one that ends at a floor.

    The rates are tensors in float32, so that a cosine in float32 is right too; an answer gets them as floats. The
    descent takes an odd number of steps, so that no step is its middle, where many wrong curves cross the right one.
    """

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    def case(name: str, steps: str, *, warms_up: bool = True, floor: bool = False) -> Case:
        warmup = between(4, 8) if warms_up else 0
        total = warmup + 2 * between(4, 7) + 1
        again = 2 * total - warmup  # where a cosine that goes on is back at the peak
        first, end = {
            "up": (0, warmup),
            "down": (warmup, total + 1),
            "past": (total + 1, again + 2),
            "all": (0, again + 2),
        }[steps]
        peak = torch.rand((), generator=rng) + 0.5
        inputs: dict[str, Any] = {"first": first, "end": end, "peak": peak, "warmup": warmup, "total": total}
        if floor:
            inputs["floor"] = peak * (torch.rand((), generator=rng) / 4 + 0.1)
        return Case(name=name, inputs=inputs)

    return [
        case("the way up", "up"),
        case("the way down", "down"),
        case("past the end", "past"),
        case("no warm-up", "down", warms_up=False),
        case("a floor", "all", floor=True),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The rates of some steps, one call for each; and, beside the way up, what is refused."""
    given: dict[str, Any] = {name: float(rate) if isinstance(rate, Tensor) else rate for name, rate in inputs.items()}
    first, end, total = given.pop("first"), given.pop("end"), given["total"]
    values: dict[str, Any] = {"rates": [answer(step, **given) for step in range(first, end)]}
    if end > inputs["warmup"]:
        return observe(values)

    def call(step: int = 1, **others: float) -> Callable[[], object]:
        return lambda: answer(step, **{**given, **others})

    nonsense = {
        "a negative step": call(-1),
        "a negative peak": call(peak=-1e-3),
        "a negative floor": call(floor=-1e-3),
        "a negative warmup": call(warmup=-1),
        "total equal to warmup": call(warmup=total),
        "total less than warmup": call(warmup=total + 1),
    }
    return observe({**values, "refused": {**refused(nonsense)}})


def _at_the_end(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that the rates past the end are 0, apart from a rounding of the peak: 0 itself has no tolerance."""
    a, b = as_numbers(got["rates"]), as_numbers(expected["rates"])
    if a is None or b is None or a.shape != b.shape:
        return f"{describe(got['rates'])}, which cannot be read as one rate for each step"
    wrong = ~((a - b).abs() < NEAR * float(inputs["peak"]))
    return f"a rate of {describe(a[wrong][0])}, not {describe(b[wrong][0])}" if bool(wrong.any()) else None


EXERCISE = Exercise(
    id="optimizers.warmup_cosine",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "a_straight_line_up",
            "Below `warmup` the rate is proportional to the step: 0 at step 0, and one equal share of the peak "
            "more with each step, so that step `warmup` would be the first at the peak.",
            points=2,
            cases=("the way up",),
        ),
        Property(
            "half_a_cosine_down",
            "From step `warmup` on count anew: t = 0 there and t = 1 at step `total`. The curve (1 + cos(pi t)) "
            "/ 2 falls from 1 to 0 between them.",
            points=2,
            cases=("the way down",),
        ),
        Property(
            "past_the_end",
            "After step `total` nothing changes any more: t must not grow beyond 1, or the cosine rises again.",
            holds=_at_the_end,
            cases=("past the end",),
            needs=("half_a_cosine_down",),
        ),
        Property(
            "no_warm_up",
            "With warmup = 0 there is no way up, and nothing to divide by: step 0 is the first of the descent and "
            "gets the whole peak.",
            cases=("no warm-up",),
            needs=("half_a_cosine_down",),
        ),
        Property(
            "a_floor_under_the_descent",
            "The descent leads from `peak` to `floor`: it is `floor` plus a share of what lies between the two. "
            "The way up knows nothing of the floor, and past the end the rate stays there.",
            cases=("a floor",),
            needs=("half_a_cosine_down",),
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError before anything is computed: where step, peak, warmup or floor is negative, and "
            "where total is not greater than warmup.",
            holds=all_refused,
            cases=("the way up",),
            needs=("a_straight_line_up",),
        ),
    ),
    hints=(
        "Which fraction of the way up is done at a step, and which fraction of the way down? Where is each of them 0, "
        "and where 1?",
        "Two cases, told apart by `step < warmup`. In the second, (step - warmup) / (total - warmup) says how much of "
        "the descent is over. What is it past the end, and what should it be?",
        "Refuse first. Below warmup, a share of the peak. Otherwise limit t to 1, turn it into a number that falls "
        "from 1 to 0 along half a period of the cosine, and stretch that number to lie between peak and floor.",
    ),
    removes=("torch.optim",),
    seconds=2.0,
)
