"""Experiments and widgets of sharding: what units cost on the virtual clock, and the bytes under each stage."""

from __future__ import annotations

import pytest
import torch

from course.cluster import Link, fully_connected
from course.lessons.experiments import two_layouts, unit_life
from course.lessons.experiments.unit_life import Unit, cost, simulated
from course.lessons.figures.sharding import over_unit_size, owners
from course.lessons.widgets import stages
from course.lessons.widgets import unit_life as board

ALPHA, BETA = 0.5, 8.0
FOUR = fully_connected(4, Link(latency=ALPHA, bandwidth=BETA))
THREE = (Unit(numbers=16, seconds=100.0),) * 3
FULL = 2 * 16  # bytes of a unit
MOVED = 3 * (ALPHA + FULL / 4 / BETA)  # seconds of one unit around the ring


def test_without_prefetch_nothing_overlaps_and_one_unit_is_alive():
    found = cost(simulated(THREE, FOUR, prefetch=False))
    assert found.seconds == pytest.approx(3 * 300.0 + 9 * MOVED)
    shards = 3 * FULL // 4
    assert found.peak == shards + 2 * FULL // 4 + FULL // 4 + 2 * FULL  # the last unit, and its gradient on its way


def test_prefetch_hides_what_fits_behind_a_unit_and_holds_one_more():
    early, late = (cost(simulated(THREE, FOUR, prefetch=each)) for each in (True, False))
    assert early.seconds == pytest.approx(3 * 300.0 + 3 * MOVED)  # the first of each way, and the last gradient
    assert early.peak <= late.peak + FULL
    assert early.sent == late.sent == 3 * 3 * 3 * FULL // 4


def test_traffic_does_not_depend_on_the_size_of_units_and_memory_does():
    found = unit_life.by_unit_size()
    assert len({each.sent for each in found.values()}) == 1
    peaks = [each.peak for each in found.values()]
    assert peaks == sorted(peaks)
    assert len(over_unit_size({"one": found, "other": found}, title="Units").axes) == 2


def test_shards_inside_nodes_send_less_between_them_and_hold_more():
    (everywhere, far), (inside, less) = unit_life.over_nodes(2, 4).values()
    assert less < far
    assert inside.peak > everywhere.peak


def test_the_first_frame_of_the_stages_is_the_papers_figure():
    shown = [f"{stages.Settings().total(stage) / 1e9:.1f}" for stage in stages.BARS]
    assert shown == ["120.0", "31.4", "16.6", "1.9"]
    widget = stages.Board()
    assert "32 GB needs stage 1" in widget.words.value
    widget.ranks.value = 1
    assert "one rank" in widget.settings.picture().get_suptitle()
    assert "is too small under every stage" in widget.words.value
    widget.model.value = "1 trillion"
    assert "img" in widget.image.value


def test_the_schedule_follows_its_controls():
    widget = board.Board()
    before = widget.words.value
    widget.prefetch.value = True
    assert widget.words.value != before
    widget.blocks.value = 12
    assert "in 3 collectives" in widget.words.value


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_both_layouts_give_each_number_one_rank_and_all_ranks_as_much_room(ranks):
    for layout in (two_layouts.flat(ranks=ranks), two_layouts.by_rows(ranks=ranks)):
        held = torch.cat([each.flatten() for each in layout.owners.values()])
        assert {*held.tolist()} <= {*range(ranks)}
        assert (len(held) + layout.padding) % ranks == 0
    chunks = torch.arange(5).chunk(ranks)
    by_rows = two_layouts.by_rows(ranks=ranks).owners["bias"]
    assert [by_rows.tolist().count(rank) for rank in range(len(chunks))] == [len(each) for each in chunks]


def test_a_flat_row_is_cut_where_it_comes():
    flat = two_layouts.flat().owners["weight"]
    assert any(len({*row}) > 1 for row in flat.tolist())
    assert len(owners({"one": two_layouts.flat(), "other": two_layouts.by_rows()}, title="Two").axes) == 2
