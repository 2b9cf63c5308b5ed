"""`quadratic_grads(a, b, c, x, y)`: the value of a x^2 + b x y + c y^2 and its two partial derivatives, by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch

from course.exercises.computational_graphs.lists import number
from course.performing.compare import as_numbers, describe
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    observe,
    outputs,
)
from course.performing.forms import put

NEAR = 1 / 128  # half of 1/64: products of two eighths are whole numbers of 64ths


def cases(rng: torch.Generator) -> list[Case]:
    """Three points in eighths, where every product and sum is exact: any way of writing the formula gives the same.
    A step along the imaginary axis is not exact, so neither derivative is small beside its terms.

    And one in decimals, where a rounded number and a small step lose digits; all positive, so that no sum cancels.
    """

    def eighths(*, signed: bool) -> list[float]:
        while True:
            sizes = (torch.randperm(32, generator=rng)[:5] + 1) / 8
            signs = torch.randint(0, 2, (5,), generator=rng) * 2 - 1
            a, b, c, x, y = numbers = (sizes * signs if signed else sizes).double().tolist()
            if abs(2 * a * x + b * y) > abs(b * y) / 4 and abs(b * x + 2 * c * y) > abs(b * x) / 4:
                return numbers

    def case(name: str, numbers: list[float]) -> Case:
        return Case(name=name, inputs=dict(zip("abcxy", numbers, strict=True)))

    return [
        case("positive numbers", eighths(signed=False)),
        case("any signs", eighths(signed=True)),
        case("another point", eighths(signed=True)),
        case("decimal numbers", (torch.rand(5, generator=rng, dtype=torch.float64) + 0.5).tolist()),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(a, b, c, x, y)` once."""
    parts = outputs(answer(*(inputs[name] for name in "abcxy")), "value", "dx", "dy")
    return observe({name: number(each) for name, each in parts.items()})


def _near(key: str) -> Callable[[Inputs, Values, Values], str | None]:
    """States that one number is nearer to the right one than to any other result of eighths."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        a, b = as_numbers(got[key]), as_numbers(expected[key])
        fine = a is not None and b is not None and a.shape == b.shape and bool((a - b).abs() < NEAR)
        return None if fine else f"{key} is {describe(got[key])}, not {describe(expected[key])}"

    return holds


EXERCISE = Exercise(
    id="computational_graphs.quadratic_grads",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "The value has three terms: a x^2, b x y and c y^2. In Python a power is `**`, and it binds before `*`.",
            keys=("value",),
        ),
        Property(
            "derivative_by_x",
            "Only x varies: x^2 becomes 2 x, x y becomes y, and a term without x becomes 0.",
            points=2,
            holds=_near("dx"),
        ),
        Property(
            "derivative_by_y",
            "Only y varies: y^2 becomes 2 y, x y becomes x, and a term without y becomes 0.",
            points=2,
            holds=_near("dy"),
        ),
        Property(
            "exact_to_rounding",
            "The formulas of the two derivatives give all 15 digits. A difference of two values over a small step "
            "does not, and neither does a number that was rounded.",
            keys=("dx", "dy"),
            needs=("derivative_by_x", "derivative_by_y"),
        ),
        Property(
            EVERY_FORM,
            "Every coefficient and both coordinates may be 0, or very small. The formulas hold there too: nothing is "
            "divided, and no case needs a branch of its own.",
            roundings=16,
            needs=("value", "exact_to_rounding"),
        ),
    ),
    hints=(
        "Move x a little and hold everything else: which of the three terms change, and how fast?",
        "Differentiate term by term. In b x y, seen as a function of x alone, b y is a constant factor.",
        "The derivative by x has two terms, one from a x^2 and one from b x y; the one by y mirrors it. "
        "Return (value, dx, dy).",
    ),
    forms=(
        put("x is 0", x=0.0),
        put("y is 0", y=0.0),
        put("both are 0", x=0.0, y=0.0, of="any signs"),
        put("only a is not 0", b=0.0, c=0.0, of="any signs"),
        put("only b is not 0", a=0.0, c=0.0, of="any signs"),
        put("only c is not 0", a=0.0, b=0.0, of="any signs"),
        put("a tiny point", x=3 * 2.0**-60, y=5 * 2.0**-60),  # far below the roundings of a step of 1; no sum cancels
        put("a tiny x", x=3 * 2.0**-60),
        put("a tiny y", y=5 * 2.0**-60),
        put("a far larger a", a=2.0**60),
        put("a far larger c", c=2.0**60),
    ),
    promises={
        "Any of them may be 0": (
            "x is 0",
            "y is 0",
            "both are 0",
            "only a is not 0",
            "only b is not 0",
            "only c is not 0",
        ),
        "the point": ("any signs", "another point", "a tiny point"),
        "(value, dx, dy)": ("value", "derivative_by_x", "derivative_by_y"),
        "exact to the roundings of float64": (
            "exact_to_rounding",
            "decimal numbers",
            "a far larger a",
            "a far larger c",
        ),
    },
    removes=("torch",),
    seconds=2.0,
)
