"""Wrong ways to write `orthogonalize`: the norm, then the polynomial, then transposing, dtypes and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.performing.exercise import Answer
from course.reference.optimizers.orthogonalize import A, B, C
from course.reference.optimizers.orthogonalize import orthogonalize as right


def over(norm: Tensor, g: Tensor) -> Tensor:
    """g over a norm that is bounded from below, as it should be."""
    return g / norm.clamp(min=1e-7)


def newton_schulz(x: Tensor, steps: int, a: float = A, b: float = B, c: float = C) -> Tensor:
    """The right steps, for any three coefficients; a wide Gram matrix for a tall x gives the same result."""
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def normalising(norm: Callable[[Tensor], Tensor]) -> Answer:
    """Right but for what g is divided by; it refuses nothing."""

    def answer(g: Tensor, steps: int = 5) -> Tensor:
        return newton_schulz(over(norm(g), g), steps)

    return answer


def with_coefficients(a: float, b: float, c: float) -> Answer:
    """Right but for these."""

    def answer(g: Tensor, steps: int = 5) -> Tensor:
        return newton_schulz(over(g.norm(), g), steps, a, b, c)

    return answer


def stepping(step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Answer:
    """Right but for what one step makes of X, of its Gram matrix, and of the Gram matrix of the first X."""

    def answer(g: Tensor, steps: int = 5) -> Tensor:
        tall = g.shape[0] > g.shape[1]
        x = over(g.norm(), g.T if tall else g)
        first = x @ x.mT
        for _ in range(steps):
            x = step(x, x @ x.mT, first)
        return x.T if tall else x

    return answer


def stays_transposed(g: Tensor, steps: int = 5) -> Tensor:
    """Transposed where tall, and handed back so."""
    return newton_schulz(over(g.norm(), g.T if g.shape[0] > g.shape[1] else g), steps)


def transposed_back_when_wide(g: Tensor, steps: int = 5) -> Tensor:
    """Transposed where tall; back where the result, which is always wide, is tall."""
    x = stays_transposed(g, steps)
    return x if x.shape[0] > x.shape[1] else x.T


def reshaped_back(g: Tensor, steps: int = 5) -> Tensor:
    """The right shape by reshape, which moves entries to other places."""
    return stays_transposed(g, steps).reshape(g.shape)


def until_it_settles(g: Tensor, steps: int = 5) -> Tensor:
    """All singular values 1, whatever `steps` says."""
    return newton_schulz(over(g.norm(), g), 30, 1.5, -0.5, 0.0)


def gram_schmidt(g: Tensor, steps: int = 5) -> Tensor:
    """QR, with the signs that Gram-Schmidt gives: one direction after the other."""
    tall = g.shape[0] >= g.shape[1]
    q, r = torch.linalg.qr(g if tall else g.T)
    signed: Tensor = q * r.diagonal().sign()
    return signed if tall else signed.T


def scales_the_update(g: Tensor, steps: int = 5) -> Tensor:
    """Muon's factor for tall matrices, which belongs to the learning rate."""
    return newton_schulz(over(g.norm(), g), steps) * math.sqrt(max(1.0, g.shape[0] / g.shape[1]))


def divides_zero_by_zero(g: Tensor, steps: int = 5) -> Tensor:
    """No lower bound of the norm."""
    right(g, steps)  # for its refusals
    return newton_schulz(g / g.norm(), steps)


def in_bfloat16(g: Tensor, steps: int = 5) -> Tensor:
    """As torch.optim.Muon does."""
    return newton_schulz(over(g.norm().bfloat16(), g.bfloat16()), steps)


def in_bfloat16_and_back(g: Tensor, steps: int = 5) -> Tensor:
    """The same in the dtype of g: the digits are gone."""
    return in_bfloat16(g, steps).to(g.dtype)


def in_float32_and_back(g: Tensor, steps: int = 5) -> Tensor:
    """float64 is rounded, and nothing shows it but the digits."""
    return right(g.float(), steps).to(g.dtype)


def in_float64(g: Tensor, steps: int = 5) -> Tensor:
    """Finer than asked."""
    return right(g.double(), steps)


def renormalising(g: Tensor, steps: int = 5) -> Tensor:
    """Divides by the norm before each step; at the end, too, the same as after each."""
    x = g
    for _ in range(steps):
        x = newton_schulz(over(x.norm(), x), 1)
    return x if steps else over(g.norm(), g)


