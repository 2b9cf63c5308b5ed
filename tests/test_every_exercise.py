"""Every exercise of the course, by the same few statements: the sheet is what is recorded here, the proof holds, and
right answers get full marks where students' code is graded. An exercise needs no test of its own for any of it.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from conftest import soak

from autograder import bank as banks
from autograder import edits, recording
from autograder.engine.grade import alone
from autograder.prove import prove, with_worked
from autograder.release import authored, promises
from autograder.release.sheets import sheets_differ
from autograder.undisturbed import files_in_memory, undisturbed
from course.judging import sheet
from course.performing.cells import CodeCell
from course.performing.exercise import PUBLIC_SEED
from course.syllabus import entries, find_unit

ROOT = Path(__file__).resolve().parent.parent
FRESH = 20_261_122  # `make prove` and `make soak` draw others

# A process comes to the exercises of one unit after another.
committed_sheet = functools.lru_cache(maxsize=1)(sheet.load)
lesson_of = functools.lru_cache(maxsize=1)(lambda unit: authored.read(ROOT / f"solutions/{unit.notebook}.py", ROOT))

every_exercise = pytest.mark.parametrize("name", [entry.id for entry in entries()])


@every_exercise
@undisturbed()
@files_in_memory()
def test_the_sheet_is_what_is_recorded_and_the_proof_holds_on_it_and_on_fresh_cases(name):
    bank = with_worked(banks.load(name), ROOT)
    # What roundings do to a misconception, the sheet says: to find it out costs as much as all the rest of a record.
    recorded, committed = recording.recorded(bank, moved=0), committed_sheet(bank.exercise.unit)[name]
    fresh = recording.as_sensitive(recorded.record, committed)
    assert "\n".join(sheets_differ({name: committed}, {name: fresh})) == "", "if that is meant: make build"
    assert prove(bank, [PUBLIC_SEED, FRESH], public=recorded.beside(committed), quick=True).misses == []


@every_exercise
def test_what_the_docstring_promises_is_judged(name):
    unit, _, entry = name.partition(".")
    (cell,) = (each for each in lesson_of(find_unit(unit)).answers if each.entry == entry)
    definition = authored.parse(cell, magics=False).body[-1]
    assert "\n".join(promises.unkept(banks.load(name).exercise, ast.get_docstring(definition))) == ""


@every_exercise
@pytest.mark.sandbox
@pytest.mark.parametrize("others", [slice(0), soak(slice(None))], ids=["the reference", "and all others"])
def test_right_answers_get_full_marks_in_the_sandbox_without_what_is_removed(walled, name, others):
    bank = banks.load(name)
    exercise = bank.exercise
    ours = [each.answer for each in bank.alternatives if not each.independent]
    for answer in (bank.reference, *ours[others]):
        cells = [CodeCell(source=edits.cell(exercise.name, answer), answers=exercise.name)]
        with walled.session(cells) as session:
            verdict = alone(exercise, session, FRESH)
        lost = {each.property: (each.got, each.expected, each.error) for each in verdict.findings if not each.held}
        assert (answer.__name__, lost) == (answer.__name__, {})
