"""`warmup_cosine(step, *, peak, warmup, total, floor)`: the learning rate of one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.performing.compare import as_numbers, describe
from course.performing.draws import integer
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
)
from course.performing.forms import put
from course.performing.refusals import all_refused, refused

NEAR = 1e-5  # of the peak: far less than what a wrong schedule is off, far more than a rounding of float32
BELOW = -1e-9  # just under 0
FEW = 4  # roundings of a rate in float32: with 3.14159 in place of pi it is up to 10 off
FEW_STEPS = [0, 1, 9, 10**9]
AS_HIGH = torch.tensor(0.002)


def cases(rng: torch.Generator) -> list[Case]:
    """Each stretch of a schedule on its own, one that starts at its peak, and one that ends at a floor.

    The rates are tensors in float32, so that a cosine in float32 is right too; an answer gets them as floats. The
    descent takes an odd number of steps, so that no step is its middle, where many wrong curves cross the right one.
    """
    between = partial(integer, rng)

    def case(name: str, stretch: str, *, warms_up: bool = True, floor: bool = False) -> Case:
        warmup = between(4, 8) if warms_up else 0
        total = warmup + 2 * between(4, 7) + 1
        again = 2 * total - warmup  # where a cosine that goes on is back at the peak
        steps = {
            "up": [*range(warmup)],
            "down": [*range(warmup, total + 1)],
            "past": [warmup, *range(total + 1, again + 2)],
            "ends": [0, total],
            "all": [*range(again + 2)],
        }[stretch]
        peak = (torch.rand((), generator=rng) + 0.5) / 1000
        inputs: dict[str, Any] = {"steps": steps, "peak": peak, "warmup": warmup, "total": total}
        if floor:
            inputs["floor"] = peak * (torch.rand((), generator=rng) / 4 + 0.1)
        return Case(name=name, inputs=inputs)

    return [
        case("the way up", "up"),
        case("the way down", "down"),
        case("past the end", "past"),
        case("no warm-up", "ends", warms_up=False),
        case("a floor", "all", floor=True),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The rates of some steps, one call for each; and, beside the way up, what is refused."""
    given: dict[str, Any] = {name: float(rate) if isinstance(rate, Tensor) else rate for name, rate in inputs.items()}
    steps = given.pop("steps")
    values: dict[str, Any] = {"rates": [answer(step, **given) for step in steps]}
    if max(steps) < given["warmup"]:
        values["refused"] = refused(_nonsense(answer, given))
    return observe(values)