MISCONCEPTIONS = (
    Misconception(
        name="norm_missing",
        witnesses=(normalising(lambda g: torch.ones(())),),
        hint="g goes into the steps as it is. The polynomial takes singular values of at most about 1 towards 1; from "
        "a little above that they run off to infinity, and from far below they need more steps. Divide by the norm "
        "first.",
    ),
    Misconception(
        name="norm_of_something_else",
        witnesses=(
            normalising(lambda g: g.abs().max()),
            normalising(lambda g: g.square().sum()),
            normalising(lambda g: torch.linalg.matrix_norm(g, 2)),
            normalising(lambda g: g.norm(dim=1, keepdim=True)),
            normalising(lambda g: g.norm(dim=0, keepdim=True)),
        ),
        hint="One number for the whole matrix, the root of the sum of all squares: g.norm(). A norm for each row or "
        "column changes the singular vectors; the largest entry may be less than a singular value. For matrices "
        "torch.linalg.norm(g, 2) is the largest singular value: the steps would work from there, even better, but it "
        "takes the very decomposition that they are to save.",
    ),
    Misconception(
        name="small_ones_not_normalised",
        witnesses=(normalising(lambda g: g.norm().clamp(min=1.0)),),
        hint="You divide only where the norm is above 1. Gradients are often tiny, and five steps take a singular "
        "value of 1e-4 no further than to 0.05. Divide always, whatever the norm is.",
    ),
    Misconception(
        name="normalises_in_every_step",
        witnesses=(renormalising, lambda g, steps=5: over(renormalising(g, steps).norm(), renormalising(g, steps))),
        hint="You divide by the norm in every step. k singular values near 1 make a norm near the root of k: who "
        "divides by that pushes them down again, and they never come to 1. Divide once, before the first step.",
    ),
    Misconception(
        name="other_coefficients",
        witnesses=(
            with_coefficients(A, C, B),
            with_coefficients(A, -B, C),
            with_coefficients(1.5, -0.5, 0.0),
            with_coefficients(2.0, -1.5, 0.5),
            with_coefficients(15 / 8, -10 / 8, 3 / 8),
        ),
        hint="3.4445 belongs to X, -4.7750 to (X X^T) X, and 2.0315 to (X X^T)^2 X; for a singular value of 1 they add "
        "up to 0.701. Coefficients that settle at exactly 1, like 1.5 and -0.5, are slow for small singular values: a "
        "step multiplies those by 1.5, or 2, where Muon's multiplies by 3.4.",
    ),
    Misconception(
        name="another_polynomial",
        witnesses=(
            stepping(lambda x, gram, first: A * x + B * x**3 + C * x**5),
            stepping(lambda x, gram, first: A * x + (B * gram + C * gram**2) @ x),
            stepping(lambda x, gram, first: A * x + (B + C) * gram @ x),
            stepping(lambda x, gram, first: (B * gram + C * gram @ gram) @ x),
            stepping(lambda x, gram, first: A * x + (B * x.T @ x + C * x.T @ x @ x.T @ x) @ x),
            stepping(lambda x, gram, first: A * x + (B * first + C * first @ first) @ x),
        ),
        hint="A step is a X + b A X + c A A X with A = X X^T, made anew from the X of each step: the powers 1, 3 and 5 "
        "of each singular value. All products are `@`; `**` and `*` work entry by entry. A stands on the left of X: "
        "X^T X would belong on its right.",
    ),
    Misconception(
        name="another_number_of_steps",
        witnesses=(
            lambda g, steps=5: right(g, max(steps - 1, 0)),
            lambda g, steps=5: right(g, steps + 1),
            lambda g, steps=5: right(g),
        ),
        hint="The polynomial is not applied `steps` times: once too often or too rarely, or always five times. With 0 "
        "steps the result is g over its norm.",
    ),
    Misconception(
        name="exactly_orthogonal",
        witnesses=(until_it_settles, gram_schmidt),
        hint="All singular values of your matrix are exactly 1. Asked for is what `steps` steps with the given "
        "coefficients make of g; the roughness is the price for the speed. QR and Gram-Schmidt also keep the direction "
        "of the first column (or row) and turn all others away from it, so that the singular vectors of g are lost.",
    ),
    Misconception(
        name="stays_transposed",
        witnesses=(stays_transposed, transposed_back_when_wide, reshaped_back),
        hint="The result is not transposed back. What was transposed before the steps must be after them, with .T and "
        "by the same condition: remember it, because the matrix in the loop is never tall. reshape gives the right "
        "shape and puts the entries in other places.",
    ),
    Misconception(
        name="scales_the_update",
        witnesses=(scales_the_update,),
        hint="Your result is orthogonalized and then multiplied by something. The factor for tall matrices belongs to "
        "the learning rate.",
    ),
    Misconception(
        name="zero_by_zero",
        witnesses=(divides_zero_by_zero,),
        fails=("zeros_stay_zeros",),
        hint="A gradient of zeros becomes nan, and with it the weights. Bound the norm from below: clamp(min=1e-7).",
    ),
    Misconception(
        name="in_bfloat16",
        witnesses=(in_bfloat16, in_bfloat16_and_back),
        hint="Two digits are all that is right: you compute in bfloat16. torch.optim.Muon does, and says so; here the "
        "dtype is that of g, so that the caller decides.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(in_float32_and_back, in_float64),
        fails=("dtype_of_g",),
        hint="Your result is right but for its dtype or its digits. It must come in the dtype of g; what is computed "
        "in float32 on the way has float32's seven digits, whatever it is converted to at the end.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(normalising(torch.norm),),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in torch's own error. A gradient of one "
        "dimension has no singular values, one of four must be reshaped by whoever knows how, and -1 steps are none. "
        "Raise a ValueError.",
    ),
)
