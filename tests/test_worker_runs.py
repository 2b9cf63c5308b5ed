"""The three programs for several workers: each fault shows as the lesson says, and is gone with our cure."""

from __future__ import annotations

import torch

from course.lessons.experiments import worker_runs
from course.reference.ddp.mend_the_workers import mend_the_workers


def mended(name: str) -> str:
    return worker_runs.PROGRAMS.mended(name, *mend_the_workers()[name])


def test_stops_hangs_and_ends_on_all_ranks_when_mended():
    hung = worker_runs.seen("stops")
    assert isinstance(hung, str)
    assert "has returned" in hung
    values = worker_runs.seen("stops", mended("stops")).values
    assert all(torch.equal(each, values[0]) for each in values)


def test_the_ranks_of_branches_drift_apart_from_the_third_step_on_and_stay_together_when_mended():
    rows = worker_runs.apart()
    assert [max(row) > 0 for row in rows] == [False, False, True, True, True, True]
    assert not any(any(row) for row in worker_runs.apart(mended("branches")))


def test_waits_is_right_and_a_fifth_of_its_time_is_spent_waiting():
    slow, quick = worker_runs.seen("waits"), worker_runs.seen("waits", mended("waits"))
    assert all(torch.equal(a, b) for a, b in zip(slow.values, quick.values, strict=True))
    assert quick.ledger.makespan < 0.8 * slow.ledger.makespan
