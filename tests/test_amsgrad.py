"""Adam ends at the worst choice where it forgets, AMSGrad at the best; torch's are the paper's, but for the start."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.lessons.experiments.amsgrad import Game, average_regret, compare, forgetful, play, slopes
from course.lessons.figures.convergence import choices_and_regret


@pytest.fixture(scope="module")
def games() -> tuple[Game, Game, Game]:
    adam, amsgrad, patient = compare(900).values()
    return adam, amsgrad, patient


def test_slopes_are_steep_in_the_first_of_every_three_rounds() -> None:
    assert slopes(7, 4.0).tolist() == [4, -1, -1, 4, -1, -1, 4]


def test_adam_goes_to_the_worst_choice(games: tuple[Game, Game, Game]) -> None:
    assert min(games[0].positions[600:]) > 0.95


def test_amsgrad_goes_to_the_best_choice(games: tuple[Game, Game, Game]) -> None:
    assert max(games[1].positions[600:]) < -0.95


def test_adam_with_a_long_memory_goes_to_the_best_choice_here(games: tuple[Game, Game, Game]) -> None:
    assert max(games[2].positions[600:]) < -0.95


def test_the_average_regret_of_adam_stays_and_that_of_amsgrad_falls(games: tuple[Game, Game, Game]) -> None:
    adam, amsgrad, _ = (game.average_regret for game in games)
    assert adam[-1] == pytest.approx(2 / 3, rel=0.05)  # 2 (C - 2) / 3 a round at x = 1
    assert amsgrad[-1] < 0.03
    assert 2 < amsgrad[99] / amsgrad[899] < 6  # about the root of 9


@pytest.mark.parametrize("amsgrad", [False, True])
def test_torch_plays_as_the_paper_says_once_the_correction_has_died_away(amsgrad: bool) -> None:
    """Algorithms 1 and 2 with beta1 = 0, from round 12 on, where 1 - beta2^t is 1 up to rounding."""
    losses, beta2 = slopes(60), forgetful()
    positions = play(losses, beta2=beta2, amsgrad=amsgrad).positions
    moment = greatest = 0.0
    for number, slope in enumerate(losses.tolist()[:-1], start=1):
        moment = beta2 * moment + (1 - beta2) * slope**2
        greatest = max(greatest, moment)
        x = positions[number - 1] - 0.5 / number**0.5 * slope / (greatest if amsgrad else moment) ** 0.5
        if number >= 12:
            assert positions[number] == pytest.approx(min(max(x, -1.0), 1.0), abs=1e-7)


def test_regret_is_measured_against_the_best_fixed_choice_so_far() -> None:
    losses = torch.tensor([3.0, -1.0, -1.0, -2.0])
    choices = torch.tensor([0.0, 1.0, -1.0, 0.5])
    # paid in all: 0, -1, 0, -1; the best fixed choice would have: -3, -2, -1, -1
    assert average_regret(losses, choices).tolist() == [3.0, 0.5, pytest.approx(1 / 3), 0.0]


def test_a_game_whose_best_choice_is_another_is_refused() -> None:
    with pytest.raises(BadArgument, match="steep must be above 2, got 2"):
        slopes(9, 2.0)


def test_the_figure_shows_choices_and_regret_of_every_player(games: tuple[Game, Game, Game]) -> None:
    named = {str(place): (game.positions, game.average_regret) for place, game in enumerate(games)}
    left, right = choices_and_regret(named, title="Adam").axes
    assert len(left.lines) == len(right.lines) == 3
    assert left.get_xlabel() == right.get_xlabel() == "round"
    assert [line.get_label() for line in left.lines] == ["0", "1", "2"]