def _nonsense(answer: Answer, given: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Calls with one number that makes no sense, on every stretch: some answers look at a number where they need it."""
    warmup, total = given["warmup"], given["total"]

    def call(step: int, **others: float) -> Callable[[], object]:
        return lambda: answer(step, **{**given, **others})

    stretches = {"on the way up": 1, "on the way down": warmup + 1, "at the end": total, "past it": total + 1}
    wrong: dict[str, dict[str, float]] = {
        "a negative peak": {"peak": BELOW},
        "a negative floor": {"floor": BELOW},
        "a negative warmup": {"warmup": -1},
        "total equal to warmup": {"total": warmup},
        "total less than warmup": {"total": warmup - 1},
    }
    calls = {
        f"{words}, {where}": call(step, **others)
        for words, others in wrong.items()
        for where, step in stretches.items()
    }
    return calls | {
        "a negative step": call(-1),
        "a negative step without a warm-up": call(-1, warmup=0),
        "a total and a warmup of 0": call(0, warmup=0, total=0),
        "a total and a warmup of 0, past them": call(1, warmup=0, total=0),
    }


def _at_the_end(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that the rates past the end are 0, apart from a rounding of the peak: 0 itself has no tolerance.

    The first is that of step `warmup`: where it is 0 too, nothing has come to an end.
    """
    a, b = as_numbers(got["rates"]), as_numbers(expected["rates"])
    if a is None or b is None or a.shape != b.shape:
        return f"{describe(got['rates'])}, which cannot be read as one rate for each step"
    peak = float(inputs["peak"])
    if not float(a[0]) > peak / 100:
        return f"a rate of {describe(a[0])} at step `warmup`, where the peak is {describe(peak)}"
    wrong = ~((a[1:] - b[1:]).abs() < NEAR * peak)
    return f"a rate of {describe(a[1:][wrong][0])}, not {describe(b[1:][wrong][0])}" if bool(wrong.any()) else None


def _floored(name: str, **numbers: Any) -> Form:
    return put(name, **numbers, of="a floor")


stated = partial(Property, roundings=FEW)

EXERCISE = Exercise(
    id="optimizers.warmup_cosine",
    cases=cases,
    probe=probe,
    properties=(
        stated(
            "a_straight_line_up",
            "Below `warmup` the rate is proportional to the step: 0 at step 0, and one equal share of the peak "
            "more with each step, so that step `warmup` would be the first at the peak.",
            points=2,
            cases=("the way up",),
        ),
        stated(
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
        ),
        stated(
            "no_warm_up",
            "With warmup = 0 there is no way up, and nothing to divide by: step 0 is the first of the descent and "
            "gets the whole peak.",
            cases=("no warm-up",),
        ),
        stated(
            "a_floor_under_the_descent",
            "The descent leads from `peak` to `floor`: it is `floor` plus a share of what lies between the two. "
            "The way up knows nothing of the floor, and past the end the rate stays there.",
            cases=("a floor",),
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError before anything is computed, whichever step is asked for: where step, peak, warmup or "
            "floor is negative, and where total is not greater than warmup.",
            holds=all_refused,
            cases=("the way up",),
            needs=("a_straight_line_up",),
        ),
        every_form(needs=(), roundings=FEW),
    ),
    hints=(
        "Which fraction of the way up is done at a step, and which fraction of the way down? Where is each of them 0, "
        "and where 1?",
        "Two cases, told apart by `step < warmup`. In the second, (step - warmup) / (total - warmup) says how much of "
        "the descent is over. What is it past the end, and what should it be?",
        "Refuse first. Below warmup, a share of the peak. Otherwise limit t to 1, turn it into a number that falls "
        "from 1 to 0 along half a period of the cosine, and stretch that number to lie between peak and floor.",
    ),
    forms=(
        _floored("a peak and a floor of 0", peak=0.0, floor=0.0, steps=FEW_STEPS),
        _floored("a peak of 0 under a floor", peak=0.0, steps=FEW_STEPS),
        _floored("a floor as high as the peak", peak=AS_HIGH, floor=AS_HIGH, steps=FEW_STEPS),
        _floored("a floor above the peak", floor=2 * AS_HIGH, steps=FEW_STEPS),
        _floored("one step up and one down", warmup=1, total=2, steps=[0, 1, 2, 3]),
        put("every step without a warm-up", warmup=0, of="the way down"),
    ),
    promises={
        "counts from 0": ("a_straight_line_up", "a floor above the peak"),
        "it may be 0": ("a peak and a floor of 0", "a peak of 0 under a floor"),
        "grows by the same amount with each step": ("a_straight_line_up",),
        "there is no way up, and step 0 has the peak": ("no_warm_up", "every step without a warm-up"),
        "at least warmup + 1": ("one step up and one down",),
        "stays there for every step after it": ("past_the_end", "a floor above the peak"),
        "may be 0, as high as `peak`, or higher": (
            "a peak and a floor of 0",
            "a floor as high as the peak",
            "a floor above the peak",
        ),
        "the way up does not know it": ("a_floor_under_the_descent",),
        "a number": ("a_straight_line_up",),
        "a negative step": ("refuses_what_makes_no_sense",),
        "peak, warmup or floor": ("refuses_what_makes_no_sense",),
        "a total that is not greater than warmup": ("refuses_what_makes_no_sense",),
    },
    removes=("torch.optim",),
    seconds=2.0,
)
