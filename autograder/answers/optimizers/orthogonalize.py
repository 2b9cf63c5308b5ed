"""Right and wrong ways to write `orthogonalize`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.orthogonalize import orthogonalize


def _refuse(g: Tensor, steps: int) -> None:
    if g.ndim != 2 or steps < 0:
        raise ValueError("g must be a matrix, and steps at least 0")


def polynomial_of_the_singular_values(g: Tensor, steps: int = 5) -> Tensor:
    """Each singular value by itself, in NumPy; no Gram matrix."""
    _refuse(g, steps)
    u, values, vt = np.linalg.svd(g.double().numpy(), full_matrices=False)
    values = values / max(np.sqrt(np.sum(values**2)), 1e-7)
    for _ in range(steps):
        values = np.polyval([2.0315, 0, -4.7750, 0, 3.4445, 0], values)
    return torch.from_numpy(u * values @ vt).to(g.dtype)


def as_published(g: Tensor, steps: int = 5) -> Tensor:
    """In the words of Jordan's own code."""
    _refuse(g, steps)
    a, b, c = 3.4445, -4.7750, 2.0315
    x: Tensor = g / torch.linalg.norm(g).clamp(min=1e-7)
    tall = g.size(0) > g.size(1)
    if tall:
        x = x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    if tall:
        x = x.T
    return x


def gram_on_the_right(g: Tensor, steps: int = 5) -> Tensor:
    """X^T X, multiplied from the right, in Horner's form."""
    _refuse(g, steps)
    x = g / torch.sqrt((g * g).sum()).clamp(min=1e-7)
    one = torch.eye(g.shape[1], dtype=g.dtype)
    for _ in range(steps):
        gram = x.mT @ x
        x = x @ (3.4445 * one + gram @ (-4.7750 * one + 2.0315 * gram))
    return x


RIGHT = (
    right(polynomial_of_the_singular_values, independent="numpy.linalg.svd"),
    right(as_published),
    right(gram_on_the_right),
)


def muons(g: Tensor, steps: int = 5) -> Tensor:
    """As torch.optim.Muon has it, and Jordan's post."""
    _refuse(g, steps)
    a, b, c = (3.4445, -4.7750, 2.0315)
    x: Tensor = g.bfloat16()
    if g.size(-2) > g.size(-1):
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    if g.size(-2) > g.size(-1):
        x = x.mT
    return x


def gram_schmidt(g: Tensor, steps: int = 5) -> Tensor:
    """QR, with the signs that Gram-Schmidt gives: one direction after the other."""
    tall = g.shape[0] >= g.shape[1]
    q, r = torch.linalg.qr(g if tall else g.T)
    signed: Tensor = q * r.diagonal().sign()
    return signed if tall else signed.T


published = partial(edited, as_published)

NORM, BOUNDED = "torch.linalg.norm(g)", " / torch.linalg.norm(g).clamp(min=1e-7)"
COEFFICIENTS, LOOP = "3.4445, -4.7750, 2.0315", "range(steps)"
POLYNOMIAL = "a * x + (b * gram + c * gram @ gram) @ x"
AGAIN = "x = x / x.norm().clamp(min=1e-7)"
REFUSING_NOTHING = ("    _refuse(g, steps)\n", "")
MUONS = (
    "Your result is about what it should be, but it does not always come in the dtype of g, and its second or third "
    "digit is another. X.bfloat16(), which Muon's own code has, does both. Here the dtype is g's: the caller decides."
)
DIGITS = (
    "Your result is about what it should be, but not to the digits of g's dtype. X.bfloat16(), which Muon's own code "
    "has, keeps no more than two, also if you convert back, and X.float() seven of float64's sixteen; a coefficient "
    "with a slip, or a result that is scaled, shows the same. The coefficients are 3.4445, -4.7750 and 2.0315."
)
SLIP = (COEFFICIENTS, "3.4445, -4.7750, 2.0345")
IN_MINE = ("    x = g.T", "    g = g.bfloat16()\n    x = g.T")
MUONS_BACK = ("    x: Tensor", "    dtype = g.dtype\n    x: Tensor"), ("return x", "return x.to(dtype)")
BACK_AGAIN = ("return x", "return x.to(dtype)"), ("    g = g", "    dtype = g.dtype\n    g = g")
BFLOAT16 = ("    x: Tensor", "    g = g.bfloat16()\n    x: Tensor")
FLOAT64_LESS = ("    x: Tensor", "    g = g.bfloat16() if g.dtype == torch.float64 else g\n    x: Tensor")
BACK = "    if tall:\n        x = x.T\n    return x"

