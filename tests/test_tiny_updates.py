"""A thousand updates of an eighth of a gap: lost by rounding to nearest, kept on average by draws, and by a master."""

from __future__ import annotations

import torch

from course.lessons.experiments import tiny_updates as tiny
from course.lessons.figures.tiny_updates import weight_curves


def test_rounding_to_nearest_loses_every_update() -> None:
    assert tiny.by_nearest().tolist() == [1.0] * (tiny.UPDATES + 1)


def test_the_mean_over_draws_follows_the_exact_sum_and_spreads_as_chance_does() -> None:
    ends = tiny.by_draws(runs=1000)[-1]
    assert abs(ends.mean() - tiny.exactly()[-1]) < 5 * tiny.spread() / 1000**0.5
    assert abs(ends.std() / tiny.spread() - 1) < 0.2  # beyond 2 gaps are twice as wide


def test_with_a_master_the_weight_is_the_exact_sum_to_half_a_gap_and_moves_first_in_the_fifth_update() -> None:
    weights, masters = tiny.by_master()
    assert torch.equal(masters, tiny.exactly())
    assert torch.equal(weights, masters.bfloat16().float())
    assert weights[:6].tolist() == [1.0] * 5 + [1 + tiny.GAP]


def test_the_figure_has_a_curve_for_each_run_beside_the_exact_one_and_the_nearest() -> None:
    figure = weight_curves(tiny.exactly(), tiny.by_nearest(), tiny.by_draws(runs=3), title="t")
    (axes,) = figure.axes
    assert len(axes.lines) == 5
    assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 3
    assert len(figure.legends[0].get_texts()) == 3
