"""Right and wrong ways to write `best_step`."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.best_step import best_step


def where_the_slope_is_zero(bits: int) -> float:
    """Bisection on the derivative, sum over k of k times the integral of (k step - x) p over the piece of k."""
    top = 2 ** (bits - 1) - 1
    k = torch.arange(1, top + 1, dtype=torch.float64)

    def slope(step: float) -> float:
        edges = torch.cat([(k - 0.5) * step, torch.tensor([math.inf], dtype=torch.float64)])
        q, p = torch.erfc(edges / math.sqrt(2)) / 2, (-edges.square() / 2).exp() / math.sqrt(2 * math.pi)
        return float((k * (k * step * -q.diff() + p.diff())).sum())

    low, high = 1e-3, 10.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


def by_quadrature(bits: int) -> float:
    """NumPy's Gauss-Legendre points in each piece, and a golden section."""
    top = 2 ** (bits - 1) - 1
    points, weights = np.polynomial.legendre.leggauss(40)

    def error(step: float) -> float:
        last = (top - 0.5) * step + np.array([0.4, 0.8, 1.6, 3.2, 6.4, 12.8])
        edges = np.append(np.maximum(np.arange(-0.5, top) * step, 0), last)
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        x = middle + half * points
        near = np.minimum(np.rint(x / step), top) * step
        return float((half * weights * (x - near) ** 2 * np.exp(-(x**2) / 2)).sum())

    golden = (math.sqrt(5) - 1) / 2
    low, high = 0.01, 2.0
    inner = [high - golden * (high - low), low + golden * (high - low)]
    errors = [error(each) for each in inner]
    for _ in range(45):
        if errors[0] < errors[1]:
            high, inner[1], errors[1] = inner[1], inner[0], errors[0]
            inner[0] = high - golden * (high - low)
            errors[0] = error(inner[0])
        else:
            low, inner[0], errors[0] = inner[0], inner[1], errors[1]
            inner[1] = low + golden * (high - low)
            errors[1] = error(inner[1])
    return (low + high) / 2


RIGHT = (
    right(by_quadrature, independent="numpy's Gauss-Legendre quadrature"),
    right(where_the_slope_is_zero),
)


def from_a_sample(bits: int) -> float:
    """The best of some steps for normal numbers that are drawn."""
    top, x = 2 ** (bits - 1) - 1, torch.randn(20_000)
    steps: list[float] = [2 * each / top / 40 for each in range(20, 100)]
    errors = [float((x - (x / step).round().clamp(-top, top) * step).square().mean()) for step in steps]
    return steps[errors.index(min(errors))]


def reaches_three_deviations(bits: int) -> float:
    """A rule of thumb."""
    top: int = 2 ** (bits - 1) - 1
    return 3 / top


best = partial(edited, best_step)
TOP = "top = 2 ** (bits - 1) - 1"
END = "(k + 0.5) * step if k < top else 40.0"
INTERVAL = "low, high = 0.01, 3.0"
TERMS = "s - 2 * k * step * p + (k * step) ** 2 * q"
RETURN = "return (low + high) / 2"

WRONG = (
    wrong(
        "a_rule_of_thumb",
        "You let the grid end at a fixed number of standard deviations. The more bits, the farther out the best grid "
        "ends, because rounding costs less and less: the step has to be searched for.",
        reaches_three_deviations,
        edited(reaches_three_deviations, ("3 /", "4 /")),
    ),
    wrong(
        "cut_off_forgotten",
        "You add up the errors of rounding only. Numbers beyond the last value are cut off, and their errors count as "
        "well: the sum over k goes up to 2**(bits - 1) - 1, and the last piece up to infinity.",
        best((END, "(k + 0.5) * step")),
        best(("range(top + 1)", "range(top)")),
    ),
    wrong(
        "zero_left_out",
        "You leave out what is rounded to 0, where most numbers are.",
        best(("range(top + 1)", "range(1, top + 1)")),
    ),
    wrong(
        "off_by_one_level",
        "Your grid has another number of values: they are step times the integers from -(2**(bits - 1) - 1) to "
        "2**(bits - 1) - 1.",
        best((TOP, "top = 2 ** (bits - 1)")),
        best((TOP, "top = 2**bits - 1")),
    ),
    wrong(
        "no_value_at_zero",
        "Your values lie at odd multiples of half a step, as in Max's table for even numbers of them. Here 0 is one.",
        best(
            (TOP, "top = 2 ** (bits - 1) - 1"),
            ("max(k - 0.5, 0) * step, " + END, "k * step, (k + 1) * step if k < top else 40.0"),
            (TERMS, "s - (2 * k + 1) * step * p + ((k + 0.5) * step) ** 2 * q"),
        ),
    ),
    wrong(
        "another_error",
        "You look for the least mean of another error than the square.",
        best((TERMS, "abs(p - k * step * q)")),
    ),
    wrong(
        "end_of_the_grid",
        "You return where the grid ends. The step is this over 2**(bits - 1) - 1.",
        best((RETURN, "return top * (low + high) / 2")),
    ),
    wrong(
        "interval_too_short",
        "Your search does not go far enough: with 2 bits the best step is above 1, with 8 bits about 0.03.",
        best((INTERVAL, "low, high = 0.01, 1.0")),
        best((INTERVAL, "low, high = 0.05, 3.0")),
        best((INTERVAL, "low, high = 0.0, 0.5")),
    ),
    wrong(
        "too_coarse",
        "Your search stops too early, or tries too few steps: one part in 10,000 is asked for.",
        best(("range(60)", "range(12)")),
        best(("range(60)", "range(16)")),
    ),
    wrong(
        "from_a_sample",
        "You draw numbers and take the mean of their errors. That is right to about one part in 100, and comes out "
        "otherwise each time: integrate.",
        from_a_sample,
        by_chance=True,
    ),
)
