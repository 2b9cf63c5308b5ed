"""Logistic regression: the minimum is one, the theorems hold, and constant steps stop at the floor that is stated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from course.errors import BadArgument
from course.lessons.experiments.logistic import (
    Comparison,
    Problem,
    compare,
    decay_bound,
    decaying,
    draw,
    example_gradients,
    floor_bound,
    floor_estimate,
    full_gradient,
    hessian,
    loss,
    minimum,
    smoothness,
    stochastic,
)
from course.lessons.figures.convergence import COLOURS, DASHES, floors, gap_curves

START = torch.ones(10, dtype=torch.float64)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return draw()


@pytest.fixture(scope="module")
def measured(problem: Problem) -> Comparison:
    return compare(problem)


def test_gradient_and_hessian_are_those_of_autograd(problem: Problem) -> None:
    x = START.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(problem, x), x)
    torch.testing.assert_close(example_gradients(problem, START).mean(0), gradient)
    second = torch.autograd.functional.hessian(lambda point: loss(problem, point), START)
    torch.testing.assert_close(hessian(problem, START), second)


@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
def test_the_gradient_at_the_minimum_is_zero_up_to_rounding(mu: float) -> None:
    problem = draw(3, mu=mu)
    assert example_gradients(problem, minimum(problem)).mean(0).norm() < 1e-12


def test_curvature_lies_between_mu_and_L_everywhere(problem: Problem) -> None:
    for scale in (0.0, 0.1, 1.0, 10.0):
        curvatures = torch.linalg.eigvalsh(hessian(problem, scale * START))
        assert curvatures[0] >= problem.mu * (1 - 1e-9)
        assert curvatures[-1] <= smoothness(problem) * (1 + 1e-9)
    assert torch.linalg.eigvalsh(hessian(problem, 0 * START))[-1] == pytest.approx(smoothness(problem))


def test_the_full_gradient_is_at_least_as_fast_as_the_theorem_says(problem: Problem) -> None:
    """Nesterov (2004), Theorem 2.1.15."""
    greatest, mu = smoothness(problem), problem.mu
    gaps = full_gradient(problem, START, step=2 / (greatest + mu), epochs=40)
    distance = (START - minimum(problem)).square().sum()
    bound = greatest / 2 * ((greatest - mu) / (greatest + mu)) ** (2 * torch.arange(41)) * distance
    assert (gaps <= bound).all()
    assert gaps[40] < 1e-7 * gaps[0]


def test_a_gap_of_sgd_with_one_example_is_that_of_the_full_gradient() -> None:
    """With a single example nothing is drawn by chance."""
    problem = Problem(rows=draw().rows[:1], mu=1.0)
    gaps = stochastic(problem, START, torch.full((1, 8), 0.01, dtype=torch.float64), runs=3, every=2)
    torch.testing.assert_close(gaps[0], full_gradient(problem, START, step=0.01, epochs=8)[::2])


def test_rules_do_not_disturb_each_other_and_a_seed_gives_the_same_numbers(problem: Problem) -> None:
    steps = torch.tensor([[0.01], [0.02]], dtype=torch.float64).expand(2, 40)
    both = stochastic(problem, START, steps, runs=4, seed=7)
    torch.testing.assert_close(both[1:], stochastic(problem, START, steps[1:], runs=4, seed=7))
    assert not torch.equal(both, stochastic(problem, START, steps, runs=4, seed=8))


def test_decaying_steps_start_where_they_are_told_and_fall_as_one_over_t() -> None:
    steps = decaying(2.0, 0.1, 1000)
    assert steps[0] == pytest.approx(0.1)
    torch.testing.assert_close(1 / steps, 10 + torch.arange(1000, dtype=torch.float64) / 2)


def _gaps(measured: Comparison, words: str) -> Tensor:
    (found,) = [gaps for name, (_, gaps) in measured.curves.items() if words in name]
    return torch.tensor(found, dtype=torch.float64)


def test_half_the_step_has_half_the_floor_once_steps_are_small(measured: Comparison) -> None:
    ratios = [large / small for large, small in zip(measured.floors, measured.floors[1:], strict=False)]
    assert all(1.9 < ratio < 2.3 for ratio in ratios[-3:])


def test_small_steps_stop_where_the_estimate_says(measured: Comparison) -> None:
    for floor, estimate in list(zip(measured.floors, measured.estimates, strict=True))[-3:]:
        assert floor == pytest.approx(estimate, rel=0.1)


def test_no_floor_is_above_its_bound(measured: Comparison) -> None:
    assert all(floor < bound for floor, bound in zip(measured.floors, measured.bounds, strict=True))


def test_the_mean_gap_obeys_theorem_4_6_on_its_whole_way(problem: Problem, measured: Comparison) -> None:
    step = measured.steps[-1]
    gaps = _gaps(measured, "1/(64 L)")
    rest = floor_bound(problem, step)
    bound = rest + (1 - step * problem.mu) ** (20 * torch.arange(len(gaps))) * (gaps[0] - rest)
    assert (gaps <= bound * (1 + 1e-9)).all()


def test_the_mean_gap_obeys_theorem_4_7_on_its_whole_way(problem: Problem, measured: Comparison) -> None:
    gaps = _gaps(measured, "falls")
    bound = decay_bound(problem, 2 / problem.mu, 1 / smoothness(problem), float(gaps[0]), 8000)[::20]
    assert (gaps <= bound * (1 + 1e-9)).all()


def test_decaying_steps_get_below_every_floor_and_fall_like_one_over_t(measured: Comparison) -> None:
    gaps = _gaps(measured, "falls")
    assert gaps[-1] < min(measured.floors)
    assert 5 < gaps[15:25].mean() / gaps[150:250].mean() < 20  # ten times the steps: a tenth, but for chance


def test_sgd_is_ahead_at_first_and_the_full_gradient_in_the_end(measured: Comparison) -> None:
    full = _gaps(measured, "full gradient")
    for words in ("1/(2 L)", "1/(8 L)", "falls"):
        gaps = _gaps(measured, words)
        assert gaps[10] < 0.1 * full[1]  # after one epoch
        assert gaps[-1] > 1e3 * full[-1]  # after forty


def test_the_estimate_is_the_solution_of_the_equation_behind_it(problem: Problem) -> None:
    """H S + S H = step C, solved in the eigenbasis of H; the gap is tr(H S) / 2."""
    x = minimum(problem)
    curvature, basis = torch.linalg.eigh(hessian(problem, x))
    gradients = example_gradients(problem, x) @ basis
    noise = gradients.T @ gradients / len(gradients)
    settled = 0.01 * noise / (curvature[:, None] + curvature)
    assert floor_estimate(problem, 0.01) == pytest.approx(float((curvature * settled.diagonal()).sum() / 2))


def test_a_problem_without_strong_convexity_is_refused() -> None:
    with pytest.raises(BadArgument, match="mu must be above 0, got 0"):
        draw(mu=0)


def test_the_figures_show_every_curve_and_name_their_axes(measured: Comparison) -> None:
    left, right = gap_curves(measured.curves, title="Gaps").axes
    assert len(left.lines) == len(right.lines) == len(measured.curves)
    assert max(left.lines[1].get_xdata()) <= 3 < max(right.lines[1].get_xdata())
    assert len({line.get_color() for line in right.lines}) == len(set(DASHES)) == len(COLOURS)
    (axes,) = floors(measured.steps, measured.floors, {"bound": measured.bounds}, title="Floors").axes
    assert [line.get_label() for line in axes.lines] == ["measured", "bound"]
    assert "nats" in axes.get_ylabel()
