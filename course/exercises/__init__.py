"""The exercises, one module each: `course/exercises/<unit>/<entry>.py` declares `EXERCISE`."""

from __future__ import annotations

import importlib

from course.errors import DeclarationError
from course.performing.exercise import Exercise
from course.syllabus import Entry, find_entry


def load(name: str) -> Exercise:
    """The exercise with this entry name or id. Raises UnknownExercise, naming the nearest."""
    return _load(find_entry(name))


def _load(entry: Entry) -> Exercise:
    module = importlib.import_module(f"{__name__}.{entry.unit}.{module_name(entry.name)}")
    exercise = getattr(module, "EXERCISE", None)
    if not isinstance(exercise, Exercise) or exercise.id != entry.id:
        raise DeclarationError(f"{module.__name__} must declare EXERCISE with the id {entry.id}")
    return exercise


def module_name(entry: str) -> str:
    """The module of an entry: its own name, or in snake case where it is a class (`SaveLess`: `save_less`)."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in entry).lstrip("_")
