"""`int8_matmul(qa, qb, za, zb)`: a product of codes less their zero points, in integers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.meter import metered
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import at_once, cut, strided, transposed

USUAL, EVERY, SQUARE, LONG, LIMIT, WIDE = (
    "a zero point for each row and column",
    "one zero point for each matrix",
    "all sizes equal",
    "beyond the whole numbers of float32",
    "the longest sum",
    "a long inner dimension",
)
INNER = 500  # columns of qa where bytes are looked at
LONGEST = 33_000  # of 255 * 255: just below 2^31


def cases(rng: torch.Generator) -> list[Case]:
    """Codes of all sizes; sums that float32 rounds; the longest sum of the largest terms."""

    def codes(*shape: int) -> Tensor:
        drawn = torch.randint(-128, 128, shape, generator=rng).to(torch.int8)
        drawn[0, 0] = -128
        return drawn

    def drawn(m: int, k: int, n: int) -> dict[str, Any]:
        za, zb = (torch.randint(1, 100, shape, generator=rng) for shape in ((m, 1), (1, n)))
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
        SQUARE: drawn(5, 5, 5),
        LONG: long,
        LIMIT: limit,
        WIDE: drawn(6, INNER, 6),
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The product, its dtype, and how many bytes the largest tensor that was made has beyond both inputs."""
    with metered() as run:
        result = answer(*(inputs[name] for name in ("qa", "qb", "za", "zb")))
    most = inputs["qa"].nbytes + inputs["qb"].nbytes
    beyond = torch.tensor(float(max(0, (run.largest.bytes if run.largest else 0) - most)))
    dtype = str(result.dtype) if isinstance(result, Tensor) else type(result).__name__
    small = len(inputs["qb"]) != INNER  # the product itself may be larger than the codes then
    return observe({"y": result, "dtype": dtype, **({} if small else {"bytes beyond": beyond})})


def _no_wide_copy(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: nothing is larger than both matrices of codes."""
    most, beyond = inputs["qa"].nbytes + inputs["qb"].nbytes, got["bytes beyond"]
    if isinstance(beyond, Tensor) and beyond == 0:
        return None
    return f"a tensor was made whose bytes are more than the {most:,} of both matrices of codes"


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
            cases=(USUAL, SQUARE, WIDE),
        ),
        Property(
            "one_zero_point",
            "A zero point may be one number for all: shape ().",
            keys=("y",),
            cases=(EVERY,),
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
            "A matrix of codes was copied into a wider type. Leave the codes as they are for int8_product, and take "
            "off what the zero points add.",
            points=2,
            holds=_no_wide_copy,
            cases=(WIDE,),
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
        at_once("one term", cut("a term", qa=(1, 1), qb=(0, 1))),
    ),
    promises={
        "any codes, also -128; k from 1 to 33,000": (USUAL, LIMIT, "one term", "exact_sums"),
        "They may be views": ("views that are not contiguous", "transposed tensors"),
        "za of the shape () or (m, 1), zb of the shape () or (1, n)": ("one_zero_point", "value"),
        "int32: equal to the same sum in int64, to the last bit": ("int32", "exact_sums"),
        "No tensor is made that takes more bytes": ("no_wide_copy",),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
)
