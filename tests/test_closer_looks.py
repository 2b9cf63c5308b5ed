"""Short versions of the recorded experiments that say how far seeds move a number."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from course.lessons.data.cities import cities
from course.lessons.experiments import (
    factored,
    gradient_free,
    map_starts,
    minima,
    noise_scale,
    noise_seeds,
    scaling_map,
)


def test_a_run_of_noise_ends_at_the_target() -> None:
    (mean,) = noise_seeds.means_along(1.0, 1, 2, target=2.0)
    assert 1 < mean < 100


def test_dividing_each_draw_spreads_more_than_dividing_once() -> None:
    found = [noise_scale.averages(seed) for seed in range(50)]
    once, each = (noise_scale.spread([getattr(one, name) for one in found]) for name in ("first", "after"))
    assert once["least"] < once["5%"] < 400 < once["95%"] < once["greatest"]
    assert each["95%"] - each["5%"] > 3 * (once["95%"] - once["5%"])


def test_only_noise_carries_walkers_out_of_the_narrow_minimum() -> None:
    shares = [minima.wandering(0.02, noise, walkers=50, steps=300) for noise in (0.0, 2.0, 12.0)]
    assert shares[:2] == [0, 0]
    assert shares[2] > 0.5


def test_an_entry_is_zero_for_a_white_pixel_or_for_a_pair_that_never_met() -> None:
    found = factored.compare()
    assert (found.kept, found.entries, found.white) == (32 + 64, 32 * 64, 3 * 32)  # three pixels are always white
    assert found.low < 1 < found.high
    assert found.apart > 0


def test_few_starts_are_stuck_by_plain_descent() -> None:
    least = map_starts.least_stress()
    assert map_starts.stuck(0, least) <= 3
    assert map_starts.stuck(0, least / 2) == 100


def test_without_gradients_the_map_takes_about_as_many_times_more_steps_as_it_has_numbers() -> None:
    with_gradient, *without = (row.steps for row in gradient_free.compare().values())
    assert all(24 * with_gradient < steps < 48 * with_gradient for steps in without)


def test_random_directions_go_on_average_along_the_gradient_at_a_rate_divided_by_two_more_than_its_numbers() -> None:
    table, x = cities().distances, scaling_map.random_starts(1)
    moved = next(gradient_free.gradient(x, table)) - x
    ends = next(gradient_free.random_direction(x.expand(5000, -1, -1), table, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(34 * (ends - x).mean(0, keepdim=True), moved, rtol=0, atol=0.1 * float(moved.norm()))


def test_about_one_in_five_steps_of_evolution_is_kept_and_none_raises_the_stress() -> None:
    table, x = cities().distances, scaling_map.random_starts(10)
    maps = list(islice(gradient_free.evolution(x, table, torch.Generator().manual_seed(0)), 1000))
    falls = -torch.stack([scaling_map.stress(x, scaling_map.pairs(table)) for x in maps]).diff(dim=0)
    assert (falls >= 0).all()
    assert 0.15 < (falls > 0).double().mean() < 0.25


@pytest.mark.parametrize("kept", [map_starts, noise_seeds])
def test_the_full_runs_are_in_the_package(kept: object) -> None:
    assert kept.recorded().seconds > 1  # type: ignore[attr-defined]
