"""The bank: for every exercise its reference, its named right answers and its named wrong answers.

course/reference/<unit>/<entry>.py             the function or class itself, under the entry's name
autograder/alternatives/<unit>/<entry>.py      ALTERNATIVES: named right answers in another style
autograder/misconceptions/<unit>/<entry>.py    MISCONCEPTIONS: named wrong answers with the hint that cures each
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course import exercises
from course.errors import DeclarationError
from course.exercises import module_name
from course.judging.sheet import Record
from course.judging.verdict import Suspect, Witness
from course.performing.compare import EPS, compare
from course.performing.exercise import ARGUMENTS_UNCHANGED, PUBLIC_SEED, Answer, Case, Exercise, Observation
from course.performing.perform import converted, in_float64, own_state, perform, perform_all
from course.syllabus import find_unit
from course.tree import Leaf, map_leaves

TWO_SEEDS = (11, 12)  # global random states under which a misconception is performed


@dataclass(frozen=True, kw_only=True)
class Misconception:
    """A named wrong implementation.

    hint       one paragraph that cures it, addressed to the student
    witnesses  implementations of the same mistake; several where style changes the values
    fails      names of properties: recognised where exactly these fail, whatever the values
    rounds_to  the dtype that these compute in though the case's is finer: processors differ by its roundings
    same_as    misconceptions of this exercise that no case can tell from this one
    """

    name: str
    hint: str
    witnesses: tuple[Answer, ...]
    fails: tuple[str, ...] = ()
    rounds_to: torch.dtype = torch.float64
    same_as: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A named right implementation that differs from the reference in style, and must pass."""

    name: str
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Everything that is known about one exercise."""

    exercise: Exercise
    reference: Answer
    alternatives: tuple[Alternative, ...]
    misconceptions: tuple[Misconception, ...]


def load(name: str) -> Bank:
    """The bank of an exercise, by entry name or id. Raises DeclarationError where a part is missing."""
    exercise = exercises.load(name)
    misconceptions = tuple(_part("autograder.misconceptions", exercise, "MISCONCEPTIONS"))
    reference: Answer = _part("course.reference", exercise, exercise.name)
    if exercise.keeps:
        misconceptions = (*misconceptions, _changes_arguments(exercise, reference))
    return Bank(
        exercise=exercise,
        reference=reference,
        alternatives=tuple(_part("autograder.alternatives", exercise, "ALTERNATIVES")),
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


def _changes_arguments(exercise: Exercise, reference: Answer) -> Misconception:
    """The slip that every exercise with kept arguments shares: the right result, and a spoilt argument."""

    def spoil(argument: object) -> None:
        if isinstance(argument, Tensor) and argument.is_floating_point():
            argument.detach().add_(1.0)
        elif isinstance(argument, (list, tuple)):
            if isinstance(argument, list):
                argument[:] = [value + 1.0 if isinstance(value, float) else value for value in argument]
            for value in argument:
                spoil(value)

    def answer(*args: Any, **kwargs: Any) -> Any:
        result = reference(*args, **kwargs)
        for argument in (*args, *kwargs.values()):
            spoil(argument)
        return result

    hint = next(each.hint for each in exercise.properties if each.name == ARGUMENTS_UNCHANGED)
    return Misconception(name="changes_its_arguments", hint=hint, witnesses=(answer,), fails=(ARGUMENTS_UNCHANGED,))


# --- recording -------------------------------------------------------------------------------------


def references(bank: Bank, cases: Sequence[Case]) -> tuple[Observation, ...]:
    """The reference's observations in float64. Raises DeclarationError where the reference itself breaks."""
    seen = tuple(perform(bank.exercise, bank.reference, in_float64(case)) for case in cases)
    for case, observation in zip(cases, seen, strict=True):
        if observation.error is not None:
            raise DeclarationError(
                f"{bank.exercise.id}: the reference must run on case `{case.name}`, but raised "
                f"{observation.error.type}: {observation.error.message}"
            )
    return seen


