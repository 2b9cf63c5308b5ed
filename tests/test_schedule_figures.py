"""Schedules: the rates are torch's, and the figure shows them."""

from __future__ import annotations

import math

import pytest

from course.errors import BadArgument
from course.lessons.experiments.schedules import SCHEDULES, learning_rates
from course.lessons.figures.schedules import schedule_curves


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_reaches_its_peak_and_never_exceeds_it(name: str) -> None:
    rates = learning_rates(name, 100, peak=0.3, warmup=10)
    assert len(rates) == 101
    assert max(rates) == rates[10] == pytest.approx(0.3)


def test_warm_up_rises_straight_to_the_peak() -> None:
    for name in [name for name in SCHEDULES if name.startswith("warm-up")]:
        rates = learning_rates(name, 100, peak=1.0, warmup=20)
        assert rates[:21] == pytest.approx([step / 20 for step in range(21)], abs=2e-3)


def test_after_warm_up_each_schedule_falls_in_its_own_way() -> None:
    rates = {name: learning_rates(name, 1000, peak=1.0, warmup=100) for name in SCHEDULES}
    assert rates["constant"] == [1.0] * 1001
    assert [rates["steps"][step] for step in (333, 334, 668)] == pytest.approx([1, 0.1, 0.01])
    assert rates["warm-up, cosine"][550] == pytest.approx(0.5)
    assert rates["warm-up, 1/√step"][400] == pytest.approx(math.sqrt(100 / 400))
    assert [rates["warm-up, stable, decay"][step] for step in (800, 900, 1000)] == pytest.approx([1, 0.5, 0])


@pytest.mark.parametrize(
    ("name", "warmup", "words"),
    [
        ("linear", 10, "a schedule must be one of constant, .* got 'linear'"),
        ("constant", 0, "warmup must lie between 1 and steps - 1, got 0 of 50"),
        ("constant", 50, "got 50 of 50"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, warmup: int, words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        learning_rates(name, 50, peak=1.0, warmup=warmup)


def test_curves_show_the_rates_that_were_given() -> None:
    figure = schedule_curves({"flat": [0.1, 0.1], "falling": [0.1, 0.05]}, title="who falls")
    (axes,) = figure.axes
    assert figure.get_suptitle() == "who falls"
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[0, 0.1], [1, 0.1]], [[0, 0.1], [1, 0.05]]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step (from 0)", "learning rate")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["flat", "falling"]


def test_six_curves_differ_in_line_and_sign_together() -> None:
    (axes,) = schedule_curves({str(number): [1.0] * 20 for number in range(6)}, title="t").axes
    assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 6


def test_a_mark_stands_at_its_step() -> None:
    (axes,) = schedule_curves({"flat": [0.1] * 20}, title="t", marks={"warm-up ends": 5}).axes
    assert axes.lines[-1].get_xdata()[0] == 5
    assert axes.texts[0].get_text().strip() == "warm-up ends"
