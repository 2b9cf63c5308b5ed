"""`int8_matmul(qa, qb, za, zb)`: a product of codes less their zero points, in integers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.exercises.quantization.grids import multiplies_int8
from course.meter import metered
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import alone, at_once, cut, put, strided, transposed

USUAL, EVERY, ONE_SIDE, SQUARE, LONG, LIMIT, ROWS, COLUMNS = (
    "a zero point for each row and column",
    "one zero point for each matrix",
    "a zero point for each row, one for all columns",
    "all sizes equal",
    "beyond the whole numbers of float32",
    "the longest sum",
    "a long inner dimension, more rows than columns",
    "a long inner dimension, more columns than rows",
)
INNER = 500  # columns of qa where bytes are looked at
MORE, FEWER = 12, 3  # so that the larger matrix, in two bytes a code, takes more than both as they are
LONGEST = 33_000  # of 255 * 255: just below 2^31
NOUGHT = torch.tensor(0, dtype=torch.int32)


def cases(rng: torch.Generator) -> list[Case]:
    """Codes of all sizes; sums that float32 rounds; the longest sum of the largest terms."""

    def codes(*shape: int) -> Tensor:
        drawn = torch.randint(-128, 128, shape, generator=rng).to(torch.int8)
        drawn[0, 0] = -128
        return drawn

    def drawn(m: int, k: int, n: int) -> dict[str, Any]:
        za, zb = (1 + torch.randperm(99, generator=rng)[: max(shape)].view(shape) for shape in ((m, 1), (1, n)))
        return {"qa": codes(m, k), "qb": codes(k, n), "za": za.int(), "zb": -zb.int()}

    # Codes far above their zero points: the sum is about 20,000 * 150 * 150, of which float32 keeps multiples of 32.
    long = drawn(3, 20_001, 2)
    long["qa"], long["qb"] = (each // 4 + 90 for each in (long["qa"], long["qb"]))
    long["za"], long["zb"] = (-each.abs() % 50 - 50 for each in (long["za"], long["zb"]))
    limit = {
        "qa": torch.full((1, LONGEST), -128, dtype=torch.int8),
        "qb": torch.full((LONGEST, 2), -128, dtype=torch.int8),
        "za": torch.tensor(127, dtype=torch.int32),
        "zb": torch.tensor([[127, -128]], dtype=torch.int32),
    }
    za, zb = (torch.tensor(sign * integer(rng, 3, 128), dtype=torch.int32) for sign in (1, -1))
    every = {**drawn(3, 6, 4), "za": za, "zb": zb}
    some = {
        USUAL: drawn(4, 7, 5),
        EVERY: every,
        ONE_SIDE: {**drawn(3, 6, 4), "zb": zb},
        SQUARE: drawn(5, 5, 5),
        LONG: long,
        LIMIT: limit,
        ROWS: drawn(MORE, INNER, FEWER),
        COLUMNS: drawn(FEWER, INNER, MORE),
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The product and its dtype; whether it was made in int8, and how many bytes a tensor has beyond both inputs, or
    all that were live at once beyond twice as many.
    """
    with metered() as run:
        result = answer(*(inputs[name] for name in ("qa", "qb", "za", "zb")))
    most = inputs["qa"].nbytes + inputs["qb"].nbytes
    largest, live = run.largest.bytes if run.largest else 0, run.peak.live if run.peak else 0
    beyond = torch.tensor(float(max(0, largest - most, live - 2 * most)))
    dtype = str(result.dtype) if isinstance(result, Tensor) else type(result).__name__
    (m, k), n = inputs["qa"].shape, inputs["qb"].shape[1]
    small = k != INNER  # the product itself may be larger than the codes then
    cost: Inputs = {} if small else {"bytes beyond": beyond, "in int8": multiplies_int8(run, m, k, n)}
    return observe({"y": result, "dtype": dtype, **cost})


def _no_wide_copy(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the codes are multiplied, and copied as they are at most."""
    most, beyond = inputs["qa"].nbytes + inputs["qb"].nbytes, got["bytes beyond"]
    if not isinstance(beyond, Tensor) or beyond != 0:
        return f"a tensor has more bytes than the {most:,} of both matrices of codes, or all have twice as many at once"
    return None if got["in int8"] else "not all products are made in int8: int8_product makes them"


EXERCISE = Exercise(
    id="quantization.int8_matmul",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "Multiply out (qa - za)(qb - zb): the product of the codes, less zb times the sums of qa's rows, less za "
            "times the sums of qb's columns, and k za zb.",
            points=3,
            keys=("y",),
            cases=(USUAL, SQUARE, ROWS, COLUMNS),
        ),
        Property(
            "one_zero_point",
            "A zero point may be one number for all: shape ().",
            keys=("y",),
            cases=(EVERY, ONE_SIDE),
        ),
        Property(
            "exact_sums",
            "Every digit counts: sums go on in int32. float32 has whole numbers up to 2^24 only, int8 and int16 far "
            "fewer.",
            points=2,
            keys=("y",),
            cases=(LONG, LIMIT),
            needs=("value",),
        ),
        Property("int32", "The product is in int32.", keys=("dtype",), cases=(USUAL,), needs=("value",)),
        Property(
            "no_wide_copy",
            "The codes were not multiplied as they are, or a matrix of them was copied into a wider type. Give them to "
            "int8_product as they came, and take off what the zero points add.",
            points=2,
            holds=_no_wide_copy,
            cases=(ROWS, COLUMNS),
            needs=("value",),
        ),
    ),
    hints=(
        "(a - z)(b - w) has four terms. Which of them need both matrices?",
        "sum a b is int8_product. sum a w is w times the sum of a row of qa. How often is z w added?",
        "Row sums with keepdim, (m, 1), in int32; column sums, (1, n), likewise; product - rows * zb - columns * za + "
        "k * za * zb.",
    ),
    keeps=("qa", "qb", "za", "zb"),
    forms=(
        strided("qa", "qb", "za", "zb"),
        transposed("qa", "qb"),
        at_once("one row", cut("a row", qa=(0, 1), za=(0, 1))),
        at_once("one column", cut("a column", qb=(1, 1), zb=(1, 1)), transposed("qb")),
        alone(put("qa with the zero point 0", za=NOUGHT)),
        alone(put("qb with the zero point 0", zb=NOUGHT)),
        at_once("one term", cut("a term", qa=(1, 1), qb=(0, 1)), transposed("qb")),
    ),
    promises={
        "any codes, also -128; k from 1 to 33,000": (USUAL, LIMIT, "one term", "exact_sums"),
        "They may be views": ("views that are not contiguous", "transposed tensors"),
        "za of the shape () or (m, 1), zb of the shape () or (1, n)": (
            "one_zero_point",
            "value",
            LIMIT,
        ),
        "int32: equal to the same sum in int64, to the last bit": ("int32", "exact_sums"),
        "int8_product multiplies the codes as they came": ("no_wide_copy",),
        "no tensor is made that takes more bytes": ("no_wide_copy",),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
)
