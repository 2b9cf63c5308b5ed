"""The bank: for every exercise its reference, its named right answers and its named wrong answers.

course/reference/<unit>/<entry>.py       the function or class itself, under the entry's name
autograder/answers/<unit>/<entry>.py     RIGHT: right answers in another style; WRONG: mistakes, as edits of right ones
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import torch

from autograder import edits
from course import exercises
from course.errors import DeclarationError
from course.exercises import module_name
from course.performing.exercise import ARGUMENTS_UNCHANGED, Answer, Exercise
from course.syllabus import find_unit


@dataclass(frozen=True, kw_only=True)
class Misconception:
    """A named wrong implementation.

    hint       one paragraph that cures it, addressed to the student
    witnesses  implementations of the same mistake; several where style changes the values
    fails      names of properties: recognised where exactly these fail, whatever the values
    rounds_to  the dtype that these compute in though the case's is finer: processors differ by its roundings
    same_as    misconceptions of this exercise that no case can tell from this one
    by_chance  whether which properties fail may depend on what was drawn
    """

    name: str
    hint: str
    witnesses: tuple[Answer, ...]
    fails: tuple[str, ...] = ()
    rounds_to: torch.dtype = torch.float64
    same_as: tuple[str, ...] = ()
    by_chance: bool = False


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A named right implementation that differs from the reference in style, and must pass.

    independent  what it stands on where it shares no formula with the reference: a library's own call, numpy, a closed
                 form. One alternative of each exercise is independent
    """

    name: str
    answer: Answer
    independent: str = ""


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Everything that is known about one exercise."""

    exercise: Exercise
    reference: Answer
    alternatives: tuple[Alternative, ...]
    misconceptions: tuple[Misconception, ...]


def right(answer: Answer, *, independent: str = "") -> Alternative:
    """An alternative under the answer's own name."""
    return Alternative(name=answer.__name__, answer=answer, independent=independent)


def wrong(name: str, hint: str, *witnesses: Answer, **more: Any) -> Misconception:
    """A misconception with `more` of its fields. Raises DeclarationError where a witness has no source to hand in."""
    if not witnesses:
        raise DeclarationError(f"misconception {name} must have at least one witness")
    for each in witnesses:
        edits.source(each)
    return Misconception(name=name, hint=hint, witnesses=witnesses, **more)


def load(name: str) -> Bank:
    """The bank of an exercise, by entry name or id. Raises DeclarationError where a part is missing."""
    exercise = exercises.load(name)
    reference: Answer = _part("course.reference", exercise, exercise.name)
    misconceptions = tuple(_part("autograder.answers", exercise, "WRONG"))
    if exercise.keeps:
        misconceptions = (*misconceptions, _changes_arguments(exercise, reference))
    return Bank(
        exercise=exercise,
        reference=reference,
        alternatives=tuple(_part("autograder.answers", exercise, "RIGHT")),
        misconceptions=misconceptions,
    )


def load_unit(slug: str) -> tuple[Bank, ...]:
    """The banks of a unit, in the syllabus's order."""
    return tuple(load(entry.id) for entry in find_unit(slug).entries)


def _part(package: str, exercise: Exercise, name: str) -> Any:
    path = f"{package}.{exercise.unit}.{module_name(exercise.name)}"
    try:
        return getattr(importlib.import_module(path), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise DeclarationError(f"{exercise.id} must have `{name}` in {path}, but: {error}") from None


SPOILING = """

right_one = {name}


def spoil(argument):
    if isinstance(argument, (list, tuple)):
        if isinstance(argument, list):
            argument[:] = [value + 1.0 if isinstance(value, float) else value for value in argument]
        for value in argument:
            spoil(value)
    elif hasattr(argument, "detach") and (argument.is_floating_point() or "int8" in str(argument.dtype)):
        argument.detach().add_(1)


def {name}(*args, **kwargs):
    result = right_one(*args, **kwargs)
    for argument in (*args, *kwargs.values()):
        spoil(argument)
    return result
"""


@functools.cache
def _changes_arguments(exercise: Exercise, reference: Answer) -> Misconception:
    """The slip that every exercise with kept arguments shares: the right result, and a spoilt argument."""
    text = edits.source(reference) + SPOILING.format(name=exercise.name)
    answer = edits.compiled(text, exercise.name, module=reference.__module__)
    hint = next(each.hint for each in exercise.properties if each.name == ARGUMENTS_UNCHANGED)
    return wrong("changes_its_arguments", hint, answer, fails=(ARGUMENTS_UNCHANGED,))
