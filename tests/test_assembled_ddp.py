"""Data parallel training on real processes: torch's parts stand in for answers, and losses are those of one process."""

from __future__ import annotations

import pytest

from course.lessons.experiments import assembled_ddp as assembled
from course.lessons.experiments import digits_workers, worker_timelines
from course.reference.ddp.overlapped_backward import overlapped_backward


def test_workers_with_all_parts_have_the_losses_of_one_process_and_others_have_not():
    parts, alone = assembled.PARTS.with_yours({}), assembled.one_process(3)
    assert assembled.torchs(3).losses == pytest.approx(alone, abs=1e-6)
    found = {variant: assembled.whole(assembled.on_processes(variant, parts, 3)) for variant in assembled.VARIANTS}
    for variant in ("all but the ring", "your ring, too", "no buckets", "no overlap"):
        assert found[variant] == pytest.approx(alone, abs=1e-6)
    assert found["mean of means"][0] == pytest.approx(alone[0], abs=1e-6)
    assert found["mean of means"][-1] != pytest.approx(alone[-1], abs=1e-4)
    assert found["no broadcast"][0] != pytest.approx(alone[0], abs=1e-4)


def test_every_parameter_for_itself_pays_for_every_latency():
    parts = assembled.PARTS.with_yours({})
    few, many = (assembled.on_slow_links(variant, parts, "declared") for variant in ("no overlap", "no buckets"))
    assert many > 5 * few


@pytest.mark.parametrize("workers", [2, 4])
def test_digits_have_the_losses_of_one_process(workers):
    parts = digits_workers.PARTS.with_yours({})
    alone = digits_workers.one_process(workers, parts)
    assert alone[-1] < 0.7 * alone[0]
    for worker in (digits_workers.own, digits_workers.torchs):
        assert digits_workers.losses(worker, workers, parts) == pytest.approx(alone, abs=1e-6)


def test_timelines_hold_backward_and_every_bucket_of_own_parts_and_of_torchs():
    parts = {**assembled.PARTS.with_yours({}), "overlapped_backward": overlapped_backward}
    for ledger in worker_timelines.timelines(parts).values():
        for rank in range(4):
            own = [each for each in ledger.events if each.rank == rank]
            (backward,) = (each for each in own if each.verb == "compute")
            reductions = [each for each in own if each.verb == "all_reduce"]
            assert len(reductions) >= 3
            assert reductions[0].start < backward.end  # which other cores may put off, but not turn round
            assert all(each.start <= each.end for each in own)


def test_what_begins_after_backward_stands_after_it():
    ledger = worker_timelines.timelines(assembled.PARTS.with_yours({}))["these parts"]
    over = {each.rank: each.end for each in ledger.events if each.verb == "compute"}
    assert all(each.start >= over[each.rank] for each in ledger.events if each.verb == "all_reduce")
