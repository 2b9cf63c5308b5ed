"""Wrong ways to write `orthogonalize`: the polynomial and how often it is applied.

Most come twice: with the refusals, and without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from autograder.bank import Misconception

Answer: TypeAlias = Callable[..., Tensor]
MUON = (3.4445, -4.7750, 2.0315)


def demand(g: Tensor, steps: int) -> None:
    """All refusals."""
    if g.dim() != 2 or steps < 0:
        raise ValueError(f"g must be a matrix and steps at least 0, got {g.dim()} dimensions and {steps}")


def both(answer: Answer) -> tuple[Answer, Answer]:
    """An answer with refusals and without."""

    @functools.wraps(answer)
    def refusing(g: Tensor, steps: int = 5) -> Tensor:
        demand(g, steps)
        return answer(g, steps)

    return refusing, answer


def frobenius(g: Tensor) -> Tensor:
    """g over its norm, rightly."""
    norm: Tensor = g.norm()
    return g / norm.clamp(min=1e-7)


def newton_schulz(x: Tensor, steps: int, coefficients: tuple[float, float, float] = MUON) -> Tensor:
    """The right steps, for any three coefficients; a wide Gram matrix for a tall x gives the same result."""
    a, b, c = coefficients
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def normalising(norm: Callable[[Tensor], Tensor]) -> Answer:
    """Right but for what g is divided by."""

    def answer(g: Tensor, steps: int = 5) -> Tensor:
        return newton_schulz(g / norm(g).clamp(min=1e-7), steps)

    return answer


def _with(a: float, b: float, c: float) -> Answer:
    def answer(g: Tensor, steps: int = 5) -> Tensor:
        return newton_schulz(frobenius(g), steps, (a, b, c))

    return answer


def _by(step: Callable[[Tensor], Tensor]) -> Answer:
    """Right but for what one step makes of X."""

    def answer(g: Tensor, steps: int = 5) -> Tensor:
        tall = g.shape[0] > g.shape[1]
        x = frobenius(g.T if tall else g)
        for _ in range(steps):
            x = step(x)
        return x.T if tall else x

    return answer


def _counting(count: Callable[[int], int]) -> Answer:
    def answer(g: Tensor, steps: int = 5) -> Tensor:
        return newton_schulz(frobenius(g), count(steps))

    return answer


A, B, C = MUON


def _powers_of_entries(x: Tensor) -> Tensor:
    return A * x + B * x**3 + C * x**5


def _square_of_entries(x: Tensor) -> Tensor:
    gram = x @ x.T
    return A * x + (B * gram + C * gram**2) @ x


def _second_power_missing(x: Tensor) -> Tensor:
    return A * x + (B + C) * x @ x.T @ x


def _powers_too_high(x: Tensor) -> Tensor:
    gram = x @ x.T
    return A * x + B * gram @ x + C * gram @ gram @ gram @ x


def _first_term_missing(x: Tensor) -> Tensor:
    gram = x @ x.T
    return (B * gram + C * gram @ gram) @ x


def _one_for_x(x: Tensor) -> Tensor:
    gram = x @ x.T
    return A + (B * gram + C * gram @ gram) @ x


def _normalised_again(x: Tensor) -> Tensor:
    return newton_schulz(frobenius(x), 1)


def _other_gram(x: Tensor) -> Tensor:
    gram = x.T @ x
    return A * x + (B * gram + C * gram @ gram) @ x


def gram_of_the_start(g: Tensor, steps: int = 5) -> Tensor:
    """The Gram matrix is made once, before the loop."""
    x = frobenius(g)
    gram = x @ x.mT
    for _ in range(steps):
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


def forgets_its_steps(g: Tensor, steps: int = 5) -> Tensor:
    """Every step starts from the normalised g."""
    return newton_schulz(frobenius(g), min(steps, 1))


def exact(g: Tensor, steps: int = 5) -> Tensor:
    """U V^T from a decomposition: all singular values are 1."""
    left, values, right = torch.linalg.svd(g, full_matrices=False)
    result: Tensor = (left * (values > 1e-7)) @ right
    return result


def until_it_settles(g: Tensor, steps: int = 5) -> Tensor:
    """The cubic iteration to its end, whatever `steps` says."""
    return newton_schulz(frobenius(g), 30, (1.5, -0.5, 0.0))


def _all_of(*answers: Any) -> tuple[Answer, ...]:
    return tuple(each for answer in answers for each in both(answer))


MISCONCEPTIONS = (
    Misconception(
        name="coefficients_exchanged",
        witnesses=_all_of(_with(A, C, B), _with(C, B, A), _with(B, A, C), _with(A, -B, C), _with(A, B, -C)),
        hint="The coefficients are in other places, or have another sign: 3.4445 belongs to X, -4.7750 to (X X^T) X, "
        "and 2.0315 to (X X^T)^2 X. For a singular value of 1 they add up to 0.701.",
    ),
    Misconception(
        name="cubic",
        witnesses=_all_of(_with(1.5, -0.5, 0.0), _with(2.0, -1.5, 0.5), _with(15 / 8, -10 / 8, 3 / 8)),
        hint="You have coefficients that settle at exactly 1, like 1.5 and -0.5. They are slow for small singular "
        "values: a step multiplies those by 1.5, or 2, where Muon's multiplies by 3.4. Five of these steps are too "
        "few; Muon takes speed, and gives the exact 1 away.",
    ),
    Misconception(
        name="entries_for_matrices",
        witnesses=_all_of(_by(_powers_of_entries), _by(_square_of_entries)),
        hint="`**` and `*` work entry by entry. The powers here are matrix products: X X^T X, and the Gram matrix "
        "times itself with `@`. Only they act on the singular values.",
    ),
    Misconception(
        name="other_powers",
        witnesses=_all_of(_by(_second_power_missing), _by(_powers_too_high), _by(_first_term_missing), _by(_one_for_x)),
        hint="A step is a X + b A X + c A A X with A = X X^T: the powers 1, 3 and 5 of each singular value. One of "
        "your three terms has another power, or is not there.",
    ),
    Misconception(
        name="normalises_every_step",
        witnesses=_all_of(_by(_normalised_again)),
        hint="You divide by the norm in every step. Near the end all singular values are about 1 and the norm is the "
        "root of their number: dividing makes them small again. Once, before the first step.",
    ),
    Misconception(
        name="gram_of_the_other_side",
        witnesses=_all_of(_by(_other_gram)),
        hint="X^T X belongs on the right of X, X X^T on its left. Mixed up, the shapes fit only for a square X, and "
        "its singular vectors are mixed too.",
    ),
    Misconception(
        name="gram_of_the_start",
        witnesses=_all_of(gram_of_the_start),
        hint="The Gram matrix is made once, of the X before the first step. Each step needs that of its own X.",
    ),
    Misconception(
        name="another_number_of_steps",
        witnesses=_all_of(
            _counting(lambda steps: max(steps - 1, 0)),
            _counting(lambda steps: steps + 1),
            _counting(lambda steps: 5),
            forgets_its_steps,
        ),
        hint="The polynomial is not applied `steps` times: once too often or too rarely, always five times, or always "
        "to the same X. With 0 steps the result is g over its norm.",
    ),
    Misconception(
        name="exactly_orthogonal",
        witnesses=_all_of(exact, until_it_settles),
        hint="Your matrix is U V^T, all singular values exactly 1: what Muon approximates. Asked for is what `steps` "
        "steps with its coefficients give; the roughness is the price for the speed.",
    ),
)
