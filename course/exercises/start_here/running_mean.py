"""`running_mean(xs)`: the warm-up, a mean after each number."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch

from course.errors import WrongOutput
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

FLOAT32 = 2**29  # roundings of float64 in one of float32: torch's default dtype is good enough for a warm-up


def cases(rng: torch.Generator) -> list[Case]:
    """Short lists, so that a table can show them whole; one number, and none."""

    def case(name: str, xs: torch.Tensor) -> Case:
        return Case(name=name, inputs={"xs": xs.double().tolist()})

    decimal = torch.rand(7, generator=rng, dtype=torch.float64) * 8 + 1
    signed = torch.rand(4, generator=rng, dtype=torch.float64) * 18 - 9
    return [
        case("whole numbers", torch.randint(1, 10, (4,), generator=rng)),
        case("decimal numbers", decimal),
        case("negative numbers", signed),
        case("one number", decimal[:1]),
        case("no numbers", decimal[:0]),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(xs)` once."""
    return observe({"means": _vector(answer(inputs["xs"]))})


def _vector(values: Any) -> Any:
    """A list of any kind of numbers as one tensor; what is no such list stays as it came.

    Raises WrongOutput on an iterator, which can be read only once.
    """
    if isinstance(values, Iterator):
        raise WrongOutput(f"must return a list of numbers, got {type(values).__name__}; put it into list(...)")
    if isinstance(values, (list, tuple)):
        values = [float(each) if isinstance(each, (Fraction, Decimal)) else each for each in values]
    try:
        return torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return values


EXERCISE = Exercise(
    id="start_here.running_mean",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "means_of_the_first_numbers",
            "Number k of the result is the sum of the first k numbers, divided by k. Work out [2, 4, 9] by hand: it "
            "gives [2, 3, 5].",
            points=3,
            cases=("whole numbers", "decimal numbers", "negative numbers", "one number"),
            roundings=32 * FLOAT32,
        ),
        Property(
            "no_numbers_give_no_means",
            "An empty list has no first number: the result is an empty list, and nothing is divided.",
            cases=("no numbers",),
            needs=("means_of_the_first_numbers",),
        ),
    ),
    hints=(
        "You know the sum and the count of the first three numbers. What must you do to both when the fourth comes?",
        "Go through the list once and keep two things: the sum so far, and how many numbers it holds. "
        "`enumerate(xs, start=1)` counts for you.",
        "For each number: add it to the sum, then append sum / count to a new list. Return the list after the loop.",
    ),
    keeps=("xs",),
    seconds=2.0,
)
