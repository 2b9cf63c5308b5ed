"""The recorded trials are there without Optuna; with it they become a study that its plots take."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from course.lessons.experiments import search
from course.lessons.experiments.search import NoOptuna, Trials, best_so_far, held_out_loss
from course.lessons.figures.search import best_so_far as best_so_far_figure
from course.lessons.figures.search import trials_by_value

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is in the extra peers")


def some_trials() -> Trials:
    count = 12
    steps = [0.01 * (number + 1) for number in range(count)]
    losses = [1.0 / (number + 1) for number in range(count)]
    return Trials(rate=steps, slack=steps[::-1], width=[8 + n for n in range(count)], decay=[1e-3] * count, loss=losses)


def test_without_optuna_the_recorded_trials_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    data = search.recorded().data
    assert len(data.trials.loss) == len(data.trials.width) == search.TRIALS
    assert "best of 20" in search.report(data)


def test_the_best_trial_comes_to_its_loss_again_and_with_other_seeds_to_others() -> None:
    data = search.recorded().data
    assert search.once_more(data.trials, (0,)) == pytest.approx([min(data.trials.loss)], rel=0.05)
    assert data.again == pytest.approx(search.once_more(data.trials), rel=0.05)


def test_without_optuna_a_search_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "installed", lambda: False)
    with pytest.raises(NoOptuna, match=r"pip install -c constraints\.txt optuna"):
        search.search(1)


def test_a_good_setting_is_better_than_a_timid_one() -> None:
    good = held_out_loss(rate=0.1, momentum=0.9, width=16, decay=1e-4)
    assert good < 0.3 < held_out_loss(rate=0.001, momentum=0.0, width=16, decay=1e-4)


def test_a_run_that_bursts_counts_as_ten_nats() -> None:
    assert held_out_loss(rate=1e6, momentum=0.99, width=8, decay=0.1) == 10


def test_the_best_so_far_never_grows() -> None:
    assert best_so_far([3.0, 4.0, 1.0, 2.0]) == [3, 3, 1, 1]


def test_the_trials_are_drawn_a_panel_for_each_hyperparameter() -> None:
    trials = some_trials()
    figure = trials_by_value({"rate": trials.rate, "width": trials.width}, trials.loss, title="t")
    assert [axes.get_xlabel() for axes in figure.axes] == ["rate", "width"]


def test_the_best_so_far_has_a_line_for_each_sampler() -> None:
    studies = [[3.0, 2.0, 1.0], [2.0, 2.0, 0.5], [4.0, 1.0, 1.0]]
    axes = best_so_far_figure({"tpe": studies, "random": studies}, title="t").axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[3, 2, 1], [3, 2, 1]]


@needs_optuna
def test_a_search_is_silent_and_the_same_twice(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = search.search(2, seed=3), search.search(2, seed=3)
    assert first == second
    assert capfd.readouterr().err == ""


@needs_optuna
def test_the_rate_is_important_where_it_alone_decides() -> None:
    steps = [10 ** (-3 + 3 * number / 39) for number in range(40)]
    mixed = [0.01 * (1 + 7 * number % 40) for number in range(40)]
    trials = Trials(rate=steps, slack=mixed, width=[8 + 11 * n % 40 for n in range(40)], decay=[1e-3] * 40, loss=steps)
    shares = search.importances(trials)
    assert shares["rate"] > 0.5
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)


@needs_optuna
def test_trials_survive_the_way_into_a_study() -> None:
    trials = some_trials()
    study = search.as_study(trials)
    assert [trial.params["width"] for trial in study.trials] == trials.width
    assert study.best_value == min(trials.loss)
