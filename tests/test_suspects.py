"""Which misconceptions are looked at when an answer is wrong: never fewer than could explain it, and seldom more."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from conftest import soak

from autograder import bank as banks
from autograder import recording
from autograder.engine.suspects import Known, suspected
from course.judging.diagnosis import looks_right
from course.judging.judge import judge
from course.performing.compare import case_dtype
from course.performing.exercise import Failure, Observation
from course.performing.perform import perform_all

SEED = 7


def wrong_answers(name):
    bank = banks.load(name)
    return bank, [(each.name, wrong) for each in bank.misconceptions for wrong in each.witnesses]


@functools.cache
def drawn(name):
    bank = banks.load(name)
    cases = tuple(bank.exercise.draw(SEED))
    return Known(bank=bank, cases=cases, references=recording.references(bank, cases))


def observed(bank, wrong):
    known = dataclasses.replace(drawn(bank.exercise.id), recorded={})
    return known, tuple(perform_all(bank.exercise, wrong, known.cases))


@pytest.mark.parametrize("name", ["start_here.running_mean", soak("computational_graphs.unbroadcast")])
def test_the_telling_case_loses_no_diagnosis(name):
    bank, wrong_ones = wrong_answers(name)
    recorded = recording.suspects(bank, bank.exercise.draw(SEED))
    for _, wrong in wrong_ones:
        known, seen = observed(bank, wrong)
        few = judge(bank.exercise, known.cases, seen, known.references, list(suspected(known, seen)))
        every = judge(bank.exercise, known.cases, seen, known.references, recorded)
        assert few.diagnosis is not None
        assert few.diagnosis == every.diagnosis


def test_wrong_answers_that_show_something_else_in_the_first_cases_are_not_run_on_all(monkeypatch):
    bank, wrong_ones = wrong_answers("computational_graphs.unbroadcast")
    known, seen = observed(bank, dict(wrong_ones)["digits_lost_in_float64"])
    runs = []
    recorded = recording.suspects
    monkeypatch.setattr(
        recording,
        "suspects",
        lambda one, some: runs.append((one.misconceptions[0].name, len(some))) or recorded(one, some),
    )
    list(suspected(known, seen))
    otherwise = {"wrong_axis", "keeps_the_leading_dimensions", "first_for_sum", "sums_everything", "only_size_one"}
    assert len(known.cases) > 3
    assert {name for name, cases in runs if cases == 1} >= otherwise
    assert {name for name, cases in runs if cases > 1} == {each.name for each in bank.misconceptions} - otherwise
    before = len(runs)
    list(suspected(known, seen))  # of the next student
    assert len(runs) == before


@pytest.mark.parametrize("failure", ["TimeLimit", "KeyboardInterrupt"])
def test_where_a_run_was_stopped_the_first_case_that_is_wrong_tells(failure):
    bank, wrong_ones = wrong_answers("start_here.running_mean")
    stop = Observation(error=Failure(type=failure, message="too long"))
    for name, wrong in wrong_ones:
        known, seen = observed(bank, wrong)
        dtypes = [case_dtype(dict(case.inputs)) for case in known.cases]
        looks = map(looks_right, zip(seen, dtypes, strict=True), known.references)
        first = [*looks].index(False)
        stopped = [each if at <= first else stop for at, each in enumerate(seen)]
        found = [each.name for each in suspected(known, stopped)]
        assert name in found
        assert len(found) < len(bank.misconceptions)


def test_who_stops_in_the_first_case_has_few_wrong_answers_run_on_all():
    known = dataclasses.replace(drawn("start_here.running_mean"), recorded={})
    stop = Observation(error=Failure(type="KeyboardInterrupt", message=""))
    found = [each.name for each in suspected(known, [stop] * len(known.cases))]
    assert found == [each.name for each in known.bank.misconceptions if each.fails]
