"""`orthogonalize(g, steps)`: Muon's Newton-Schulz steps, judged by what they do to singular values and vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import all_refused, refused
from course.performing.compare import as_numbers
from course.performing.exercise import (
    AFTER,
    ARGUMENTS_UNCHANGED,
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    observe,
)

LOWEST, HIGHEST = 0.65, 1.2  # 5 steps take all of [0.01, 1] into [0.6818, 1.1344]; bfloat16 strays by 0.01
OFF_DIAGONAL = 0.05  # of float32 it is 1e-5, of bfloat16 0.02
ROUNDINGS = 2_048  # a step takes a rounding up to 3.4 times as far, five up to 500 times; and sums of 8 products
FLOAT64_ERROR = 1e-9  # what float32 inside misses a hundredfold; a norm with the 1e-7 added to it reaches 1e-11
WIDE, TALL = ("square", "wide"), ("tall", "very tall")
SCALES = {"entries of 1e-4": 1e-4, "entries of 1e4": 1e4}
STEPS = {"no step": 0, "one step": 1, "two steps": 2, "four steps": 4, "seven steps": 7}
FINE, ZEROS = "in float64", "zeros"


def cases(rng: torch.Generator) -> list[Case]:
    """Matrices with singular values from 20 down to 1, in random directions: condition number 20.

    At most 8 of them, so that the least is above 1% of the norm.
    """

    def matrix(r: int, c: int, dtype: torch.dtype = torch.float32) -> Tensor:
        k = min(r, c)
        left, right = (torch.linalg.qr(torch.randn(n, k, generator=rng, dtype=torch.float64))[0] for n in (r, c))
        between = torch.rand(k - 2, generator=rng, dtype=torch.float64) * 19 + 1
        made: Tensor = left * torch.cat([torch.tensor([20.0, 1.0]), between]) @ right.T
        return made.to(dtype)

    def case(name: str, g: Tensor, **steps: int) -> Case:
        return Case(name=name, inputs={"g": g, **steps})

    return [
        case("square", matrix(5, 5)),
        case("wide", matrix(4, 9)),
        case("tall", matrix(9, 4)),
        case("very tall", matrix(12, 3)),
        *(case(name, matrix(4, 6) * scale) for name, scale in SCALES.items()),
        *(case(name, matrix(6, 5), steps=steps) for name, steps in STEPS.items()),
        case(FINE, matrix(3, 8, torch.float64) * 1e4),
        case(ZEROS, torch.zeros(3, 2)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, without `steps` where the case names none; where it names 0, some that make no sense follow."""
    g = inputs["g"]
    out = answer(g, inputs["steps"]) if "steps" in inputs else answer(g)
    if inputs.get("steps") != 0:
        return observe({"out": out})
    nonsense = {
        "a vector": lambda: answer(torch.ones(4)),
        "three dimensions": lambda: answer(torch.ones(2, 3, 4)),
        "negative steps": lambda: answer(torch.ones(2, 3), -1),
    }
    return observe({"out": out, "refused": {**refused(nonsense)}})


def _matrix(inputs: Inputs, got: Values) -> Tensor | str:
    """What came, in float64; or what is wrong with it: a decomposition wants numbers, and g's shape."""
    out, shape = as_numbers(got["out"]), inputs["g"].shape
    if out is None or out.shape != shape:
        return f"not a tensor of the shape {tuple(shape)}"
    return out if bool(torch.isfinite(out).all()) else "numbers that are not finite"


