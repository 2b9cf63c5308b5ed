"""What a notebook says of an answer with ranks the grader says too: simulated and brokered ranks, the same verdicts.

Answers to several exercises are cells of one notebook, which is loaded once.
"""

from __future__ import annotations

import contextlib

import pytest
from conftest import soak

from autograder import bank as banks
from autograder import edits, recording
from autograder.engine.grade import COUNTED_OUTSIDE
from course import exercises
from course.judging import sheet
from course.judging.judge import judge
from course.performing.cells import CodeCell
from course.performing.perform import perform_all
from course.syllabus import entries

WITH_RANKS = [entry.id for entry in entries() if exercises.load(entry.id).split]
FIRST = {name.partition(".")[0]: name for name in reversed(WITH_RANKS)}  # of each unit


def witnesses(bank):
    return [witness for each in bank.misconceptions for witness in each.witnesses]


@contextlib.contextmanager
def notebook(runner, answers):
    """A session with one answer to each of these exercises."""
    cells = [CodeCell(source=edits.cell(name, answer), answers=name) for name, answer in answers.items()]
    with runner.session(cells) as session:
        yield session


def told(verdict):
    """What a student is told of an answer."""
    lost = {each.property: each.blocked_by for each in verdict.findings if not each.held}
    return verdict.points, lost, verdict.diagnosis and verdict.diagnosis.name


def compared(bank, record, answer, session):
    """The same answer on simulated ranks, and brokered."""
    exercise, cases, known = bank.exercise, record.cases, (record.references, record.suspects)
    here = judge(exercise, cases, perform_all(exercise, answer, cases, clock="cpu"), *known)
    return told(here), told(judge(exercise, cases, session.perform(exercise, cases), *known, sources=COUNTED_OUTSIDE))


@pytest.fixture(scope="module")
def session(warm):
    """One wrong answer to every exercise with ranks, in one notebook; test_every_exercise performs the right ones."""
    with notebook(warm, {name.partition(".")[2]: witnesses(banks.load(name))[0] for name in WITH_RANKS}) as found:
        yield found


@pytest.mark.parametrize("name", [name if name in FIRST.values() else soak(name) for name in WITH_RANKS])
def test_simulated_and_brokered_ranks_get_the_same_verdict(name, session):
    bank = banks.load(name)
    simulated, brokered = compared(bank, sheet.load(bank.exercise.unit)[name], witnesses(bank)[0], session)
    assert brokered == simulated
    assert simulated[0] < bank.exercise.points


def test_a_unit_may_add_up_its_many_copies_one_after_the_other(warm):
    bank = banks.load("fsdp.unit_forward")
    cases = bank.exercise.draw(4)  # a seed for which they take more roundings than one sum may
    (answer,) = [each.answer for each in bank.alternatives if each.name == "emptied_storage"]
    with notebook(warm, {bank.exercise.name: answer}) as session:
        seen = session.perform(bank.exercise, cases)
    verdict = judge(bank.exercise, cases, seen, recording.references(bank, cases), sources=COUNTED_OUTSIDE)
    assert [each.property for each in verdict.findings if not each.held] == []


@pytest.mark.soak
@pytest.mark.sandbox
@pytest.mark.parametrize("name", WITH_RANKS)
def test_every_answer_of_the_bank_gets_the_same_verdict_behind_walls(walled, name):
    bank, apart = banks.load(name), []
    record = recording.record(bank, seed=1)
    for answer in (bank.reference, *witnesses(bank)):
        with notebook(walled, {bank.exercise.name: answer}) as session:
            simulated, brokered = compared(bank, record, answer, session)
        if simulated != brokered:
            apart.append((edits.slip(answer), simulated, brokered))
    assert apart == []
