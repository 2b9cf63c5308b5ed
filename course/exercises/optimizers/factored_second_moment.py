"""`factored_second_moment(g, rows, cols, beta2)`: the moving average of g**2 from r + c kept numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

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
from course.performing.forms import at_once, cut, put, strided, times
from course.performing.refusals import all_refused, refused

FIRST = "beta2 is 0"
RANK_ONE = ("rank one", "rank one, square")
STEPS = ("wide", "tall", "square", "beta2 grows", "in float64")
TWO = "two matrices in turns"
LARGE = "entries of 1e15"  # of whose squares float32 does not hold a product
TINY = "entries of 1e-20 in float64"  # 1e-30 beside their squares shows; float32 does not hold them
LEAST = "entries of 1e-100 in float64"  # which does not hold the product of two of their squares
KEPT = ("grads", "rows", "cols")


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients with entries between 1/2 and 3/2 of either sign, one after the other; rows and cols from zeros or not.

    All squares are positive, so no sum cancels. Rows and cols always come from the same gradients: their means agree.
    """

    def gradient(r: int, c: int, dtype: torch.dtype = torch.float32) -> Tensor:
        size = torch.rand(r, c, generator=rng, dtype=dtype) + 0.5
        return torch.where(torch.rand(r, c, generator=rng) < 0.5, size, -size)

    def rank_one(r: int, c: int, steps: int) -> list[Tensor]:
        shape = torch.outer(torch.rand(r, generator=rng) + 0.5, torch.rand(c, generator=rng) + 0.5)
        sizes = torch.linspace(0.5, 2.0, steps)
        return [gradient(r, c).sign() * shape * size for size in sizes]

    def case(name: str, grads: list[Tensor], betas: list[float], *, before: Tensor | None = None) -> Case:
        rows, cols = _means(before) if before is not None else (grads[0][:, 0] * 0, grads[0][0] * 0)
        return Case(name=name, inputs={"grads": [*grads], "rows": rows, "cols": cols, "betas": [*betas]})

    def several(r: int, c: int, count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [gradient(r, c, dtype) for _ in range(count)]

    two, other = (case(TWO, several(3, 4, 2), [0.8] * 2, before=gradient(3, 4)).inputs for _ in range(2))
    return [
        case(FIRST, several(3, 4, 1), [0.0]),
        case(RANK_ONE[0], rank_one(5, 3, 3), [0.9] * 3),
        case(RANK_ONE[1], rank_one(3, 3, 2), [0.7] * 2),
        case("wide", several(2, 5, 3), [0.9] * 3, before=gradient(2, 5)),
        case("tall", several(6, 3, 2), [0.75] * 2),
        case("square", several(4, 4, 2), [0.9] * 2, before=gradient(4, 4)),
        case("beta2 grows", several(3, 2, 4), [1 - t**-0.8 for t in range(1, 5)]),
        case("in float64", several(3, 4, 2, torch.float64), [0.95] * 2, before=gradient(3, 4, torch.float64)),
        Case(name=TWO, inputs={**two, **{f"other_{key}": other[key] for key in KEPT}}),
    ]


def _means(g: Tensor) -> tuple[Tensor, Tensor]:
    """What one step with beta2 = 0 leaves in rows and cols."""
    return g.square().mean(dim=1), g.square().mean(dim=0)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Step after step on the case's own tensors; after each the estimate, rows, cols and g are read.

    Where there are two matrices, their steps take turns. In one case calls that make no sense follow.
    """
    seen: dict[str, Any] = {name: [] for name in ("estimates", "rows", "cols", "grads")}
    matrices = [
        (inputs[f"{of}grads"], inputs[f"{of}rows"], inputs[f"{of}cols"])
        for of in ("", "other_")
        if f"{of}rows" in inputs
    ]
    memory = [(rows.detach(), cols.detach()) for _, rows, cols in matrices]  # `rows.data = ...` would give rows another
    for step, beta2 in enumerate(inputs["betas"]):
        for (grads, rows, cols), kept in zip(matrices, memory, strict=True):
            g = grads[step]
            estimate = answer(g, rows, cols, beta2)
            for name, value in zip(seen, (estimate, *kept, g), strict=True):
                seen[name].append(value.clone() if isinstance(value, Tensor) else value)
    values = {name: each if name == "estimates" else torch.stack(each) for name, each in seen.items()}
    nonsense = _nonsense(answer, inputs) if len(inputs["betas"]) == 1 else {}
    attributes = [*vars(inputs["rows"]), *vars(inputs["cols"]), *vars(inputs["grads"][0])]
    return observe({**values, "attributes": ", ".join(attributes), "refused": {**refused(nonsense)}})


def _nonsense(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """Calls that must be refused, by what is wrong with them; each on tensors of its own."""

    g = torch.ones_like(inputs["grads"][0])
    r, c = g.shape

    def call(*, rows: tuple[int, ...] = (r,), cols: tuple[int, ...] = (c,), beta2: float = 0.5) -> Any:
        return lambda: answer(g.clone(), g.new_ones(rows), g.new_ones(cols), beta2)

    return {
        "a beta2 of 1": call(beta2=1.0),
        "a beta2 of 2": call(beta2=2.0),
        "a beta2 just below 0": call(beta2=-1e-6),
        "a number too many in rows": call(rows=(r + 1,)),
        "a number too few in rows": call(rows=(r - 1,)),
        "one number in rows": call(rows=(1,)),
        "rows of two dimensions": call(rows=(r, 1)),
        "rows of no dimension": call(rows=()),
        "a number too many in cols": call(cols=(c + 1,)),
        "a number too few in cols": call(cols=(c - 1,)),
        "one number in cols": call(cols=(1,)),
        "cols of two dimensions": call(cols=(1, c)),
        "cols of no dimension": call(cols=()),
        "rows and cols in each other's place": call(rows=(c,), cols=(r,)),
        "r c numbers in each other's number": call(rows=(r * c,), cols=(1,)),
    }


def _with_zeros(case: Case) -> Case:
    """The first row and the last column of each g are 0: what was not used has no gradient."""
    grads: Any = case.inputs["grads"]
    left: Any = [torch.nn.functional.pad(g[1:, :-1], (0, 1, 1, 0)) for g in grads]
    return dataclasses.replace(case, inputs={**case.inputs, "grads": left})


def _tiny(case: Case) -> Case:
    """Squares near 1e-24, of which a product would be 0: what is added to them, or bounds them, shows too."""
    grads: Any = case.inputs["grads"]
    return dataclasses.replace(case, inputs={**case.inputs, "grads": [*(1e-12 * g for g in grads)]})


def _in_the_dtype_of_g(inputs: Inputs, got: Values, expected: Values) -> str | None:
    wanted = inputs["rows"].dtype
    others = [
        f"{key} in {each.dtype}"
        for key, each in got.items()
        if key.startswith("estimates/") and isinstance(each, Tensor) and each.dtype != wanted
    ]
    return f"{', '.join(others)}, where g is in {wanted}" if others else None


EXERCISE = Exercise(
    id="optimizers.factored_second_moment",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "rows_and_cols_in_place",
            "rows and cols are the caller's tensors, and all that is kept between the steps: they must move in "
            "place, to beta2 times what they were plus 1 - beta2 times the mean of g**2 along each row, or column.",
            points=2,
            keys=("rows", "cols"),
            cases=(FIRST, *STEPS),
        ),
        Property(
            "first_estimate",
            "With beta2 = 0 only this g counts: entry (i, j) is the mean of row i of g**2, times the mean of its "
            "column j, over the mean of all of g**2.",
            keys=("estimates/*",),
            cases=(FIRST,),
        ),
        Property(
            "exact_on_rank_one",
            "Where g**2 is an outer product, the estimate is the full moving average. If it is a constant factor "
            "off, look at what you divide by.",
            keys=("estimates/*",),
            cases=RANK_ONE,
        ),
        Property(
            "estimates",
            "The outer product of rows and cols after their update, over the mean of rows: shape (r, c).",
            points=2,
            keys=("estimates/*",),
            cases=STEPS,
        ),
        Property(
            "two_matrices",
            "Whatever is kept must be kept in rows and cols: two matrices that take turns may not meet, and nothing is "
            "kept beside the numbers, as an attribute is.",
            keys=("estimates/*", "rows", "cols", "attributes"),
            cases=(TWO,),
            needs=("first_estimate",),
        ),
        Property(
            "dtype_of_g",
            "The estimate comes in the dtype of g: float64 where that is, and not otherwise.",
            holds=_in_the_dtype_of_g,
            needs=("first_estimate",),
        ),
        Property(
            "gradient_unchanged",
            "g was changed in place (square_, mul_, *=). Only rows and cols may change; the caller still needs g.",
            keys=("grads",),
            roundings=0,
            needs=("first_estimate",),
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError where beta2 is not in [0, 1), where rows are not (r,), and where cols are not (c,): "
            "look at the shapes, because a length or a number of entries says less.",
            holds=all_refused,
            cases=(FIRST,),
            needs=("first_estimate",),
        ),
        every_form(keys=("estimates/*", "rows", "cols"), needs=("first_estimate",)),
    ),
    hints=(
        "If g**2 were an outer product a_i b_j, what would its row means and its column means be, and what do you get "
        "when you multiply the two?",
        "Update both moving averages first, with the means of g**2. Then multiply each of rows with each of cols; the "
        "overall size is now in there twice.",
        "Means of the squares along dimension 1 for rows and along dimension 0 for cols; mul_ and add_ keep the "
        "caller's tensors. Then an outer product over one number, the mean of rows.",
    ),
    forms=(
        strided("grads", "rows", "cols", of="in float64"),
        cut("one row", grads=(0, 1), rows=(0, 1), of="tall"),
        cut("one column", grads=(1, 1), cols=(0, 1), of="tall"),
        put("a beta2 of 0 after another", {"betas/1": 0.0}, of="square"),
        Form(name="a row and a column of zeros", change=_with_zeros, of="tall"),
        Form(name="entries of 1e-12", change=_tiny, of="tall"),
        at_once(LARGE, times("", 1e15, "grads"), times("", 1e30, "rows", "cols"), of="wide"),
        at_once(TINY, times("", 1e-20, "grads"), times("", 1e-40, "rows", "cols"), of="in float64"),
        at_once(LEAST, times("", 1e-100, "grads"), times("", 1e-200, "rows", "cols"), of="in float64"),
    ),
    promises={
        "(r, c), in float32 or float64": ("estimates", "one row", "one column", "in float64"),
        "of any size at which that dtype holds the sum of all squares": ("entries of 1e-12", LARGE, TINY, LEAST),
        "not 0 everywhere": ("a row and a column of zeros",),
        "it is not changed": ("gradient_unchanged",),
        "the moving average of the mean of g**2 along each row": ("rows_and_cols_in_place",),
        "Nothing else is kept between the steps": ("two_matrices",),
        "the same along each column": ("rows_and_cols_in_place",),
        "the share of what was there before": ("beta2 is 0", "a beta2 of 0 after another"),
        "in the dtype of g": ("dtype_of_g",),
        "each of rows times each of cols, over the mean of rows": ("estimates", "exact_on_rank_one"),
        "beta2 outside of [0, 1)": ("refuses_what_makes_no_sense",),
        "rows that are not (r,)": ("refuses_what_makes_no_sense",),
        "cols that are not (c,)": ("refuses_what_makes_no_sense",),
    },
    removes=("torch.optim",),
)
