"""The exercises, one module each: `course/exercises/<unit>/<entry>.py` declares `EXERCISE`."""

from __future__ import annotations

import importlib
import re

from course.errors import DeclarationError
from course.performing.exercise import Exercise
from course.syllabus import Entry, find_entry


def load(name: str) -> Exercise:
    """The exercise with this entry name or id. Raises UnknownExercise, naming the nearest."""
    return _load(find_entry(name))


def _load(entry: Entry) -> Exercise:
    path = f"{__name__}.{entry.unit}.{module_name(entry.name)}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # something that the exercise imports
        file = f"{path.replace('.', '/')}.py"
        raise DeclarationError(f"{entry.id} is in the syllabus and must be declared in {file}: write it") from None
    exercise = getattr(module, "EXERCISE", None)
    if not isinstance(exercise, Exercise) or exercise.id != entry.id:
        raise DeclarationError(f"{module.__name__} must declare EXERCISE with the id {entry.id}")
    return exercise


def module_name(entry: str) -> str:
    """The module of an entry: its own name, or in snake case where it is a class (`SaveLess`: `save_less`).

    Capitals in a row stay together: `LoRALinear` is in `lora_linear`.
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[A-Z]{2})(?=[A-Z][a-z])", "_", entry).lower()