def _values_in_band(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether all singular values are in the band."""
    out = _matrix(inputs, got)
    if isinstance(out, str):
        return out
    values = torch.linalg.svdvals(out)
    if bool(((values >= LOWEST) & (values <= HIGHEST)).all()):
        return None
    return f"singular values from {values.min():.3g} to {values.max():.3g}, not from {LOWEST} to {HIGHEST}"


def _vectors_of_g(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether U^T out V, in the singular vectors of g, is diagonal and positive."""
    out = _matrix(inputs, got)
    if isinstance(out, str):
        return out
    left, _, right = torch.linalg.svd(inputs["g"].double(), full_matrices=False)
    inner = left.T @ out @ right.T
    stray = float((inner - inner.diagonal().diag()).abs().max())
    if not stray <= OFF_DIAGONAL * float(out.abs().max()):
        return f"up to {stray:.3g} between different singular vectors of g"
    return None if bool((inner.diagonal() > 0).all()) else "a singular vector with its sign turned"


def _orthogonal(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Both of the above."""
    return _values_in_band(inputs, got, expected) or _vectors_of_g(inputs, got, expected)


def _in_the_dtype_of_g(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether the result has g's dtype, and for float64 its digits too."""
    out, right, wanted = got["out"], expected["out"], inputs["g"].dtype
    if not (isinstance(out, Tensor) and isinstance(right, Tensor)):
        return "no tensor"
    if out.dtype != wanted:
        return f"a result in {out.dtype}, where g is in {wanted}"
    error = float((out.double() - right.double()).abs().max())
    if wanted != torch.float64 or error <= FLOAT64_ERROR:
        return None
    return f"float64 with an error of {error:.1g}: something inside was coarser"


EXERCISE = Exercise(
    id="optimizers.orthogonalize",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "singular_values_in_the_band",
            f"After 5 steps every singular value lies between {LOWEST} and {HIGHEST}. A step works for singular "
            "values of at most 1: divide g by its Frobenius norm first, which none of them exceeds.",
            holds=_values_in_band,
            cases=WIDE,
        ),
        Property(
            "singular_vectors_of_g",
            "a X + b (X X^T) X + c (X X^T)^2 X has the singular vectors of X. Another order of the factors has "
            "not, nor has an entry-wise power.",
            holds=_vectors_of_g,
            cases=WIDE,
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "tall_matrices",
            "A tall g is best transposed before the steps, so that X X^T has its shorter side; then the result "
            "must be transposed back, to the shape of g.",
            holds=_orthogonal,
            cases=TALL,
        ),
        Property(
            "every_number_of_steps",
            "`steps` says how often the polynomial is applied, 0 included, with a = 3.4445, b = -4.7750, c = "
            "2.0315: one step more or less, other coefficients or another norm give another matrix.",
            points=2,
            cases=tuple(STEPS),
            roundings=ROUNDINGS,
        ),
        Property(
            "any_scale",
            "g and 1e8 g have the same result: the norm is divided out whether it is small or large.",
            holds=_orthogonal,
            cases=tuple(SCALES),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "zeros_stay_zeros",
            "A layer that was not used has a gradient of zeros, and 0 / 0 is nan: never divide by less than 1e-7.",
            cases=(ZEROS,),
            roundings=0,
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "dtype_of_g",
            "The result comes in the dtype of g, and is computed in it or a finer one. torch.optim.Muon computes "
            "in bfloat16, which is a choice of the caller: here g itself would be in bfloat16 then.",
            holds=_in_the_dtype_of_g,
            cases=(*WIDE, FINE),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError where g is no matrix, and where steps is negative.",
            holds=all_refused,
            cases=("no step",),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            ARGUMENTS_UNCHANGED,
            "The caller's g was changed: div_ and /= write into the tensor that was handed in, also through g.T, "
            "which is a view of it. Use x = g / norm.",
            keys=(f"{AFTER}*",),
            roundings=0,
            needs=("singular_values_in_the_band",),
        ),
    ),
    hints=(
        "In the basis of singular vectors X is diagonal. What are X X^T and (X X^T) X there, and so what does one step "
        "do to a singular value s?",
        "Normalise by a norm that is at least the largest singular value. Then each step needs three products: the "
        "Gram matrix A = X X^T, A A, and (b A + c A A) X.",
        "Transpose if tall; divide by the norm, but not by less than 1e-7; repeat `steps` times X <- a X + (b A + c A "
        "A) X with A = X X^T; transpose back if you did. Nothing in place on g itself.",
    ),
    keeps=("g",),
    removes=("torch.linalg.svd", "torch.svd", "torch.Tensor.svd", "torch.optim"),
)
