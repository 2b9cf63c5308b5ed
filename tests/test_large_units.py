"""Units that are made large of a few rows: what is observed of them is the same, and speaks of every number."""

from __future__ import annotations

import pytest
import torch
from judged import verdict

from course import exercises
from course.exercises.fsdp import units
from course.reference.fsdp.run_units import run_units

RANKS = 4
CASE = units.deep(torch.Generator().manual_seed(1), "deep")


def parts(outside):
    return units.split({**CASE.inputs, **({"outside": True} if outside else {})})


def observed(outside):
    """Of the first unit: y, and what its b, its tanh and the gradients of a are mixed to."""
    given = parts(outside)
    full = torch.cat([units.shards_of(each, RANKS, rank)[0] for rank, each in enumerate(given)])
    a, b = full.view(2, -1, units.WIDTH)
    x, dy = given[0]["x"], given[0]["dy"]
    t = torch.tanh(x @ a.T)
    assert torch.equal(t, units.columns(given[0], 0, torch.tanh(x @ given[0]["a"][0].T)))
    da = ((dy @ b.T) * (1 - t * t)).T @ x
    halves = [units.piece(given[0], 0, half.flatten(), RANKS, rank) for rank, half in enumerate(da.chunk(2))]
    mixed = (units.mixed(given[0], 0, rows, shared=shared) for rows, shared in ((b, True), (t.T, False)))
    return [x + t @ b, *mixed, *halves]


def test_what_is_observed_is_the_same_small_and_large():
    for large, small in zip(observed(True), observed(False), strict=True):
        torch.testing.assert_close(large, small, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("place", [0, 5_000, -1])
def test_no_number_of_a_large_unit_is_left_out(place):
    part = parts(True)[0]
    rows = torch.ones(units.ROWS * units.MANY, 1, dtype=torch.float64)
    before = units.mixed(part, 0, rows, shared=False)
    rows[place] = 2
    assert (units.mixed(part, 0, rows, shared=False) - before).abs().min() > 1e-6


def test_who_sends_less_than_all_of_the_units_has_not_worked_on_all_of_them():
    unit = 2 * units.FEW * units.ROWS * units.WIDTH * 8
    sent = torch.full((RANKS,), units.DEEP * (RANKS - 1) * unit // RANKS)
    statement = units.memory(2, shards=1, sent=1)
    account = {"live_bytes": torch.zeros(RANKS), "bytes_sent": sent}
    assert statement(CASE.inputs, account, {}) is None
    account["bytes_sent"] = sent - 8
    assert "less than all parts of the units" in statement(CASE.inputs, account, {})


def test_ranks_that_tell_fewer_seconds_have_overlapped_nothing():
    shares = {4: 0.38, 3: 0.75}  # with which no overlap takes about as long as ours

    def answer(comm, shards, forward, backward, x, dy, prefetch):
        tell, share = comm.compute, shares.get(comm.size, 1.0) if prefetch else 1.0
        comm.compute = lambda seconds, label="": tell(share * seconds, label)
        try:
            return run_units(comm, shards, forward, backward, x, dy, False)
        finally:
            comm.compute = tell

    (found,) = (each for each in verdict("run_units", answer).findings if each.property == "overlapped")
    assert "units do not compute for as long" in found.got


@pytest.mark.parametrize("name", ["run_units", "unit_forward", "unit_backward", "zero2_backward", "unshard"])
def test_every_large_case_asks_that_all_of_the_units_are_sent(name):
    exercise = exercises.load(name)
    large = {case.name: case for case in exercise.draw(0) if case.name in exercise.measured}
    costs = [each for each in exercise.properties if each.evidence == "ledger" and large.keys() >= {*each.cases}]
    assert costs
    for each in costs:
        account = {"live_bytes": torch.zeros(RANKS), "bytes_sent": torch.zeros(RANKS)}
        assert "less than all parts of the units" in each.holds(large[each.cases[0]].inputs, account, {})
