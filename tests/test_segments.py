"""Segments of a GPT's blocks: what is recorded is what the meter sees, and what the law and the counts say."""

from __future__ import annotations

import pytest

from course.lessons.experiments import segments
from course.lessons.figures.segments import memory_and_time

FOUND = segments.recorded().data
LAYERS = segments.CONFIG.layers


def test_a_block_keeps_what_is_recorded() -> None:
    assert segments.block() == FOUND.block


def test_a_step_has_the_recorded_peak_and_evaluations() -> None:
    at = FOUND.lengths.index(8)
    assert segments.peak(8) == (FOUND.peaks[at], FOUND.evaluations[at])


@pytest.mark.parametrize("length", FOUND.lengths)
def test_every_segment_but_the_last_is_run_twice_and_the_peak_is_within_a_tenth_above_the_law(length: int) -> None:
    assert FOUND.evaluations[FOUND.lengths.index(length)] == 2 * LAYERS - length
    assert 1 < FOUND.peak(length) / FOUND.law(length) < 1.1


def test_the_law_is_least_where_it_says_and_so_is_the_measured_peak() -> None:
    assert FOUND.law(FOUND.best) < min(FOUND.law(0.99 * FOUND.best), FOUND.law(1.01 * FOUND.best))
    assert min(FOUND.lengths, key=FOUND.peak) == round(FOUND.best)


def test_the_figure_has_the_peaks_the_law_and_the_seconds() -> None:
    figure = memory_and_time(FOUND, dict.fromkeys(segments.TIMED, 0.25), title="t")
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines[1:]] == [len(FOUND.peaks), 1]
    assert list(right.lines[0].get_xdata()) == list(segments.TIMED)
    assert len({(line.get_linestyle(), line.get_marker()) for line in [*left.lines, *right.lines]}) == 4
