"""`orthogonalize(g, steps)`: Muon's Newton-Schulz steps, judged by what they do to singular values and vectors."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

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
    every_form,
    in_the_dtype_of,
    observe,
)
from course.performing.forms import cut, equal, in_dtype, put, strided
from course.performing.refusals import all_refused, refused

LOWEST, HIGHEST = 0.64, 1.18  # 5 steps take all of [0.01, 1] into [0.6818, 1.1344]; bfloat16 strays by 0.03
OFF_DIAGONAL = 0.3  # of float32 it is 1e-5, of bfloat16 up to 0.17
ABOUT = 1 / 16  # of bfloat16 it is up to 0.04 after two steps
ROUNDINGS = 2_048  # a step takes a rounding up to 3.4 times as far, five up to 500 times; and sums of 8 products
WIDE, TALL = ("square", "wide"), ("tall",)
SCALES = {"entries of 1e-4": 1e-4, "entries of 1e12": 1e12}
SMALL = {"a norm of 5e-8": (5e-8, 0), "a norm of 2e-7": (2e-7, 0), "a norm of 5e-8, two steps": (5e-8, 2)}
STEPS = {"no step": 0, "one step": 1, "two steps": 2}
MANY = "seven steps"
FINE, ZEROS = "in float64", "zeros"


def cases(rng: torch.Generator) -> list[Case]:
    """Matrices with singular values from 40 down to 2, in random directions: condition number 20.

    The others are near 20, so that the least is at 4% of the norm: what gets into the band is no matter of chance. In
    one case a singular value is so small that it is at 0.06 after five steps and near 0.6 after seven; no sum mixes it
    with the other, so that bfloat16 shows that too.
    """
    slow = 4e-4 * (1 + float(torch.rand((), generator=rng)) / 8)

    def matrix(r: int, c: int, dtype: torch.dtype = torch.float32) -> Tensor:
        k = min(r, c)
        while True:
            left, right = (torch.linalg.qr(torch.randn(n, k, generator=rng, dtype=torch.float64))[0] for n in (r, c))
            if float((right if r >= c else left)[:, 1].abs().max()) < 0.8:  # else Gram-Schmidt may come near
                break
        between = torch.rand(k - 2, generator=rng, dtype=torch.float64) * 4 + 18
        made: Tensor = left * torch.cat([torch.tensor([40.0, 2.0]), between]) @ right.T
        return made.to(dtype)

    def turn(norm: float) -> Tensor:
        angle = 0.2 + torch.rand((), generator=rng) * 1.2  # no axis stays one
        return norm * torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2) / 2**0.5

    def case(name: str, g: Tensor, **steps: int) -> Case:
        return Case(name=name, inputs={"g": g, **steps})

    return [
        case("square", matrix(5, 5)),
        case("wide", matrix(4, 9)),
        case("tall", matrix(9, 4)),
        *(case(name, matrix(4, 6) * scale) for name, scale in SCALES.items()),
        *(case(name, matrix(6, 4), steps=steps) for name, steps in STEPS.items()),
        case(MANY, torch.tensor([[3.0, 0.0, 0.0], [0.0, slow, 0.0]]), steps=7),
        *(case(name, turn(norm), steps=steps) for name, (norm, steps) in SMALL.items()),
        case(FINE, matrix(3, 8, torch.float64) * 1e8),  # so large that 1e-7 beside the norm changes no digit
        case(ZEROS, torch.zeros(3, 2)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, without `steps` where the case names none; after that of one step some that make no sense follow."""
    g = inputs["g"]
    out = answer(g, inputs["steps"]) if "steps" in inputs else answer(g)
    if inputs.get("steps") != 1 or len(g) == 1:
        return observe({"out": out})
    nonsense = {
        "a number": lambda: answer(torch.ones(())),
        "a vector": lambda: answer(torch.ones(4)),
        "three dimensions": lambda: answer(torch.ones(2, 3, 4)),
        "three dimensions, the first of length 1": lambda: answer(torch.ones(1, 3, 4)),
        "-1 steps": lambda: answer(torch.ones(2, 3), -1),
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


def _about(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """The right numbers, whatever their digits."""
    out, right = _matrix(inputs, got), as_numbers(expected["out"])
    if isinstance(out, str) or right is None:
        return out if isinstance(out, str) else "no reference"
    error = float((out - right).abs().max())
    return None if error <= ABOUT else f"an entry that is {error:.2g} off"


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
            "A tall g may be transposed before the steps, so that X X^T has its shorter side and costs less; then the "
            "result must be transposed back, to the shape of g.",
            holds=_orthogonal,
            cases=TALL,
        ),
        Property(
            "every_number_of_steps",
            "`steps` says how often the polynomial is applied, 0 included, with a = 3.4445, b = -4.7750, c = "
            "2.0315: one step more or less, other coefficients or another norm give another matrix.",
            holds=_about,
            cases=(*STEPS, MANY),
        ),
        Property(
            "every_digit",
            "The numbers should be right to the digits of g's dtype. The second or third digit is lost where something "
            "inside is computed in bfloat16, and it is another where a coefficient or the norm is a little off. A g in "
            "float64 wants float64 throughout: float32 inside keeps seven digits.",
            cases=(*STEPS, MANY, FINE),
            roundings=ROUNDINGS,
        ),
        Property(
            "any_scale",
            "g and 1e8 g have the same result: the norm is divided out whether it is small or large.",
            holds=_orthogonal,
            cases=(*SCALES, FINE),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "small_norms",
            "X is g / its norm, however small that is, down to a norm of 1e-7; below that X is g / 1e-7. Another bound "
            "than 1e-7, or 1e-7 added to the norm, gives another X.",
            holds=_about,
            cases=tuple(SMALL),
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
            "The result comes in the dtype of g. torch.optim.Muon computes in bfloat16, which is a choice of the "
            "caller: here g itself would be in bfloat16 then.",
            holds=in_the_dtype_of("g", "out"),
            cases=(*WIDE, FINE, "in float16", "in bfloat16", "zeros in float64"),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError where g is no matrix, and where steps is negative.",
            holds=all_refused,
            cases=("one step",),
            needs=("singular_values_in_the_band",),
        ),
        Property(
            ARGUMENTS_UNCHANGED,
            "The caller's g was changed: div_ and /= write into the tensor that was handed in, also through g.T, "
            "which is a view of it. Use x = g / norm.",
            keys=(f"{AFTER}*",),
            roundings=0,
            hard=True,
            needs=("singular_values_in_the_band",),
        ),
        dataclasses.replace(every_form(needs=("every_number_of_steps",)), keys=(), holds=_about),
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
    forms=(
        in_dtype(torch.float16, "g", of="two steps"),
        in_dtype(torch.bfloat16, "g", of="two steps"),
        strided("g", of="two steps"),
        cut("one row", g=(0, 1), of="two steps"),
        cut("one column", g=(1, 1), of="two steps"),
        put("one number", g=torch.tensor([[-3.0]]), of="two steps"),
        equal("equal rows", g=0, of="two steps"),
        in_dtype(torch.float64, "g", of=ZEROS, name="zeros in float64"),
    ),
    promises={
        "(r, c), wide, tall or square": ("square", "wide", "tall_matrices", "one row", "one column", "one number"),
        "of a floating dtype": ("in float16", "in bfloat16", FINE),
        "of any scale": ("any_scale", "small_norms"),
        "not changed": ("arguments_unchanged",),
        "how often X <- a X + b (X X^T) X + c (X X^T)^2 X is applied": ("every_number_of_steps", "every_digit"),
        "1e-7 where the norm is less": ("small_norms",),
        "with 0 steps this X is returned": ("no step",),
        "in the dtype of g and computed in it (or a finer one)": ("dtype_of_g", "every_digit"),
        "the singular vectors of g": ("singular_vectors_of_g",),
        "lies between 0.64 and 1.18": ("singular_values_in_the_band",),
        "A g of zeros gives zeros": ("zeros_stay_zeros",),
        "a g that has not two dimensions": ("refuses_what_makes_no_sense",),
        "negative steps": ("refuses_what_makes_no_sense", "no step"),
    },
    removes=("torch.linalg.svd", "torch.svd", "torch.Tensor.svd", "torch.optim"),
)
