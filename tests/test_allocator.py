"""The model of CUDA's allocator rounds, splits, joins and fails by the rules, and the recorded trace replays in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.lessons.experiments import allocator
from course.lessons.experiments.allocator import (
    CAPACITY,
    KINDS,
    MIB,
    CachingAllocator,
    History,
    OutOfMemory,
    Trace,
    failing,
    recorded,
    replay,
    segment_size,
    visible,
)
from course.lessons.figures.allocator import memory_over_time, segment_map

KIB = 2**10


def trace(*events: int) -> Trace:
    return Trace(events=list(events), phases=["model"], starts=[0])


@pytest.mark.parametrize(
    ("size", "segment"),
    [(512, 2), (MIB, 2), (MIB + 512, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (10 * MIB + 512, 12), (33 * MIB, 34)],
)
def test_segments_have_the_sizes_of_the_source(size: int, segment: int) -> None:
    assert segment_size(size) == segment * MIB


def test_requests_are_rounded_to_512_bytes_and_small_ones_share_a_segment() -> None:
    _, found = replay(trace(1, 512, 513))
    assert (found.allocated, found.reserved) == (512 + 512 + 1024, 2 * MIB)


def test_a_large_block_is_not_split_where_at_most_1_mib_remains() -> None:
    _, found = replay(trace(9 * MIB, 10 * MIB))
    assert (found.allocated, found.reserved) == (20 * MIB, 20 * MIB)  # 1 MiB remains, and goes with the second


def test_the_smallest_block_that_fits_is_taken() -> None:
    _, found = replay(trace(12 * MIB, 30 * MIB, 16 * MIB, -1, -2, -3, 14 * MIB))
    (segment,) = [each for each in found.segments if each.blocks[0].holds]
    assert segment.size == 16 * MIB


def test_free_neighbours_are_joined_and_a_segment_stays_reserved() -> None:
    _, found = replay(trace(6 * MIB, 6 * MIB, 6 * MIB, -1, -3))
    assert found.largest_free() == 8 * MIB  # the third and the rest of the segment
    found.free(2)
    assert (found.largest_free(), found.allocated, found.reserved) == (20 * MIB, 0, 20 * MIB)
    found.empty_cache()
    assert found.reserved == 0


def test_a_request_fails_though_enough_is_free() -> None:
    found = CachingAllocator(capacity=20 * MIB)
    for number in range(1, 5):
        found.allocate(number, 5 * MIB)
    found.free(1)
    found.free(3)
    with pytest.raises(OutOfMemory, match=r"10\.0 MiB are free in segments, at most 5\.0 MiB of them"):
        found.allocate(5, 6 * MIB)


def test_segments_that_are_free_as_a_whole_make_room() -> None:
    history, found = replay(trace(12 * MIB, -1, 20 * MIB), capacity=24 * MIB)
    assert history.failed is None
    assert found.reserved == 20 * MIB


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=30))
def test_blocks_fill_their_segments_and_never_overlap(requests: list[tuple[int, bool]]) -> None:
    found, alive = CachingAllocator(), []
    for number, (size, free) in enumerate(requests, 1):
        found.allocate(number, size)
        alive.append(number)
        if free:
            found.free(alive.pop(len(alive) // 2))
    for segment in found.segments:
        ends = [block.start + block.size for block in segment.blocks]
        assert [block.start for block in segment.blocks] == [0, *ends[:-1]]
        assert ends[-1] == segment.size
        assert not any(a.holds is b.holds is None for a, b in zip(segment.blocks, segment.blocks[1:], strict=False))
    assert sorted(block.holds for each in found.segments for block in each.blocks if block.holds) == alive


def test_the_recorded_trace_frees_only_what_is_alive_and_ends_with_weights_and_moments() -> None:
    for each in (recorded().data.plain, recorded().data.checkpointed):
        history, found = replay(each)
        assert len(history.allocated) == len(each.events)
        kinds = each.kinds()
        left = {kinds[block.holds - 1] for blocks in found.map for block in blocks if block.holds}
        assert left == {"parameters", "moments"}
        sizes = [event for event in each.events if event > 0]
        parameters = sum(size for size, kind in zip(sizes, kinds, strict=True) if kind == "parameters")
        assert parameters == 4 * allocator.SHAPE.parameters


def test_checkpoints_lower_the_peak_and_fragment_more() -> None:
    data = recorded().data
    plain, checkpointed = (replay(each)[0] for each in (data.plain, data.checkpointed))
    assert max(checkpointed.allocated) < 0.5 * max(plain.allocated)
    shares = [max(each.allocated) / max(each.reserved) for each in (plain, checkpointed)]
    assert shares[1] < shares[0]


def test_the_failing_replay_needs_less_than_the_device_has() -> None:
    plain, history, found = failing()
    assert history.failed is not None
    asked = plain.events[history.failed[0]]
    assert max(replay(plain)[0].allocated) < CAPACITY
    assert found.largest_free() < asked < found.reserved - found.allocated


def test_a_new_trace_has_the_recorded_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "SHAPE", allocator.GPTConfig(vocabulary=4, context=4, width=4, heads=1, layers=1))
    monkeypatch.setattr(allocator, "LENGTHS", (2, 4))
    found = allocator.traced(checkpointed=True)
    assert found.phases == recorded().data.checkpointed.phases
    assert found.starts[0] == 0
    assert set(found.kinds()) == set(KINDS)


def test_the_figures_show_every_part_and_every_large_segment() -> None:
    plain, history, found = failing()
    figure = memory_over_time({"a": visible(plain, replay(plain)[0])}, title="Memory")
    texts = [each.get_text() for each in figure.axes[0].texts]
    assert texts == [f"{part} {n}" for n in (1, 2) for part in ("forward", "backward", "step")]
    figure = segment_map(found.map, plain.kinds(), names=KINDS, title="Map")
    assert len(figure.axes[0].patches) == sum(len(blocks) for blocks in found.map)
    assert isinstance(history, History)
