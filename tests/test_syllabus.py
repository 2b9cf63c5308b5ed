"""course/syllabus.py: one ordered list, and every slice of every unit is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autograder import bank as banks
from course.errors import UnknownExercise
from course.exercises import module_name
from course.judging import sheet
from course.syllabus import UNITS, entries, find_entry, find_unit

ROOT = Path(__file__).parent.parent
UNIT = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.slug)
ENTRY = pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)


def test_ids_names_and_slugs_are_unique():
    for names in ([each.id for each in entries()], [each.name for each in entries()], [unit.slug for unit in UNITS]):
        assert len(names) == len(set(names))


def test_units_are_numbered_in_order():
    assert [unit.number for unit in UNITS] == sorted({unit.number for unit in UNITS})


@UNIT
def test_a_unit_asks_a_question(unit):
    assert unit.question.endswith("?")
    assert re.fullmatch(rf"\d\d_{unit.slug}", unit.notebook)


@ENTRY
def test_an_exercise_takes_minutes_and_has_a_difficulty(entry):
    assert 1 <= entry.difficulty <= 5
    assert 1 <= entry.minutes <= 60
    assert entry.id == f"{entry.unit}.{entry.name}"
    assert entry.name.isidentifier()


def test_bonus_exercises_are_marked():
    assert [each.name for each in entries() if each.bonus] == ["hvp", "reversible_backward", "adam8_step"]


# finding


@pytest.mark.parametrize("name", ["SaveLess", "computational_graphs.SaveLess"])
def test_an_exercise_is_found_by_name_and_by_id(name):
    assert find_entry(name).id == "computational_graphs.SaveLess"


@pytest.mark.parametrize("name", ["computational_graphs", "01_computational_graphs"])
def test_a_unit_is_found_by_slug_and_by_notebook(name):
    assert find_unit(name).number == 1


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("bakward", "backward"), ("saveless", "SaveLess"), ("Save_Less", "SaveLess"), ("runing_mean", "running_mean")],
)
def test_a_misspelt_exercise_names_the_nearest(name, nearest):
    with pytest.raises(UnknownExercise) as caught:
        find_entry(name)
    assert str(caught.value) == f"`{name}` is no exercise of this course; did you mean `{nearest}`?"


def test_a_name_that_is_near_to_nothing_lists_them_all():
    with pytest.raises(UnknownExercise) as caught:
        find_entry("zzz")
    assert all(entry.name in str(caught.value) for entry in entries())


def test_a_misspelt_unit_names_the_nearest():
    with pytest.raises(UnknownExercise, match="is no unit of this course; did you mean `computational_graphs`"):
        find_unit("computational_graph")


# the slices


@ENTRY
def test_every_exercise_has_its_bank(entry):
    bank = banks.load(entry.id)
    own = [each for each in bank.misconceptions if each.name != "changes_its_arguments"]
    assert bank.exercise.id == entry.id
    assert callable(bank.reference)
    assert len(bank.alternatives) >= 2
    assert own
    assert all(each.witnesses and each.hint for each in own)


@UNIT
def test_every_unit_has_its_notebook_and_its_solution(unit):
    assert (ROOT / "solutions" / f"{unit.notebook}.py").is_file()
    assert (ROOT / "notebooks" / f"{unit.notebook}.ipynb").is_file()


@UNIT
def test_every_unit_has_an_answer_sheet_with_all_of_its_exercises(unit):
    assert sorted(sheet.load(unit.slug)) == sorted(entry.id for entry in unit.entries)


@UNIT
@pytest.mark.parametrize("package", ["course/exercises", "course/reference", "autograder/answers"])
def test_no_module_of_a_unit_is_without_its_exercise(unit, package):
    stems = {each.stem for each in (ROOT / package / unit.slug).glob("*.py")} - {"__init__"}
    missing = {module_name(entry.name) for entry in unit.entries} - stems
    assert missing == set()


def test_no_unit_lies_in_the_packages_that_the_syllabus_does_not_hold():
    folders = {each.name for each in (ROOT / "course/exercises").iterdir() if (each / "__init__.py").is_file()}
    assert folders == {unit.slug for unit in UNITS}