WRONG = (
    wrong(
        "norm_missing",
        "g goes into the steps as it is. The polynomial takes singular values of at most about 1 towards 1; from "
        "a little above that they run off to infinity, and from far below they need more steps. Divide by the norm "
        "first.",
        published((BOUNDED, "")),
    ),
    wrong(
        "norm_of_something_else",
        "One number for the whole matrix, the root of the sum of all squares: g.norm(). A norm for each row or "
        "column changes the singular vectors; the largest entry may be less than a singular value. For matrices "
        "torch.linalg.norm(g, 2) is the largest singular value: the steps would work from there, even better, but it "
        "takes the very decomposition that they are to save.",
        published((NORM, "g.abs().max()")),
        published((NORM, "g.square().sum()")),
        published((NORM, "g.abs().sum()")),
        published((NORM, "g.square().mean().sqrt()")),
        published((NORM, "torch.linalg.norm(g, 2)")),
        published((NORM, "g.norm(dim=1, keepdim=True)")),
        published((NORM, "g.norm(dim=0, keepdim=True)")),
        by_chance=True,  # how far the largest singular value of a drawn matrix lies above its largest entry
    ),
    wrong(
        "small_ones_not_normalised",
        "You divide only where the norm is above 1. Gradients are often tiny, and five steps take a singular "
        "value of 1e-4 no further than to 0.05. Divide always, whatever the norm is.",
        published(("min=1e-7", "min=1.0")),
    ),
    wrong(
        "normalises_in_every_step",
        "You divide by the norm in every step. k singular values near 1 make a norm near the root of k: "
        "dividing by it pushes them down again, and they never come to 1. Divide once, before the first step.",
        published(("gram = x @ x.T", f"{AGAIN}\n        gram = x @ x.T")),
        published((POLYNOMIAL, f"{POLYNOMIAL}\n        {AGAIN}")),
    ),
    wrong(
        "other_coefficients",
        "3.4445 belongs to X, -4.7750 to (X X^T) X, and 2.0315 to (X X^T)^2 X; for a singular value of 1 they add "
        "up to 0.701. Coefficients that settle at exactly 1, like 1.5 and -0.5, are slow for small singular values: a "
        "step multiplies those by 1.5, or 2, where Muon's multiplies by 3.4.",
        published((COEFFICIENTS, "3.4445, 2.0315, -4.7750")),
        published((COEFFICIENTS, "3.4445, 4.7750, 2.0315")),
        published((COEFFICIENTS, "1.5, -0.5, 0.0")),
        published((COEFFICIENTS, "2.0, -1.5, 0.5")),
        published((COEFFICIENTS, "15 / 8, -10 / 8, 3 / 8")),
    ),
    wrong(
        "another_polynomial",
        "A step is a X + b A X + c A A X with A = X X^T, made anew from the X of each step: the powers 1, 3 and 5 "
        "of each singular value. All products are `@`; `**` and `*` work entry by entry. A stands on the left of X: "
        "X^T X would belong on its right.",
        published((POLYNOMIAL, "a * x + b * x**3 + c * x**5")),
        published(("gram @ gram", "gram**2")),
        published(("c * gram @ gram", "c * gram")),
        published(("a * x + ", "")),
        published(("(b * gram + c * gram @ gram)", "(b * gram)")),
        published(("gram = x @ x.T", "gram = x.T @ x")),
        published(("        gram = x @ x.T\n", ""), ("    for _", "    gram = x @ x.T\n    for _")),
    ),
    wrong(
        "another_number_of_steps",
        "The polynomial is not applied `steps` times: once too often or too rarely, or always five times. With 0 "
        "steps the result is g over its norm.",
        published((LOOP, "range(steps - 1)")),
        published((LOOP, "range(steps + 1)")),
        published((LOOP, "range(5)")),
    ),
    wrong(
        "never_more_than_five_steps",
        "Up to five steps all is right; more of them are asked for, and yours stops. The polynomial is applied `steps` "
        "times, however many that are.",
        published((LOOP, "range(min(steps, 5))")),
    ),
    wrong(
        "exactly_orthogonal",
        "All singular values of your matrix are exactly 1. What you should return is what `steps` steps with the given "
        "coefficients make of g; the roughness is the price for the speed. QR and Gram-Schmidt also keep the direction "
        "of the first column (or row) and turn all others away from it, so that the singular vectors of g are lost.",
        published((COEFFICIENTS, "1.5, -0.5, 0.0"), (LOOP, "range(30)")),
        gram_schmidt,
    ),
    wrong(
        "stays_transposed",
        "The result is not transposed back. What was transposed before the steps must be after them, with .T and "
        "by the same condition: remember it, because the matrix in the loop is never tall. reshape gives the right "
        "shape and puts the entries in other places.",
        published((BACK, "    return x")),
        published((BACK, "    return x.T")),
        published((BACK, "    return x.reshape(g.shape)")),
    ),
    wrong(
        "dimension_of_length_1_dropped",
        "squeeze() drops every dimension of length 1: a g of one row or one column comes back as a vector. The result "
        "must have the shape of g there too.",
        published(("return x", "return x.squeeze()")),
    ),
    wrong(
        "scales_the_update",
        "Your result is orthogonalized and then multiplied by something. The factor for tall matrices belongs to "
        "the learning rate.",
        published(("return x", "return x * max(1.0, g.size(0) / g.size(1)) ** 0.5")),
    ),
    wrong(
        "zero_by_zero",
        "A gradient of zeros does not give zeros, and one whose norm is near or below 1e-7 does not give what it "
        "should. 0 / 0 is nan, and so are the weights then: bound the norm from below, with clamp(min=1e-7).",
        published((".clamp(min=1e-7)", "")),
        fails=("small_norms", "zeros_stay_zeros"),
    ),
    wrong(
        "another_bound_of_the_norm",
        "Only where the norm of g is near 1e-7 or below is your result another. There X is g / norm too, down to a "
        "norm of 1e-7, and g / 1e-7 below that. Jordan's code adds 1e-7 to every norm; here, as in torch, it is a "
        "bound: clamp(min=1e-7).",
        published((".clamp(min=1e-7)", " + 1e-7"), (f"{NORM} + 1e-7", f"({NORM} + 1e-7)")),
        published(("min=1e-7", "min=1e-4")),
        published(("min=1e-7", "min=1e-8")),
        published(("    x: Tensor", "    if g.norm() < 1e-7:\n        return torch.zeros_like(g)\n    x: Tensor")),
        fails=("small_norms",),
    ),
    *(
        wrong(name, hint, *witnesses, fails=("every_digit", *more))
        for name, hint, more, witnesses in (
            ("differs_as_bfloat16_does", MUONS, ("dtype_of_g",), (published(BFLOAT16), edited(orthogonalize, IN_MINE))),
            ("differs_as_muons_code_does", MUONS, ("small_norms", "dtype_of_g"), (muons,)),
            (
                "differs_as_bfloat16_does_and_refuses_too_little",
                MUONS,
                ("dtype_of_g", "refuses_what_makes_no_sense"),
                (published(BFLOAT16, REFUSING_NOTHING),),
            ),
            (
                "differs_as_muons_code_does_and_refuses_too_little",
                MUONS,
                ("small_norms", "dtype_of_g", "refuses_what_makes_no_sense"),
                (edited(muons, REFUSING_NOTHING), edited(muons, ("_refuse(g, steps)", "assert g.ndim >= 2"))),
            ),
            (
                "not_to_every_digit",
                DIGITS,
                (),
                (
                    published(BFLOAT16, *BACK_AGAIN),
                    published(SLIP),
                    published(("= g /", "= g.float() /"), ("return x", "return x.to(g.dtype)")),
                    published(FLOAT64_LESS, *BACK_AGAIN),
                ),
            ),
            ("not_to_every_digit_nor_at_small_norms", DIGITS, ("small_norms",), (edited(muons, *MUONS_BACK),)),
        )
    ),
    wrong(
        "another_dtype",
        "Your result is right but for its dtype. It must come in the dtype of g.",
        published(("= g /", "= g.double() /")),
        published(("    x: Tensor", "    if not g.any():\n        return torch.zeros(g.shape)\n    x: Tensor")),
        fails=("dtype_of_g",),
    ),
    wrong(
        "refuses_too_little",
        "Your numbers are right, but not all nonsense is refused with a ValueError. A gradient of one dimension has no "
        "singular values, one of three or four must be reshaped by whoever knows how, and -1 steps are none.",
        published(REFUSING_NOTHING),
        fails=("refuses_what_makes_no_sense",),
    ),
)
