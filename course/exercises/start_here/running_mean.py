"""`running_mean(xs)`: the warm-up, a mean after each number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course.errors import WrongOutput
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    call_once,
    observe,
)
from course.performing.forms import between_calls, put

FLOAT32 = 2**29  # roundings of float64 in one of float32: torch's default dtype is good enough for a warm-up


def cases(rng: torch.Generator) -> list[Case]:
    """Short lists, so that a table can show them whole; one number, and none."""

    def case(name: str, xs: torch.Tensor) -> Case:
        return Case(name=name, inputs={"xs": xs.double().tolist()})

    decimal = torch.rand(7, generator=rng, dtype=torch.float64) * 8 + 1
    signed = torch.rand(4, generator=rng, dtype=torch.float64) * 18 - 9
    signed[0] = -1 - signed[0].abs()  # so that a mean is negative
    return [
        case("whole numbers", torch.randperm(9, generator=rng)[:4] + 1),
        case("decimal numbers", decimal),
        case("negative numbers", signed),
        case("one number", decimal[:1]),
        case("no numbers", decimal[:0]),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(xs)` once, in one form between two others, and looks whether what came back was not handed in."""
    result = call_once(answer, inputs, inputs["xs"])
    return observe({"means": _vector(result), "new": result is not inputs["xs"]})


def _vector(values: Any) -> Any:
    """A list of numbers as one tensor; what torch takes for no such list stays as it came.

    Raises WrongOutput on an iterator, which can be read only once.
    """
    if isinstance(values, Iterator):
        raise WrongOutput(f"must return a list of numbers, got {type(values).__name__}; put it into list(...)")
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
            keys=("means",),
            cases=("whole numbers", "decimal numbers", "negative numbers", "one number"),
            roundings=32 * FLOAT32,
        ),
        Property(
            "no_numbers_give_no_means",
            "An empty list has no first number: the result is an empty list, and nothing is divided.",
            keys=("means",),
            cases=("no numbers",),
            needs=("means_of_the_first_numbers",),
        ),
        Property(
            "a_new_list",
            "What comes back must be a list of its own, never `xs` itself, also where nothing needs to be worked out: "
            "who changes the one would change the other.",
            keys=("new",),
            needs=("means_of_the_first_numbers",),
        ),
        Property(
            EVERY_FORM,
            "Any numbers may come: equal ones, zeros, whole or tiny ones, and many of them. Each counts once, whatever "
            "it is. And no other call may change what this one returned. The case says where yours goes wrong.",
            roundings=32 * FLOAT32,
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
    forms=(
        put("equal numbers", xs=[5.0, 2.0, 5.0, 5.0, 2.0]),
        put("zeros", xs=[0.0, 0.0, 3.0, 0.0]),
        put("numbers that cancel", xs=[3.0, -3.0, 0.0, 6.0]),
        put("Python's integers", xs=[2, 3, 9]),
        put("tiny numbers", xs=[3e-9, 1e-9, 8e-9]),
        put("2,000 numbers", xs=[float(number % 7) for number in range(2_000)]),
        between_calls("xs", of="decimal numbers"),
    ),
    promises={
        "n numbers": ("decimal numbers", "negative numbers", "equal numbers", "Python's integers", "2,000 numbers"),
        "n may be 0": ("no numbers",),
        "a new list": ("a_new_list", "between two other calls"),
        "entry k (counted from 1) is the mean of the first k numbers": ("means_of_the_first_numbers", EVERY_FORM),
        "An empty list gives an empty list": ("no_numbers_give_no_means",),
        "`xs` itself is not changed": ("arguments_unchanged",),
    },
    seconds=2.0,
)
