"""Errors of sums in few digits lie within their bounds, and the hardest inputs are as hard as is said."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from course.lessons.experiments.sums import PLAIN, errors, hard_input, hardest, reached, worst_case
from course.lessons.figures.sums import sum_errors
from course.reference.mixed_precision.compensated_bound import compensated_bound
from course.reference.mixed_precision.compensated_sum import compensated_sum

SUMS = {**PLAIN, "compensated": (compensated_sum, compensated_bound)}


@pytest.mark.parametrize(
    ("dtype", "n"),
    [(torch.float16, 500), (torch.bfloat16, 62), (torch.float32, 30), *((torch.bfloat16, n) for n in range(1, 9))],
)
def test_the_compensated_sum_is_as_far_off_as_the_exercise_says(dtype: torch.dtype, n: int) -> None:
    u = Fraction(torch.finfo(dtype).eps) / 2
    xs = hard_input(n, u, hardest(n, u))
    computed = Fraction(compensated_sum(torch.tensor([float(x) for x in xs], dtype=torch.float64), dtype).item())
    assert len(xs) == n
    assert (sum(xs) - computed) / sum(xs) == reached(n, float(u)) <= Fraction(compensated_bound(n, float(u)))


def test_errors_are_within_their_bounds() -> None:
    found = errors(torch.bfloat16, SUMS, (4, 64))
    for method, measured in found.errors.items():
        assert all(
            error <= bound or math.isnan(bound) for error, bound in zip(measured, found.bounds[method], strict=True)
        )


def test_the_worst_case_lies_above_2_u_and_below_the_bound() -> None:
    assert 2 < worst_case(compensated_sum, torch.float16, 500) <= compensated_bound(500, 2**-11) * 2**11 < 3


def test_the_figure_shows_what_was_measured() -> None:
    found = errors(torch.bfloat16, PLAIN, (4, 64))
    (axes,) = sum_errors({"bf16": found}, title="t").axes
    assert axes.lines[0].get_ydata().tolist() == found.errors["one after the other"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("numbers added, n", "largest error over sum |x|")
