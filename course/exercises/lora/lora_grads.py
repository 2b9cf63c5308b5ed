"""`lora_grads(x, dy, A, B, scale)`: gradients of the two factors of an adapter, without the gradient of their product.

With a large weight the product's gradient would be the largest tensor by far.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch

from course.exercises.lora.large import (
    large_case,
    large_observed,
    large_tensors,
    no_large_matrix,
    sample,
    with_costs,
)
from course.performing.draws import near_one, signs
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    arguments_unchanged,
    every_form,
    in_the_dtype_of,
    observe,
    outputs,
)
from course.performing.forms import at_once, cut, in_dtype, leaves, offset, strided, times, transposed

ALL = ("x", "dy", "A", "B")
GRADIENTS = ("dA", "dB")
USUAL, SQUARE, FIRST = "one leading dimension", "all sizes equal", "B is 0, as in the first step"
NONE, TWO, THREE = "no leading dimension", "two leading dimensions", "three leading dimensions"
WIDE, ONE, DOUBLE = "r above n and m", "r = 1", "in float64"
LARGE, EMPTY = "a large weight", "no rows, in float64"
PEAK = 24 * 2**20  # bytes in grading: a matrix (m, n) has 64 MiB


def cases(rng: torch.Generator) -> list[Case]:
    """No to three leading dimensions; sizes that differ, and that do not, where transposes have the right shape too.

    Signs go by rows and columns, such that no sum cancels: the tolerance is relative to what comes out.
    """

    def drawn(lead: tuple[int, ...], n: int, m: int, r: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        draw = partial(near_one, rng, dtype=dtype)
        of_x, of_dy, of_rows, of_columns = (signs(rng, count) for count in (n, m, r, r))
        scale = 1.5 + float(torch.rand((), generator=rng))
        x, dy = draw(of_x, *lead, n), draw(of_dy, *lead, m)
        A, B = draw(of_rows[:, None] * of_x, r, n), draw(of_dy[:, None] * of_columns, m, r)
        return {"x": x, "dy": dy, "A": A, "B": B, "scale": scale}

    first = drawn((4,), 4, 3, 2)
    first["B"].zero_()
    return [
        Case(name=USUAL, inputs=drawn((4,), 5, 3, 2)),
        Case(name=SQUARE, inputs=drawn((3,), 3, 3, 3)),
        Case(name=FIRST, inputs=first),
        Case(name=NONE, inputs=drawn((), 3, 4, 2)),
        Case(name=TWO, inputs=drawn((2, 5), 3, 4, 2)),
        Case(name=THREE, inputs=drawn((2, 1, 3), 4, 2, 2)),
        Case(name=WIDE, inputs=drawn((3,), 2, 4, 5)),
        Case(name=ONE, inputs=drawn((3,), 4, 5, 1)),
        Case(name=DOUBLE, inputs=drawn((3,), 2, 4, 2, torch.float64)),
        large_case(LARGE, rng, {"scale": 1.5 + torch.rand((), generator=rng)}),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call, and both gradients."""
    if "large" in inputs:
        return _large(answer, inputs, ask)
    gradients = outputs(answer(*(inputs[name] for name in ALL), inputs["scale"]), *GRADIENTS)
    return observe(gradients)


