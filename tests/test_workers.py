"""Experiments of many workers: a step on the virtual clock, a server against a ring, gradients that come late."""

from __future__ import annotations

import math

import pytest
import torch

from course.cluster import Link
from course.lessons.data import digits_split
from course.lessons.experiments import imagenet_hour, parameter_server, stale_gradients, worker_step
from course.lessons.experiments.side_by_side import batches, descend, fresh, losses
from course.lessons.experiments.worker_step import Gradient
from course.lessons.figures.workers import HIGHEST, server_and_ring, speedups, stale_losses
from course.lessons.widgets import overlap, scaling

ALPHA, BETA = 0.5, 8.0
LINK = Link(latency=ALPHA, bandwidth=BETA)
THREE = tuple(Gradient(name=str(place), numbers=4, seconds=2.0) for place in range(3))


def reduced(workers: int, size: int) -> float:
    """Seconds of a ring."""
    return 2 * (workers - 1) * (ALPHA + size / workers / BETA)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_takes_its_compute_and_the_gradients_that_are_left_then(workers):
    one, three = reduced(workers, 16), reduced(workers, 48)
    each = worker_step.simulated(workers, LINK, cap=0.0, gradients=THREE).makespan
    ready = (5.0, 7.0, 9.0)
    ends = 0.0
    for at in ready:
        ends = max(ends, at) + one
    assert each == pytest.approx(ends)
    assert worker_step.simulated(workers, LINK, cap=math.inf, gradients=THREE).makespan == pytest.approx(9.0 + three)
    after = worker_step.simulated(workers, LINK, cap=0.0, gradients=THREE, overlaps=False).makespan
    assert after == pytest.approx(9.0 + 3 * one)


@pytest.mark.parametrize("workers", [2, 4])
def test_data_parallel_waits_for_the_weights_and_sums_when_backward_is_over(workers):
    ledger = worker_step.data_parallel(workers, LINK, gradients=THREE)
    assert ledger.calls(0) == ["broadcast", "reduce"]
    assert ledger.makespan >= 9.0 + 2 * (ALPHA + 48 / BETA)
    assert ledger.makespan > worker_step.simulated(workers, LINK, cap=0.0, gradients=THREE).makespan
    assert worker_step.data_parallel(1, LINK, gradients=THREE).makespan == pytest.approx(9.0)


@pytest.mark.parametrize(("cap", "groups"), [(0.0, 3), (16.0, 3), (17.0, 2), (33.0, 1)])
def test_groups_have_at_least_the_bytes_that_are_asked_for(cap, groups):
    ledger = worker_step.simulated(2, LINK, cap=cap, gradients=THREE)
    assert ledger.calls(0) == ["all_reduce"] * groups
    assert ledger.bytes_sent(0) == 48


def test_gpt2_small_has_124_million_gradients():
    assert round(sum(each.numbers for each in worker_step.gradients_of()) / 1e6) == 124


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_all_gradients_go_through_a_server_and_two_of_them_through_a_worker_of_a_ring(workers):
    assert parameter_server.traffic(parameter_server.server(workers, 1000)).busiest == 2 * workers * 4000
    assert (
        parameter_server.traffic(parameter_server.ring(workers, 1000)).busiest
        == 2 * 2 * (workers - 1) * 4000 // workers
    )


def test_without_age_it_is_plain_sgd():
    found = stale_gradients.measure((0,), (0.1, 0.5), steps=20)
    data, params = digits_split()[0], fresh(2, stale_gradients.SEEDS)
    for step in descend(params, batches(data, stale_gradients.BATCH, stale_gradients.SEEDS), torch.tensor([0.1, 0.5])):
        if step == 20:
            break
    with torch.no_grad():
        assert found.losses[0] == pytest.approx(losses(params, data.images, data.labels).mean(1).tolist(), rel=1e-5)


def test_old_gradients_need_a_smaller_rate():
    found = stale_gradients.measure((0, 7), (0.0625, 0.5), steps=200)
    assert found.best(0)[0] == 0.5
    assert found.best(7)[0] == 0.0625
    assert found.best(7)[1] > 2 * found.best(0)[1]


def test_with_endless_bandwidth_examples_scale_and_the_critical_batch_still_bounds_the_speed():
    lines = scaling.Settings(latency=0.0, bandwidth=math.inf, share=1.0).lines()
    assert lines["examples per second"] == pytest.approx(lines["ideal"])
    assert lines["speed to the same loss"][64] == pytest.approx(2 / (1 + 1 / 64))


def test_the_controls_move_the_pictures_and_the_sentences():
    for board in (overlap.Board(), scaling.Board()):
        before = (board.image.value, board.words.value)
        board.bandwidth.value = 1e9
        assert board.image.value != before[0]
        assert board.words.value != before[1]


def test_figures_show_every_line():
    ways = {way: {2: parameter_server.Traffic(busiest=1, seconds=1.0)} for way in ("server", "ring")}
    assert [len(axes.lines) for axes in server_and_ring(ways, title="t").axes] == [2, 2]
    assert len(speedups({"ideal": {1: 1.0}, "ours": {1: 1.0}}, title="t").axes[0].lines) == 2
    found = stale_gradients.Stale(
        rates=(0.1, 1.0), staleness=[0, 3], losses=[[0.5, None], [1.0, 9.0]], together=[0.5, 0.5]
    )
    drawn = stale_losses(found, title="t").axes[0].lines
    assert [max(line.get_ydata()) for line in drawn] == [HIGHEST, HIGHEST]


def test_the_simulated_hour_is_near_the_published_one_and_worse_without_overlap():
    assert imagenet_hour.published() == pytest.approx(0.906, abs=1e-3)
    assert imagenet_hour.simulated(overlaps=False) < imagenet_hour.published() < imagenet_hour.simulated() < 1
