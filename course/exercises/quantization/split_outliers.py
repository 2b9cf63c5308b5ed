"""`split_outliers(x, w, threshold)`: columns with outliers in full precision, the rest in int8.

Numbers of the rest lie off ties, so that every right answer has the same codes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course.exercises.quantization.grids import BEYOND, ROUGH, ROUGH_TOO, SIGNS, SMALL, on_grid
from course.performing.exercise import Case, Exercise, Property, every_form, in_the_dtype_of, one_call
from course.performing.forms import alone, at_once, cut, in_dtype, put, strided, times, transposed

USUAL, SQUARE, NONE, ALL, EQUAL, STILL, SINGLE, HALF, CANCELS, THOUSANDS = (
    "two columns with outliers",
    "as many rows as columns",
    "no outlier",
    "every column has one",
    "an outlier of exactly the threshold",
    "rows that are all 0 in the rest",
    "one column is left",
    "steps that half precision holds",
    "large products that cancel",
    "thousands of large products",
)
ALL_IN_HALF, ROUNDED = f"{ALL}, in float16", "steps and a threshold that bfloat16 rounds"
BOTH = "products of steps below float16"
THRESHOLD = 6.0  # on_grid's numbers are below 127 * 0.04


def cases(rng: torch.Generator) -> list[Case]:
    """Matrices whose outliers stand in few columns, of either sign; w is largest in the same columns."""

    def drawn(rows: int, n: int, m: int, columns: int, **how: Any) -> dict[str, Any]:
        """`columns` of x have one outlier, whose other numbers are as usual."""
        x, w = on_grid(rng, rows, n, **how), on_grid(rng, m, n, **how)
        place = torch.randperm(n + columns, generator=rng)
        more = torch.rand(rows, columns, generator=rng) * 4 - 2
        for column in range(columns):
            at = int(torch.randint(rows, (), generator=rng))
            more[at, column] = (-1.0) ** column * (8 + 20 * torch.rand((), generator=rng))
        met = 3 + torch.rand(m, columns, generator=rng) * 30
        return {"x": torch.cat([x, more], 1)[:, place], "w": torch.cat([w, met], 1)[:, place], "threshold": THRESHOLD}

    def cancelling(rows: int, m: int, n: int) -> dict[str, Any]:
        """Codes whose products leave 1 of each sum. No w is so large that who looks for outliers there finds one."""
        large = torch.randint(64, 127, (rows + m, n // 2), generator=rng)
        large[:, :2] = torch.tensor([127, 1])
        codes = torch.cat([large, large[:, torch.randperm(n // 2, generator=rng)]], 1)
        codes[:rows, n // 2 :] *= -1
        codes[rows:, 1] += 1  # meets a 1 of x
        off = 0.4 * torch.rand(codes.shape, generator=rng) - 0.2  # of a step: what is not rounded does not cancel
        given = codes + off.masked_fill(codes.abs() == 127, 0)
        return {"x": 0.011 * given[:rows], "w": 0.0071 * given[rows:], "threshold": THRESHOLD}

    def high(x: Tensor) -> Tensor:
        return (x.abs() >= THRESHOLD).any(0)

    every, equal, still = drawn(3, 5, 4, 0), drawn(4, 6, 3, 1), drawn(4, 6, 3, 2)
    every["threshold"] = 0.0
    every["x"][0] = every["x"][0].abs()  # of either sign it is in every column
    equal["x"] = torch.where(equal["x"].abs() >= THRESHOLD, -THRESHOLD, equal["x"])
    rest = ~high(still["x"])
    still["x"][1, rest], still["w"][2, rest] = 0.0, 0.0
    half = drawn(4, 24, 3, 1, exact=True)
    rest = ~high(half["x"])
    half["x"][0, rest] = half["w"][0, rest]  # the product of codes is beyond float16's largest number
    some = {
        USUAL: drawn(5, 8, 6, 2),
        SQUARE: drawn(6, 4, 6, 2),
        NONE: {**drawn(4, 7, 3, 0), "threshold": math.inf},
        ALL: every,
        EQUAL: equal,
        STILL: still,
        SINGLE: drawn(4, 1, 3, 2),
        HALF: half,
        CANCELS: cancelling(2, 3, 64),
        THOUSANDS: cancelling(16, 16, 5_000),
    }
    # What is multiplied in full precision there depends on the order of a processor's sums.
    return [Case(name=name, inputs=inputs, hard=name == THOUSANDS) for name, inputs in some.items()]


FORMS = (
    at_once("in float16", in_dtype(torch.float16, "x", "w"), of=HALF),
    at_once("in bfloat16", in_dtype(torch.bfloat16, "x", "w"), of=HALF),
    in_dtype(torch.float16, "x", "w", of=ALL, name=ALL_IN_HALF),
    alone(put(ROUNDED, x=ROUGH, w=ROUGH_TOO, threshold=BEYOND)),
    strided("x", "w"),
    transposed("x", "w"),
    cut("one row", x=(0, 1)),
    cut("one row of w", w=(0, 1)),
    cut("no row", x=(0, 0)),
    at_once("no row in float16", in_dtype(torch.float16, "x", "w"), cut("", x=(0, 0))),
    times("small numbers", 2.0**-40, "x", "w", of=NONE),
    put("a whole number as threshold", threshold=6),
    alone(put("steps of x below float16", x=SMALL, w=SIGNS, of=NONE)),
    alone(put("steps of w below float16", x=SIGNS, w=SMALL, of=NONE)),
    alone(at_once(BOTH, times("", 2.0**-8, "x", "w"), in_dtype(torch.float16, "x", "w"), of=NONE)),
)

EXERCISE = Exercise(
    id="quantization.split_outliers",
    cases=cases,
    probe=one_call("x", "w", "threshold", gives=("y",)),
    properties=(
        Property(
            "value",
            "Columns of x with an outlier, and the same columns of w, are multiplied as they are; the others as int8 "
            "codes, scaled by the step of x's row and that of w's row.",
            points=4,
            cases=(USUAL, SQUARE, SINGLE),
        ),
        Property(
            "no_outlier",
            "Without an outlier all is int8, and the product of codes is exact.",
            cases=(NONE, CANCELS),
        ),
        Property(
            "thousands_of_products",
            "A sum of thousands of products of codes is beyond the whole numbers that float32 holds. Integers are "
            "exact, and so is float64.",
            cases=(THOUSANDS,),
            needs=("no_outlier",),
        ),
        Property(
            "all_outliers",
            "Where every column holds an outlier nothing is left for int8: the largest of no numbers is an error.",
            cases=(ALL,),
        ),
        Property(
            "at_the_threshold",
            "A column whose largest |x| is exactly the threshold holds an outlier, of either sign.",
            cases=(EQUAL,),
            needs=("value",),
        ),
        Property(
            "zeros",
            "A row that is all 0 in the rest has the step 1: 0 / 0 is nan.",
            cases=(STILL,),
            needs=("value",),
        ),
        Property(
            "dtype",
            "y comes in the dtype of x.",
            holds=in_the_dtype_of("x", "y"),
            cases=("in float16", "in bfloat16", "no row in float16", ALL_IN_HALF),
            needs=("value",),
        ),
        every_form(needs=("value",), cases=tuple(form.name for form in FORMS)),
    ),
    hints=(
        "Which columns of x have some row in which |x| is large? Are these rows or columns of w?",
        "A mask over columns, (n,): x[:, mask] and w[:, mask] go one way, x[:, ~mask] and w[:, ~mask] the other. Take "
        "the steps after the split.",
        "mask = (x.float().abs() >= threshold).any(0); float product of the one half; of the other half codes, "
        "int8_product, times (N, 1) steps, times (1, m) steps; the sum, in x's dtype.",
    ),
    keeps=("x", "w"),
    forms=FORMS,
    promises={
        "float32, float16 or bfloat16": ("in float16", "in bfloat16", "dtype"),
        "of one dtype": ("in float16", "in bfloat16", "value"),
        "views or not; N may be 0": ("views that are not contiguous", "transposed tensors", "no row"),
        "at least 0, perhaps infinite": (ALL, NONE, "all_outliers", "no_outlier"),
        "at or above it, compared in float32": ("at_the_threshold", "value", ROUNDED),
        "and 1 where these are all 0": ("zeros",),
        "to the nearest integer. The product of codes is exact": ("no_outlier", CANCELS, "thousands_of_products"),
        "All of this is in float32": ("steps of x below float16", "steps of w below float16", BOTH, ROUNDED),
        "in the dtype of x: the sum of both products. Either may be empty": ("dtype", "all_outliers", "no_outlier"),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
)
