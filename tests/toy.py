"""A small exercise for tests of the machinery, under an id that the syllabus holds.

`running_mean(x, numbers, square)` returns the squares of the tensor x, made by one call of `square`, and the total of a
list of numbers; neither x nor the list may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from autograder import recording
from autograder.bank import Bank, Misconception, right
from course.performing.exercise import Case, Exercise, Property, arguments_unchanged, observe, outputs

ID = "start_here.running_mean"
Square = Callable[[Tensor], Tensor]


def cases(rng):
    """A vector and a matrix, in float32, and a few Python numbers."""

    def case(name: str, *shape: int) -> Case:
        numbers = torch.rand(4, generator=rng, dtype=torch.float64) + 1
        return Case(name=name, inputs={"x": torch.rand(shape, generator=rng) + 1, "numbers": numbers.tolist()})

    return [case("vector", 3), case("matrix", 2, 3)]


def probe(answer, inputs):
    """Calls the answer with a `square` that counts its calls."""
    calls = []

    def square(x: Tensor) -> Tensor:
        calls.append(x)
        return x * x

    found = outputs(answer(inputs["x"], inputs["numbers"], square), "squares", "total")
    return observe(found, {"calls": len(calls)})


EXERCISE = Exercise(
    id=ID,
    cases=cases,
    probe=probe,
    properties=(
        Property("squares", "Every number times itself.", points=3, keys=("squares",)),
        Property("total", "All of the numbers.", points=2, keys=("total",), roundings=8, cases=("vector",)),
        Property(
            "one_call",
            "Square x whole.",
            points=2,
            evidence="ledger",
            keys=("calls",),
            shows="calls",
            needs=("squares",),
        ),
        arguments_unchanged(needs=("squares", "total")),
    ),
    hints=("What is a square?", "Call square once.", "squares = square(x), and a sum"),
    keeps=("x", "numbers"),
    seconds=5.0,
)


def running_mean(x: Tensor, numbers: list[float], square: Square) -> tuple[Tensor, float]:
    """The right answer."""
    return square(x), math.fsum(numbers)


def with_sum(x, numbers, square):
    """Right: rounds at each step of the sum."""
    return square(x), sum(numbers)


def from_a_copy(x, numbers, square):
    """Right: returns a 0-dim tensor and works on copies."""
    return square(x.clone()), torch.tensor(numbers, dtype=torch.float64).sum()


def cubes(x, numbers, square):
    """Wrong: one factor too many."""
    return square(x) * x, sum(numbers)


def last_number_dropped(x, numbers, square):
    """Wrong: the sum ends one early."""
    return square(x), sum(numbers[:-1])


def row_by_row(x, numbers, square):
    """Costly: one call for each row."""
    return torch.stack([square(row) for row in x]), sum(numbers)


def in_place(x, numbers, square):
    """Right values, and a spoilt argument."""
    squares = square(x)
    numbers.append(0.0)
    return squares, sum(numbers)


def stub(x, numbers, square):
    """What a student finds."""
    raise NotImplementedError(ID)


def wrong(name: str, *witnesses, **fields) -> Misconception:
    """A misconception with a hint made of its name."""
    return Misconception(name=name, hint=f"Cure of {name}.", witnesses=witnesses, **fields)


BANK = Bank(
    exercise=EXERCISE,
    reference=running_mean,
    alternatives=(
        right(with_sum, independent="Python's sum"),
        right(from_a_copy),
    ),
    misconceptions=(
        wrong("cubes", cubes),
        wrong("last_number_dropped", last_number_dropped),
        wrong("row_by_row", row_by_row),
        wrong("in_place", in_place, fails=("arguments_unchanged",)),
    ),
)


def record(seed: int = 1):
    """What a sheet holds of the toy."""
    return recording.record(BANK, seed)
