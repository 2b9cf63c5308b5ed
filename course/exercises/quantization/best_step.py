"""`best_step(bits)`: the step of the symmetric grid that serves a standard normal number best.

What is judged is the mean squared error that a step leaves, beside those that the best step leaves when it is changed
by one part in 10,000. The error is in closed form: in each piece of the line the grid's value is constant, and the
integrals of p, x p and x^2 p over a piece are differences of Q, p and Q + t p.
"""

from __future__ import annotations

import math

import torch

from course.performing.compare import as_numbers, describe
from course.performing.exercise import Case, Exercise, Inputs, Property, Values, one_call

PART = 1e-4  # by which a step may be off, as the docstring says


def name(bits: int) -> str:
    """Of the case with so many bits."""
    return f"{bits} bits"


FEW, MIDDLE, MANY = (2, 3), (4, 5, 6), (7, 8)


def cases(rng: torch.Generator) -> list[Case]:
    """All numbers of bits; there is nothing to draw."""
    return [Case(name=name(bits), inputs={"bits": bits}) for bits in range(2, 9)]


def squared_error(step: float, bits: int) -> float:
    """Of a standard normal number on the grid.

    Its roundings are about 1e-15. With 8 bits one part in 10,000 of the best step is 1e-11 of error, with fewer more.
    """
    top = 2 ** (bits - 1) - 1
    return 2 * math.fsum(
        _piece(k * step, -step / 2 if k else 0.0, step / 2 if k < top else math.inf) for k in range(top + 1)
    )


def _piece(value: float, left: float, right: float) -> float:
    """The integral of (x - value)^2 p(x) for x - value from left to right."""
    (q, p, s), (q2, p2, s2) = _beyond(value + left), _beyond(value + right)
    return (s - s2) - 2 * value * (p - p2) + value**2 * (q - q2)


def _beyond(t: float) -> tuple[float, float, float]:
    """The integrals of p, x p and x^2 p from t on."""
    if math.isinf(t):
        return 0.0, 0.0, 0.0
    p, q = math.exp(-t * t / 2) / math.sqrt(2 * math.pi), math.erfc(t / math.sqrt(2)) / 2
    return q, p, q + t * p


def _at_most(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no more error than the best step leaves that is changed by one part in 10,000."""
    bits, found, ours = inputs["bits"], as_numbers(got["step"]), as_numbers(expected["step"])
    if found is None or found.numel() != 1 or found.is_complex():
        return f"step must be one number, got {describe(got['step'])}"
    step, best = float(found), float(ours) if ours is not None else math.nan
    if not (math.isfinite(step) and step > 0):
        return f"step must be finite and above 0, got {step:.6g}"
    error = squared_error(step, bits)
    allowed = max(squared_error(best * (1 - PART), bits), squared_error(best * (1 + PART), bits))
    if error <= allowed:
        return None
    return f"step {step:.6g} leaves an error of {error:.9g}, and {allowed:.9g} is possible within one part in 10,000"


EXERCISE = Exercise(
    id="quantization.best_step",
    cases=cases,
    probe=one_call("bits", gives=("step",)),
    properties=(
        Property(
            "least_error",
            "Another step has a smaller mean squared error. Between values a number is rounded, and beyond the last "
            "one it is cut off: both errors count, each times the density of normal numbers.",
            points=4,
            holds=_at_most,
            cases=tuple(name(bits) for bits in MIDDLE),
        ),
        Property(
            "few_bits",
            "With 2 bits the best step is above 1: does your search go so far? And are the values of the grid those "
            "from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1 times step, 0 among them?",
            points=2,
            holds=_at_most,
            cases=tuple(name(bits) for bits in FEW),
        ),
        Property(
            "many_bits",
            "With 8 bits the best step is about 0.03, and one part in 10,000 of it is little: sums over points or "
            "random numbers are too coarse, and a search has to go on for long enough.",
            points=2,
            holds=_at_most,
            cases=tuple(name(bits) for bits in MANY),
        ),
    ),
    hints=(
        "For which x is k step the nearest value? And for which is the last one?",
        "In each of these pieces you need the integrals of p, x p and x^2 p. From t on they are q = "
        "erfc(t / sqrt 2) / 2, p(t), and q + t p(t).",
        "A function error(step) that adds up all pieces, the last one up to infinity; then narrow down an interval in "
        "which the least error lies, by a third each time.",
    ),
    promises={
        "from 2 to 8": ("few_bits", "least_error", "many_bits"),
        "the last one where it lies outside": ("least_error",),
        "a float, right to one part in 10,000": ("few_bits", "least_error", "many_bits"),
    },
)
