"""The reference `gradient_noise_scale`: unbiased over all draws, and what it refuses."""

from __future__ import annotations

import itertools

import pytest
import torch

from course.errors import BadArgument
from course.exercises.optimizers.gradient_noise_scale import EXACT, EXERCISE
from course.reference.optimizers.gradient_noise_scale import gradient_noise_scale

POPULATION = torch.tensor([[1.0, 2.0, 0.5], [2.0, 0.0, 1.0], [0.0, 1.0, 3.0]], dtype=torch.float64)


def all_draws(b: int) -> torch.Tensor:
    """The mean gradient of every batch of b examples that can be drawn with replacement."""
    return torch.stack([POPULATION[list(rows)].mean(0) for rows in itertools.product(range(3), repeat=b)])


@pytest.mark.parametrize(("b_small", "b_large"), [(1, 2), (1, 4), (2, 3)])
def test_over_all_draws_the_estimates_are_the_covariances_trace_and_the_squared_gradient(b_small, b_large):
    noise, squared_gradient, ratio = gradient_noise_scale(all_draws(b_small), all_draws(b_large), b_small, b_large)
    assert noise == pytest.approx(POPULATION.var(dim=0, correction=0).sum().item())
    assert squared_gradient == pytest.approx(POPULATION.mean(dim=0).square().sum().item())
    assert ratio == pytest.approx(noise / squared_gradient)


def test_three_python_numbers_come():
    small, large = torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    result = gradient_noise_scale(small, large, 1, 3)
    assert result == pytest.approx((3.0, 2.0, 1.5))
    assert [type(each) for each in result] == [float, float, float]


def test_float16_draws_do_not_overflow():
    rows = torch.full((2, 4), 200.0, dtype=torch.float16)  # the squared norm is 160,000
    assert gradient_noise_scale(rows, rows, 1, 2)[1] == pytest.approx(160_000)


@pytest.mark.parametrize(("b_small", "b_large"), [(2, 2), (3, 2), (0, 2)])
def test_batch_sizes_that_do_not_grow_are_refused(b_small, b_large):
    with pytest.raises(BadArgument, match=f"b_small must be .*, got {b_small} and {b_large}"):
        gradient_noise_scale(torch.ones(2, 3), torch.ones(2, 3), b_small, b_large)


@pytest.mark.parametrize("large", [0.0, 0.5])  # of all entries 1, |G|^2 is below 0, and exactly 0
def test_an_estimate_that_is_not_positive_is_refused_with_what_to_do(large):
    with pytest.raises(BadArgument, match="take more draws or larger batches"):
        gradient_noise_scale(torch.ones(2, 4), torch.full((2, 4), large), 1, 4)


def test_the_exact_cases_hold_every_draw():
    cases = {case.name: case.inputs for case in EXERCISE.draw(1)}
    assert [len(cases[name][size]) for name in EXACT for size in ("small", "large")] == [4, 16, 9, 81]
