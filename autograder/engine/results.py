"""A graded class as plain data: what reports are made of, wherever the scores are kept."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from course.judging.verdict import Diagnosis, Finding, Verdict


@dataclass(frozen=True, kw_only=True)
class ExerciseResult:
    """One exercise of one student, as the gradebook has it.

    score    what counts: a manual score where there is one, extra credit included
    manual   whether a person gave or changed the score
    verdict  what the judge said, in brief; None where the graded notebook is lost
    """

    exercise: str
    score: float
    possible: int
    bonus: bool = False
    manual: bool = False
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        """The exercise's entry name."""
        return self.exercise.partition(".")[2]


@dataclass(frozen=True, kw_only=True)
class StudentResult:
    """One student: the gradebook's numbers, and what the engine found.

    score      after the late penalty, never below 0; what nbgrader exports
    max_score  without bonus exercises
    """

    student: str
    score: float
    max_score: float
    late_penalty: float = 0.0
    needs_review: bool = False
    exercises: tuple[ExerciseResult, ...] = ()
    repairs: tuple[str, ...] = ()
    problem: str = ""
    failed: str = ""
    seed: int | None = None
    seconds: float = 0.0

    @property
    def diagnoses(self) -> tuple[tuple[str, str], ...]:
        """(exercise name, misconception) for each exercise that has one."""
        found = [(each.name, each.verdict.diagnosis) for each in self.exercises if each.verdict]
        return tuple((name, diagnosis.name) for name, diagnosis in found if diagnosis)


@dataclass(frozen=True, kw_only=True)
class ClassResult:
    """All students of one assignment, by id; `runner` is how students' code was run."""

    assignment: str
    runner: str
    students: tuple[StudentResult, ...]

    def misconceptions(self) -> list[tuple[str, str, int]]:
        """(exercise name, misconception, number of students), the most frequent first."""
        hit = Counter(pair for student in self.students for pair in student.diagnoses)
        return [(exercise, name, count) for (exercise, name), count in sorted(hit.items(), key=_by_count)]


def brief(verdict: Verdict) -> Verdict:
    """What a table of a class says of an answer: names without numbers and hints, a twentieth of the memory."""
    failed = [each for each in verdict.findings if not each.held]
    findings = [Finding(property=each.property, held=False, points=0, possible=each.possible) for each in failed]
    diagnosis = Diagnosis(name=verdict.diagnosis.name, hint="") if verdict.diagnosis else None
    failure = dataclasses.replace(verdict.failure, where=()) if verdict.failure else None
    return dataclasses.replace(verdict, findings=tuple(findings), diagnosis=diagnosis, failure=failure, printed="")


def _by_count(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[str, str]]:
    return -item[1], item[0]
