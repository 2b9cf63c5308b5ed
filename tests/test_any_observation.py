"""Any observation gives a verdict: what cannot be read does not hold, and nothing raises in the judge.

Values, costs and failures come from students' processes. Each exercise judges its own, by predicates of its own.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder.engine import grade
from course.exercises import load
from course.judging import sheet
from course.judging.judge import judge
from course.judging.sheet import Record
from course.performing.exercise import Failure, Observation
from course.syllabus import entries

ODD = [
    *(1j, complex("nan"), torch.tensor(1j), torch.tensor([1j, 2j]), torch.zeros(1, dtype=torch.complex64)),
    *(float("nan"), float("inf"), -1, 10**400, True, None, "", "\ud800", "1", [], {}, [[]], object()),
    *(torch.zeros(()), torch.zeros(0), torch.zeros(1, 0, 3), torch.tensor(float("nan")), torch.ones(2) > 0),
    *(torch.zeros(2, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int8), torch.zeros(2, device="meta")),
    torch.zeros(2).to_sparse(),
]
KINDS = ("TimeLimit", "NotImplementedError", "", "\ud800", "RanksFailed")


@functools.cache
def record(name: str) -> Record:
    """What the committed sheet holds of an exercise."""
    return sheet.load(name.partition(".")[0])[name]


@st.composite
def spoiled(draw, honest: Observation) -> Observation:
    """An observation in which some leaves are odd, gone, or another's, and which may say that it broke."""
    leaves = st.sampled_from(ODD) | st.sampled_from([*honest.values.values(), *honest.ledger.values()] or ODD)

    def part(found):
        odd = {key: draw(leaves) for key in found if draw(st.booleans())}
        gone = {key for key in found if draw(st.integers(0, 9)) == 0}
        return {key: value for key, value in {**found, **odd, "more": draw(leaves)}.items() if key not in gone}

    failure = Failure(
        type=draw(st.sampled_from(KINDS)), message=draw(st.text(max_size=5)), rank=draw(st.none() | st.just(0))
    )
    ledger = part(honest.ledger)
    return dataclasses.replace(
        honest,
        values=part(honest.values),
        ledger=ledger,
        sources={key: draw(st.sampled_from(["claimed", "broker", "", None, []])) for key in ledger},
        error=draw(st.none() | st.just(failure)),
    )


NAMES = [entry.id for entry in entries()]


def is_judged(name: str, data) -> None:
    """Any observation of this exercise gives points within its own."""
    known = record(name)
    suspects = data.draw(st.sampled_from([(), known.suspects]))
    seen = [data.draw(spoiled(reference)) for reference in known.references]
    verdict = judge(load(name), known.cases, seen, known.references, suspects)
    assert 0 <= verdict.points <= verdict.possible


@given(name=st.sampled_from(NAMES), data=st.data())
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_any_observation_gives_a_verdict(name, data):
    is_judged(name, data)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_any_observation_of_each_exercise_gives_a_verdict(name, data):
    is_judged(name, data)


def test_nothing_ran_where_one_failure_without_a_line_stands_for_all_cases():
    failure = Failure(type="RemovedError", message="may not be used")
    assert grade.nothing_ran([Observation(error=failure)] * 3)
    ranks = [Observation(error=failure, ledger={"peak_bytes": torch.tensor([1, number])}) for number in range(3)]
    assert grade.nothing_ran(ranks)
    assert not grade.nothing_ran([Observation(), *ranks])
    assert not grade.nothing_ran([Observation(error=dataclasses.replace(failure, where=("line 1",)))] * 3)


@pytest.mark.parametrize("cost", [torch.tensor(1j), 1j, torch.zeros(1, dtype=torch.complex64), 10**400])
def test_a_cost_that_is_no_real_number_is_none(cost):
    name = next(each for each in NAMES if any(property.shows for property in load(each).properties))
    known = record(name)
    keys = {property.shows for property in load(name).properties if property.shows}
    seen = [dataclasses.replace(each, ledger={**each.ledger, **dict.fromkeys(keys, cost)}) for each in known.references]
    assert judge(load(name), known.cases, seen, known.references, known.suspects).points < load(name).points
