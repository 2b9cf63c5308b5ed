"""`compensated_bound(n, u)`: how far a compensated sum may be off.

Judged as an inequality. From below by an input on which the sum is as far off as we can make it (`reached`, in exact
arithmetic). From above by `LOOSE` times the reference's bound, the least that we can prove; for one number and for two
by `FEW` u. A generous proof may end at 2 u + 2 n u^2, which is within 12% for every n and u that are allowed; 2.25 u,
which holds for all of them, is too loose. A bound that is too small by less than we can show counts as right: by
u 2^-d + 4 u^2, d the doublings of the input, and by u / 2 for three numbers.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch

from course.lessons.experiments.sums import reached
from course.performing.draws import integer
from course.performing.exercise import Case, Exercise, Inputs, Property, Values, one_call

LOOSE = 1.12  # how far above the least that is proved a bound may be
FEW = 2.1  # in u, how large a bound for one number or two may be
ROUNDINGS = 1e-9  # relative: a bound is computed in float64


def cases(rng: torch.Generator) -> list[Case]:
    """Few numbers in many digits, where u^2 is nothing; nearly 1 / (4 u) numbers; and the least there are."""
    draw = partial(integer, rng)

    drawn = {
        "some numbers in float32": (draw(20, 40), 24),
        "a thousand numbers in float32": (draw(900, 1100), 24),
        "some numbers in float64": (draw(20, 40), 53),
        "half as many in float16": (draw(200, 240), 11),
        "many numbers in float16": (draw(460, 500), 11),
        "many numbers in bfloat16": (draw(58, 63), 8),
        "many numbers in 14 digits": (draw(3900, 4000), 14),
        "one number": (1, draw(8, 12)),
        "two numbers": (2, draw(8, 12)),
        "three numbers": (3, draw(8, 12)),
    }
    return [Case(name=name, inputs={"n": n, "u": 2.0**-digits}) for name, (n, digits) in drawn.items()]


def _between(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: a bound that no input breaks, and that is not too loose. In multiples of u."""
    n, u, bound = inputs["n"], inputs["u"], float(cast(float, got["bound"]))
    least = float(reached(n, u))
    if not bound >= least * (1 - ROUNDINGS):
        return f"B = {bound / u:.6g} u for n = {n}, where an input is off by {least / u:.6g} u times its sum |x|"
    if n < 3:
        return None if bound <= FEW * u else f"B = {bound / u:.6g} u for n = {n}, where at most {FEW:g} u may be"
    if not bound <= LOOSE * cast(float, expected["bound"]):
        return f"B = {bound / u:.6g} u for n = {n} is more than {LOOSE - 1:.0%} above the least that can be proved"
    return None


EXERCISE = Exercise(
    id="mixed_precision.compensated_bound",
    cases=cases,
    probe=one_call("n", "u", gives=("bound",)),
    properties=(
        Property(
            "first_order",
            "With few numbers and many digits only the terms with one u count. What is lost in y is carried nowhere, "
            "and neither is the last loss: how often can each of the two happen to a number of the sum?",
            points=2,
            holds=_between,
            cases=("some numbers in float32", "a thousand numbers in float32", "some numbers in float64"),
        ),
        Property(
            "second_order",
            "With n u near 1/4 the terms with u^2 count, and what they add grows with n. Which rounding sees lost, and "
            "how large may all |lost| together be?",
            points=2,
            holds=_between,
            cases=(
                "half as many in float16",
                "many numbers in float16",
                "many numbers in bfloat16",
                "many numbers in 14 digits",
            ),
        ),
        Property(
            "few_numbers",
            "A bound must hold, and be near enough, for one number, for two and for three as well.",
            holds=_between,
            cases=("one number", "two numbers", "three numbers"),
        ),
    ),
    hints=(
        "What changes s + lost in one step? Nothing is lost in s' + lost'. So what is the one rounding that counts, "
        "and which part of s + lost is not returned?",
        "Write the error as a sum over the steps and one term more. Bound each term by u times something, and say how "
        "large all |lost| together may be.",
        "With A = sum |x| and T the sum of all |lost| but the last: the error is at most u (A + T) and the last loss. "
        "Every loss is at most u times a sum, and that sum at most A + u (A + T). Add up n - 1 of them, solve for T.",
    ),
    promises={
        "at least 1": ("one number", "two numbers"),
        "a power of 2, at most 1/256 (bf16), with n u at most 1/4": (
            "many numbers in bfloat16",
            "many numbers in float16",
            "some numbers in float64",
        ),
        "for every n numbers of the format": ("first_order", "second_order", "few_numbers"),
        "within 12% of the least that we can prove": ("first_order", "second_order", "three numbers"),
        "for n below 3 it may be up to 2.1 u": ("one number", "two numbers"),
    },
)
