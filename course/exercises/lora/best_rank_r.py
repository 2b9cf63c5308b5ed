"""`best_rank_r(delta, r)`: two factors of the nearest matrix of rank r.

Factors are not unique, nor is the nearest matrix where singular values are equal. So what is judged is the error of the
product, beside that of the singular values left out: of rank r no matrix has less.
"""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.performing.compare import EPS, as_numbers, case_dtype
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
    outputs,
)
from course.performing.forms import at_once, cut, in_dtype, offset, put, strided, transposed

USUAL = ("square", "wide", "tall", "r = 1")
ALL_OF_IT = ("r = m", "r = n", "r = m = n")
NOTHING = ("r = 0",)
FAR_BELOW, NO_SQUARES, TINY = "one value far below the others", "squares that are 0", "a tiny value in float64"
DEGENERATE = ("rank below r", "zeros", "equal singular values")
ROUNDINGS = 64  # of the largest singular value, in which the error of a right answer may be larger


def cases(rng: torch.Generator) -> list[Case]:
    """Matrices whose singular values are known and lie apart; or those of a few entries in rows and columns of their
    own: of equal and missing ones a wrong answer shows vectors, which every processor would choose otherwise.
    """

    def matrix(m: int, n: int, *values: float) -> Tensor:
        k = len(values)
        left, right = (torch.linalg.qr(normal(rng, size, k, dtype=torch.float64))[0] for size in (m, n))
        made: Tensor = left * torch.tensor(values, dtype=torch.float64) @ right.T
        return made.float()

    def entries(m: int, n: int, *values: float) -> Tensor:
        k, made = len(values), torch.zeros(m, n)
        signs = 1.0 - 2 * torch.randint(2, (k,), generator=rng)
        made[torch.randperm(m, generator=rng)[:k], torch.randperm(n, generator=rng)[:k]] = signs * torch.tensor(values)
        return made * (1 + float(torch.rand((), generator=rng)))

    def case(name: str, delta: Tensor, r: int) -> Case:
        return Case(name=name, inputs={"delta": delta, "r": r})

    return [
        case("square", matrix(6, 6, 9, 6, 4, 2.5, 1.5, 0.5), 3),
        case("wide", matrix(4, 9, 8, 5, 3, 2), 2),
        case("tall", matrix(8, 5, 7, 5, 4, 2, 1), 3),
        case("r = 1", matrix(5, 7, 0.03, 0.02, 0.015, 0.01, 0.002), 1),
        case("r = m", matrix(3, 7, 5, 3, 2), 3),
        case("r = n", matrix(7, 4, 6, 4, 3, 2), 4),
        case("r = m = n", matrix(5, 5, 8, 5, 3, 2, 1), 5),
        case("r = 0", matrix(4, 6, 4, 3, 2, 1).double(), 0),
        case("rank below r", entries(6, 8, 300, 200), 4),
        case("zeros", torch.zeros(5, 4), 2),
        case("equal singular values", entries(6, 5, 4, 3, 3, 3, 1), 3),
        case(FAR_BELOW, entries(6, 7, 500, 20, 0.03, 0.01), 3),
        Case(name=NO_SQUARES, inputs={"delta": 1e-24 * matrix(5, 6, 9, 6, 4, 2, 1), "r": 3}, hard=True),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call; of the factors only the product and the shapes are looked at."""
    factors = outputs(answer(inputs["delta"], inputs["r"]), "B", "A")
    for name, each in factors.items():
        if not isinstance(each, Tensor) or each.dim() != 2:
            raise WrongOutput(f"{name} must be a tensor of two dimensions, got {_kind(each)}")
    B, A = factors["B"].detach(), factors["A"].detach()
    if B.shape[1] != A.shape[0]:
        raise WrongOutput(f"B A must be a product, got B of the shape {(*B.shape,)} and A of {(*A.shape,)}")
    product = (B.double() @ A.double()).to(torch.promote_types(B.dtype, A.dtype))
    shapes = {"B": [*B.shape], "A": [*A.shape]}
    return observe({"product": product, "shapes": {**shapes}, "dtypes": f"{B.dtype} and {A.dtype}"})


def _kind(value: object) -> str:
    return f"one of the shape {(*value.shape,)}" if isinstance(value, Tensor) else type(value).__name__


def _nearest(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: it is of rank r, and none is nearer, but for roundings."""
    delta, product = inputs["delta"].detach().double(), as_numbers(got["product"])
    if product is None or product.shape != delta.shape:
        return f"B A has the shape {(*cast(Tensor, got['product']).shape,)}, and delta {(*delta.shape,)}"
    values = torch.linalg.svdvals(delta)
    least = float(values[inputs["r"] :].norm())
    error = float((product - delta).norm())
    allowed = ROUNDINGS * EPS[case_dtype(inputs)] * float(values.max())
    if error < least - allowed:
        return f"an error of {error:.6g}, where no matrix of rank {inputs['r']} has one below {least:.6g}"
    if error <= least + allowed:
        return None
    return f"an error of {error:.6g}, where {least:.6g} is possible" if math.isfinite(error) else "not finite numbers"


def _shapes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: (m, r) and (r, n)."""
    (m, n), r = inputs["delta"].shape, inputs["r"]
    came = {name: tuple(cast(Tensor, got[f"shapes/{name}"]).tolist()) for name in "BA"}
    wrong = [
        f"{name} {came[name]}, not {shape}" for name, shape in (("B", (m, r)), ("A", (r, n))) if came[name] != shape
    ]
    return "; ".join(wrong) or None


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: both factors have the dtype of delta."""
    wanted = inputs["delta"].dtype
    return None if got["dtypes"] == f"{wanted} and {wanted}" else f"{got['dtypes']}, where delta is in {wanted}"


def _both(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the nearest matrix, from factors of the right shapes."""
    return _nearest(inputs, got, expected) or _shapes(inputs, got, expected)


EXERCISE = Exercise(
    id="lora.best_rank_r",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "the_least_error",
            "Another matrix of rank r is nearer to delta, or yours is not of rank r. Write delta as a sum of matrices "
            "of rank 1 that are orthogonal to each other: which r of them would you keep? (torch.svd_lowrank "
            "multiplies by a random matrix, and is only about the nearest.)",
            points=3,
            holds=_nearest,
            cases=USUAL,
        ),
        Property(
            "shapes",
            "B has the shape (m, r) and A the shape (r, n), in this order, also where delta is wide or tall.",
            holds=_shapes,
            cases=USUAL,
            needs=("the_least_error",),
        ),
        Property(
            "all_of_it",
            "Where r is the smaller of m and n, the product is delta itself, to the last digits of its dtype, and the "
            "factors still have r columns and rows.",
            holds=_both,
            cases=ALL_OF_IT,
        ),
        Property(
            "nothing",
            "With r = 0 the factors are empty, (m, 0) and (0, n), and their product is all zeros. values[-r:] is "
            "everything then.",
            holds=_both,
            cases=NOTHING,
            needs=("the_least_error",),
        ),
        Property(
            "degenerate",
            "Singular values may be 0, by which nobody can divide, or equal: then several matrices are as near, and "
            "all are right. The factors have r columns and rows all the same.",
            holds=_both,
            cases=DEGENERATE,
            needs=("the_least_error",),
        ),
        Property(
            "small_values",
            "A value far below the largest counts as well: r alone says how many are kept. The eigenvalues of a Gram "
            "matrix are the squares: a ten-thousandth squared is below what float32 can tell from 0 beside 1, and of "
            "numbers around 1e-24 the squares are 0 themselves.",
            points=2,
            holds=_nearest,
            cases=(FAR_BELOW, NO_SQUARES, TINY),
            needs=("the_least_error",),
        ),
        Property(
            "dtype_of_delta",
            "Both factors come in the dtype of delta. A finer one inside does no harm: turn the result back.",
            holds=_dtypes,
            cases=(*USUAL, *NOTHING, "in float64"),
            needs=("the_least_error",),
        ),
        dataclasses.replace(every_form(needs=("the_least_error",)), keys=(), holds=_both),
    ),
    hints=(
        "For a diagonal delta: which entries would you keep, and what is the error then? What turns any matrix into a "
        "diagonal one without changing a distance?",
        "torch.linalg.svd(delta, full_matrices=False) gives U, S and V', with S sorted from the largest on. The error "
        "is the root of the sum of the squares that are left out.",
        "Keep the first r columns of U, the first r values, and the first r rows of V'. The values belong into one of "
        "the two factors, once.",
    ),
    keeps=("delta",),
    forms=(
        in_dtype(torch.float64, "delta", of="r = m = n"),
        transposed("delta", of="wide"),
        strided("delta", of="wide"),
        offset("delta", of="wide", name="a piece of a longer tensor"),
        at_once("one row", cut("one row", delta=(0, 1)), put("r = 1", r=1), of="square"),
        at_once("one column", cut("one column", delta=(1, 1)), put("r = 1", r=1), of="tall"),
        at_once(TINY, put("", delta=torch.tensor([[3.0, 0.0], [0.0, 1e-8], [0.0, 0.0]], dtype=torch.float64), r=2)),
        at_once("large numbers", put("", delta=torch.tensor([[3e18, 0.0], [0.0, 1e18], [0.0, 0.0]]), r=1), of="r = 1"),
    ),
    promises={
        "(m, n), wide, tall or square": (*USUAL[:3], "one row", "one column"),
        "in float32 or float64": ("dtype_of_delta", "in float64"),
        "not changed": ("arguments_unchanged",),
        "from 0 to the smaller of m and n": ("nothing", "all_of_it"),
        "(B, A), of the shapes (m, r) and (r, n)": ("shapes", "degenerate"),
        "in the dtype of delta": ("dtype_of_delta",),
        "as small as any matrix of rank at most r makes it": ("the_least_error", "degenerate", "small_values"),
    },
)