def _large(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    given = large_tensors(inputs["large"], ask)
    result, ledger = with_costs(lambda: answer(*given, float(inputs["scale"])), ask)
    found = outputs(result, *GRADIENTS)
    return large_observed({"dA": found["dA"].T, "dB": found["dB"]}, ledger, ask)


LEAVES = at_once("pieces of a longer tensor that require a gradient", offset(*ALL), leaves(*ALL), of=TWO)

EXERCISE = Exercise(
    id="lora.lora_grads",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "gradient_of_B",
            "Call h = x A' what B gets: y = x W' + scale h B', and B is the weight of a linear layer whose input is h. "
            "All rows used the same B, so that their shares add up.",
            points=2,
            keys=("dB",),
            cases=(USUAL, SQUARE, FIRST),
        ),
        Property(
            "gradient_of_A",
            "The gradient with respect to h = x A' is scale dy B, one row for each row of x; then A is the weight of a "
            "linear layer whose input is x.",
            points=2,
            keys=("dA",),
            cases=(USUAL, SQUARE, FIRST),
        ),
        Property(
            "any_number_of_leading_dimensions",
            "However many leading dimensions there are, also none: fold them into one and sum over it.",
            points=2,
            keys=GRADIENTS,
            cases=(NONE, TWO, THREE),
        ),
        Property(
            "any_r",
            "r may be 1, and larger than n and m: the gradients have the shapes of A and B all the same.",
            keys=GRADIENTS,
            cases=(WIDE, ONE),
        ),
        Property(
            "every_digit_in_float64",
            "Numbers that come in float64 have some 15 digits, and yours are not right to the last of them: look for "
            ".float() and for new tensors without dtype=.",
            keys=GRADIENTS,
            cases=(DOUBLE,),
        ),
        Property(
            "dtype_of_A",
            "Both gradients are tensors in the dtype of A: float64 where it is, and not otherwise.",
            holds=in_the_dtype_of("A", *GRADIENTS),
            cases=(USUAL, DOUBLE, "in float16", "in bfloat16", EMPTY),
            needs=("gradient_of_A", "gradient_of_B"),
        ),
        dataclasses.replace(
            arguments_unchanged(needs=("gradient_of_A", "gradient_of_B")),
            hint="An argument was changed: in place (+=, sub_, out=), or by `requires_grad_`. The caller needs it as "
            "it was: `x.detach()` makes a tensor of your own with the same numbers.",
            cases=(USUAL, SQUARE, NONE, TWO, WIDE, DOUBLE, LEAVES.name),
        ),
        every_form(needs=("gradient_of_B",), keys=GRADIENTS),
        Property(
            "no_large_matrix",
            "A tensor of (m, n) was made: the gradient of the product B A, or that product. It is as large as the "
            "weight, which is what an adapter is there to avoid. Another order of the same products is never wider "
            "than r.",
            points=3,
            evidence="ledger",
            holds=no_large_matrix(PEAK),
            beside=GRADIENTS,
            shows="largest_tensor",
            cases=(LARGE,),
            needs=("gradient_of_A", "gradient_of_B"),
        ),
    ),
    hints=(
        "Read y as two linear layers one after the other. What is the input of each, and what flows back into each?",
        "With G = dy' x, the gradient of a whole weight, dB is scale G A' and dA is scale B' G. A product of three "
        "matrices can be taken in two orders: which of them never makes G?",
        "Fold x and dy into rows. dB: dy' times (x A'). dA: (dy B)' times x. Both times scale.",
    ),
    keeps=ALL,
    forms=(
        in_dtype(torch.float16, *ALL),
        at_once("in bfloat16", times("beyond float16", 2.0**17, "dy"), in_dtype(torch.bfloat16, *ALL)),
        strided(*ALL, of=TWO),
        transposed(*ALL, of=TWO),
        LEAVES,
        cut("one row", x=(0, 1), dy=(0, 1)),
        cut("a leading dimension of 1 beside another", x=(0, 1), dy=(0, 1), of=TWO),
        cut("n = 1", x=(1, 1), A=(1, 1)),
        cut("m = 1", dy=(1, 1), B=(0, 1)),
        at_once(EMPTY, cut("", x=(0, 0), dy=(0, 0)), in_dtype(torch.float64, *ALL)),
    ),
    promises={
        "All four tensors have one floating dtype": ("in float16", "in bfloat16", DOUBLE),
        "any number of leading dimensions, also none": (NONE, THREE),
        "the same ones as x": (TWO, THREE),
        "a float": ("gradient_of_A", "gradient_of_B"),
        "They may be views": ("views that are not contiguous", "transposed tensors"),
        "they may require a gradient": (LEAVES.name,),
        "r at least 1": (ONE, WIDE),
        "of the shapes of A and B, in their dtype": ("dtype_of_A", "any_r", "n = 1", "m = 1", EMPTY),
        "summed over all rows": ("any_number_of_leading_dimensions",),
        "no tensor of (m, n) is made": ("no_large_matrix",),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
        "(..., n)": ("any_number_of_leading_dimensions",),
        "(..., m)": ("any_number_of_leading_dimensions",),
    },
    removes=("torch.autograd", "torch.func"),
    oracle=sample(*GRADIENTS),
    measured=(LARGE,),
)
