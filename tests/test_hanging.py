"""How far ranks get whose calls do not fit, and that each trace of `explain_deadlock` has one explanation."""

from __future__ import annotations

import pytest

from course.exercises.ddp.explain_deadlock import EXERCISE
from course.lessons.experiments.hanging import RETURNED, WAIT, call, example, got, table
from course.reference.ddp.explain_deadlock import _agree, _from_rank_0, explain_deadlock

SUM, GATHER = call("all_reduce", [4], op="sum"), call("all_gather", [3])


def test_a_right_program_returns_on_every_rank():
    programs = [
        [call("send", [2], peer=1 - rank), call("recv", [2], peer=1 - rank), SUM, WAIT, GATHER, WAIT]
        for rank in range(2)
    ]
    assert got(programs) == [[*program, RETURNED] for program in programs]


def test_a_rank_begins_all_calls_up_to_the_wait_that_does_not_end():
    right, wrong = [SUM, GATHER, WAIT, SUM, WAIT], [GATHER, SUM, WAIT, SUM, WAIT]
    assert got([right, right, wrong]) == [right[:3], right[:3], wrong[:3]]


def test_a_rank_that_leaves_out_the_last_call_of_a_step_goes_on_into_the_next():
    right, wrong = [SUM, GATHER, WAIT, SUM, WAIT], [SUM, WAIT, SUM, WAIT]
    assert got([right, wrong]) == [right[:3], wrong]


def test_a_message_of_another_shape_is_not_received():
    programs = [[call("send", [2], peer=1), WAIT], [call("recv", [3], peer=0), WAIT]]
    assert got(programs) == [[*programs[0], RETURNED], programs[1]]


def test_the_table_has_a_column_for_each_rank():
    head, *rows = table(example()).splitlines()
    assert head.split() == ["rank", "0", "rank", "1", "rank", "2", "rank", "3"]
    assert rows[7].count("[20]") == 3  # rank 2 leaves it out


@pytest.mark.parametrize("seed", range(5))
def test_whoever_is_held_against_the_rank_at_fault_one_reason_fits(seed):
    for case in EXERCISE.draw(seed):
        for trace in case.inputs["traces"].values():
            rank, index, reason = explain_deadlock(trace)
            lists = [[_from_rank_0(each, r, len(trace)) for each in calls] for r, calls in enumerate(trace)]
            mine = lists[rank]
            for right in (each for each in lists if each is not mine):
                assert mine[:index] == right[:index]
                assert mine[index] != right[index]
                a, b = mine[index:], right[index:]
                fits = {
                    "wrong order": a[:2] == b[1::-1] and _agree(a[2:], b[2:]),
                    "missing call": _agree(a, b[1:]),
                    "extra call": _agree(a[1:], b),
                    "wrong argument": a[0][0] == b[0][0] and _agree(a[1:], b[1:]),
                }
                found = reason if reason in fits else "wrong argument"
                assert [name for name, does in fits.items() if does] == [found], (seed, case.name)
