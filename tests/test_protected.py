"""The tables of docs/security.md are what exercises declare, and what grading does to somebody else's right answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autograder import bank as banks
from autograder import edits, recording
from autograder.bank import Bank
from autograder.engine.grade import COUNTED_OUTSIDE
from autograder.sandbox import open_runner
from autograder.sandbox.inside.removed.erased import CODE
from autograder.sandbox.outside import doctor
from course import exercises
from course.judging.judge import judge
from course.performing.cells import CodeCell
from course.performing.exercise import Answer, Exercise
from course.performing.oracle import UnknownQuestion
from course.performing.perform import perform_all
from course.performing.pledges import Sample
from course.syllabus import entries

DOCS = Path(__file__).parent.parent / "docs" / "security.md"
ASKING = {entry.id: exercises.load(entry.id) for entry in entries() if exercises.load(entry.id).oracle}
REMOVING = [entry.id for entry in entries() if exercises.load(entry.id).removes]
SEED = 5
MORE = ("watchdog and costs counted outside", "removed machine code stays away")  # that the doctor tries


def rows() -> dict[tuple[str, str], list[str]]:
    """By exercise and answer: the cells of each row."""
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| `") and line.count("|") == 8]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0].strip("`"), row[2]): row for row in cells}


def test_what_bounds_a_resource_is_tried_by_the_doctor_where_it_can_be():
    lines = [line for line in DOCS.read_text().splitlines() if line.count("|") == 5 and not line.startswith("| ---")]
    (_, _, _, tried), *table = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert tried == "tried by `autograder doctor` as"
    assert {row[3] for row in table} - {"nothing"} <= {*doctor.ATTEMPTS, *MORE}


def told(exercise: Exercise) -> str:
    """Which hidden numbers are told for which results; "" where something else is asked for."""
    cases = [case for case in exercise.draw(SEED) if case.hidden] or exercise.draw(SEED)[:1]
    oracle = exercise.oracle(cases[0])
    if not isinstance(oracle, Sample):
        return ""
    named = [
        [", ".join(f"`{name}`" for name in each) for each in (stage.tells, stage.pieces)] for stage in oracle.stages
    ]
    return ", then ".join(f"{tells} for {pieces}" for tells, pieces in named) or "nothing"


def test_the_table_of_questions_has_a_row_for_each_exercise_with_an_oracle_and_says_what_it_tells():
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| `") and line.count("|") == 4]
    table = {name.strip(" `"): tells.strip() for _, name, tells, *_ in (line.split("|") for line in lines)}
    assert table.keys() == ASKING.keys()
    assert all(table[name] == (told(exercise) or table[name]) != "" for name, exercise in ASKING.items())


@pytest.mark.parametrize("name", ASKING)
def test_what_no_probe_is_told_yet_is_told_to_nobody(name):
    exercise = ASKING[name]
    for case in exercise.draw(SEED):
        oracle = exercise.oracle(case)
        for number in {*case.hidden, "show"} - {"matrices"}:
            with pytest.raises(UnknownQuestion):
                oracle.ask(number, {})


def others(bank: Bank) -> Iterator[tuple[str, Answer]]:
    """The right answers that are somebody else's."""
    yield from ((each.independent, each.answer) for each in bank.alternatives if each.independent)


def counted(exercise: Exercise) -> str:
    """What is counted outside, and earns points."""
    kinds = (("memory and time", bool(exercise.measured)), ("questions", exercise.name == "backward"))
    return ", ".join(name for name, is_so in kinds if is_so) or "nothing"


def test_the_table_has_a_row_for_each_exercise_that_does_without_something():
    expected = {}
    for name in REMOVING:
        bank = banks.load(name)
        without = ", ".join(f"`{each}`" for each in bank.exercise.removes)
        erased = ", ".join(f"`{each}`" for each in bank.exercise.removes if each in CODE) or "nothing"
        expected |= {(name, label): (without, counted(bank.exercise), erased) for label, _ in others(bank)}
    assert {key: (row[1], *row[5:7]) for key, row in rows().items()} == expected


@pytest.mark.soak
@pytest.mark.sandbox
@pytest.mark.parametrize("name", REMOVING)
def test_the_points_are_those_that_it_says(name):
    bank = banks.load(name)
    exercise, cases = bank.exercise, bank.exercise.draw(SEED)
    references = recording.references(bank, cases)
    with open_runner(display=False) as runner:
        for label, answer in others(bank):
            free = perform_all(exercise, answer, cases, clock="cpu")
            with runner.session([CodeCell(source=edits.cell(exercise.name, answer), answers=exercise.name)]) as session:
                graded = session.perform(exercise, cases)
            got = [judge(exercise, cases, seen, references, sources=COUNTED_OUTSIDE).points for seen in (free, graded)]
            assert rows()[name, label][3:5] == [f"{each} of {exercise.points}" for each in got]