def suspects(bank: Bank, cases: Sequence[Case]) -> tuple[Suspect, ...]:
    """Every misconception with its witnesses recorded on these cases."""
    return tuple(
        Suspect(
            name=each.name,
            hint=each.hint,
            witnesses=() if each.fails else _recorded(bank.exercise, each, cases),
            fails=frozenset(each.fails),
            same_as=frozenset(each.same_as),
        )
        for each in bank.misconceptions
    )


def record(bank: Bank, seed: int = PUBLIC_SEED) -> Record:
    """What the answer sheet holds of this exercise."""
    cases = tuple(bank.exercise.draw(seed))
    return Record(cases=cases, references=references(bank, cases), suspects=suspects(bank, cases))


def _recorded(exercise: Exercise, misconception: Misconception, cases: Sequence[Case]) -> tuple[Witness, ...]:
    moved = [_moved(case, EPS[misconception.rounds_to]) for case in cases]
    return tuple(_witness(exercise, wrong, cases, moved) for wrong in misconception.witnesses)


def _witness(exercise: Exercise, wrong: Answer, cases: Sequence[Case], moved: Sequence[Case]) -> Witness:
    """A wrong answer on these cases in their own dtype, with its free keys, and its sensitivity to moved ones."""
    first, second = (_seeded(exercise, wrong, cases, seed) for seed in TWO_SEEDS)
    third = _seeded(exercise, wrong, moved, TWO_SEEDS[0])
    return Witness(
        observations=tuple(first),
        free=tuple(_differing(a, b) for a, b in zip(first, second, strict=True)),
        sensitivity=tuple(_spread(a, b) for a, b in zip(first, third, strict=True)),
    )


def _seeded(exercise: Exercise, wrong: Answer, cases: Sequence[Case], seed: int) -> list[Observation]:
    with own_state():
        for seed_one in (torch.manual_seed, random.seed, np.random.seed):
            seed_one(seed)
        return [_without_lines(each) for each in perform_all(exercise, wrong, cases)]


def _without_lines(seen: Observation) -> Observation:
    """The same, without the lines of code at which it failed: sheets go to students."""
    return dataclasses.replace(seen, error=seen.error and dataclasses.replace(seen.error, where=()))


def _moved(case: Case, rounding: float) -> Case:
    """The case with every floating value, hidden ones too, one rounding away, up and down in turns.

    A tensor's numbers move by one rounding of their own dtype, or by `rounding` where that is more.
    """

    def move(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and leaf.dtype in EPS:
            turns = 1 - 2 * (torch.arange(leaf.numel(), dtype=torch.float64).reshape(leaf.shape) % 2)
            return (leaf.double() * (1 + turns * max(EPS[leaf.dtype], rounding))).to(leaf.dtype)
        return leaf * (1 + EPS[torch.float64]) if isinstance(leaf, float) else leaf

    return converted(case, lambda tree: map_leaves(move, tree))


def _leaves(seen: Observation) -> dict[str, Leaf]:
    return {**seen.values, **{f"ledger/{key}": value for key, value in seen.ledger.items()}}


def _differing(a: Observation, b: Observation) -> frozenset[str]:
    """Keys whose values two random states change."""
    one, two = _leaves(a), _leaves(b)
    return frozenset(key for key in one.keys() & two.keys() if _distance(one[key], two[key]) != 0)


def _spread(a: Observation, b: Observation) -> dict[str, float]:
    """By key, the largest finite change between two observations; keys that do not change are left out."""
    one, two = _leaves(a), _leaves(b)
    spread = {key: _distance(one[key], two[key]) for key in one.keys() & two.keys()}
    return {key: value for key, value in sorted(spread.items()) if value > 0 and math.isfinite(value)}


def _distance(a: Leaf, b: Leaf) -> float:
    """The largest difference: 0 where equal (nan equals nan), inf where the two cannot be compared."""
    return compare(a, b, torch.float64, roundings=0).error
