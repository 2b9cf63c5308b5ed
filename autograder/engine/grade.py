"""From a submission to verdicts.

    Submission --sanitize--> Sanitized --display_run--> outputs for people
                                       --verdicts--> Graded: observations from the runner, judged here

The inputs are drawn here from a secret seed per student and run, after the student's cells were loaded; the student's
process gets the cases and nothing else. Every verdict is made in this process, and no cost counts that was claimed
there. The engine knows nothing of nbgrader and of where scores are kept.
"""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder import bank as banks
from autograder import recording
from autograder.engine.outputs import Outputs, safe
from autograder.engine.read import Cell, Unreadable, read_file
from autograder.engine.rebuild import rebuild, role_of
from autograder.engine.suspects import suspected
from autograder.sandbox import Runner, Session
from autograder.undisturbed import undisturbed
from course import exercises
from course.errors import CourseError
from course.judging.judge import judge
from course.judging.verdict import Verdict
from course.performing.cells import CodeCell
from course.performing.exercise import Case, Exercise, Failure, Observation, Source

SEED_BITS = 48  # the seed stays an exact number in every JSON reader
COUNTED_OUTSIDE: frozenset[Source] = frozenset({"tick", "broker", "kernel"})  # ledger sources that may earn points


@dataclass(frozen=True, kw_only=True)
class Release:
    """What students were given: the notebook, and the exercises that its check cells ask for."""

    name: str
    notebook: NotebookNode

    @classmethod
    def load(cls, path: Path) -> Release:
        """The release notebook at `path`. Raises CourseError where there is none or it has no check cell."""
        try:
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise CourseError(f"the release notebook must lie at {path}, but {error}; build it first") from None
        release = cls(name=path.stem, notebook=notebook)
        if not release.exercises:
            raise CourseError(f"{path} must have check cells, found none; build it again")
        return release

    @functools.cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        """In the order of their check cells."""
        roles = [role_of(cell) for cell in self.notebook.cells]
        return tuple(exercises.load(exercise) for exercise, role in roles if role == "check")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One student's file; `problem` says why there is no file at all."""

    student: str
    path: Path | None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """A submission after reading and rebuilding; nothing was run yet.

    notebook  rebuilt from the release; the release itself where `problem` says why the file could not be read
    """

    student: str
    notebook: NotebookNode
    repairs: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Graded:
    """What came out of one submission.

    problem  why the file could not be read; it was then graded as untouched
    failed   why grading itself broke: the verdicts are those of an untouched notebook, and nobody should trust them
    seed     draws the same cases again
    displayed  what the display run showed, by code cell of the notebook; empty without one
    """

    student: str
    notebook: NotebookNode
    verdicts: tuple[Verdict, ...]
    seed: int
    runner: str
    repairs: tuple[str, ...] = ()
    problem: str = ""
    failed: str = ""
    seconds: float = 0.0
    displayed: Outputs = ()

    @property
    def points(self) -> int:
        """The sum over exercises, bonus included."""
        return sum(verdict.points for verdict in self.verdicts)


def new_seed() -> int:
    """A seed that nobody can guess."""
    return secrets.randbits(SEED_BITS)


def grade(
    submission: Submission, release: Release, runner: Runner, *, seed: int | None = None, display: bool = True
) -> Graded:
    """Grade one submission. Raises RunnerError where nothing can be run; a broken submission is no error."""
    sanitized = sanitize(submission, release)
    shown = display_run(sanitized, runner) if display else ()
    return verdicts(sanitized, release, runner, seed=seed, displayed=shown)


@undisturbed()
def sanitize(submission: Submission, release: Release) -> Sanitized:
    """The submission's answers in a copy of the release. Never raises for what is in the file."""
    try:
        rebuilt = rebuild(release.notebook, _cells(submission))
    except Unreadable as unreadable:
        untouched_copy = rebuild(release.notebook, []).notebook
        return Sanitized(student=submission.student, notebook=untouched_copy, problem=str(unreadable))
    return Sanitized(student=submission.student, notebook=rebuilt.notebook, repairs=rebuilt.repairs)


def display_run(sanitized: Sanitized, runner: Runner) -> Outputs:
    """The display run: what each code cell shows; nothing for check cells, whose output is the verdict."""
    if sanitized.problem:
        return ()
    cells = [cell for cell in sanitized.notebook.cells if cell.cell_type == "code"]
    sources = ["" if role_of(cell)[1] == "check" else str(cell.source) for cell in cells]
    return safe(runner.display(sources), len(cells))


@undisturbed()
def verdicts(
    sanitized: Sanitized, release: Release, runner: Runner, *, seed: int | None = None, displayed: Outputs = ()
) -> Graded:
    """The graded calls, judged. Raises RunnerError where nothing can be run."""
    started = time.monotonic()
    drawn = new_seed() if seed is None else seed
    if sanitized.problem:
        return untouched(sanitized.student, release, runner, problem=sanitized.problem, seed=drawn)
    judged = _verdicts(sanitized.notebook, release, runner, drawn)
    return Graded(
        student=sanitized.student,
        notebook=sanitized.notebook,
        verdicts=judged,
        seed=drawn,
        runner=runner.describe(),
        repairs=sanitized.repairs,
        seconds=time.monotonic() - started,
        displayed=displayed,
    )


def untouched(
    student: str, release: Release, runner: Runner, *, problem: str = "", failed: str = "", seed: int = 0
) -> Graded:
    """The release notebook as if nobody had written in it, and why."""
    return Graded(
        student=student,
        notebook=rebuild(release.notebook, []).notebook,
        verdicts=tuple(_not_attempted(exercise) for exercise in release.exercises),
        seed=seed,
        runner=runner.describe(),
        problem=problem,
        failed=failed,
    )


def _cells(submission: Submission) -> list[Cell]:
    if submission.path is None:
        raise Unreadable(submission.problem or "there is no file")
    return read_file(submission.path)


def _verdicts(notebook: NotebookNode, release: Release, runner: Runner, seed: int) -> tuple[Verdict, ...]:
    """One verdict per exercise of the release; what nobody has written is not run."""
    written = [each for each in release.exercises if _source(release.notebook, each) != _source(notebook, each)]
    found: dict[str, Verdict] = {}
    if written:
        with runner.session(code_cells(notebook), [exercise.name for exercise in written]) as session:
            found = {exercise.id: _verdict(exercise, session, seed) for exercise in written}
    return tuple(found.get(exercise.id) or _not_attempted(exercise) for exercise in release.exercises)


def _verdict(exercise: Exercise, session: Session, seed: int) -> Verdict:
    """One exercise: cases here, observations there, verdict here. Misconceptions are computed only if it failed."""
    bank = banks.load(exercise.id)
    cases = exercise.draw(seed)
    seen = session.perform(exercise, cases)
    references = recording.references(bank, cases)
    suspects = () if _nothing_ran(seen) else lambda: suspected(bank, cases, seen, references)
    return judge(exercise, cases, seen, references, suspects, sources=COUNTED_OUTSIDE)


def _nothing_ran(seen: Sequence[Observation]) -> bool:
    """Whether the same failure stands for all cases, before a line of the answer: it tells of no misconception."""
    return all(each == seen[0] and each.error and not each.error.where and not each.values for each in seen)


def _source(notebook: NotebookNode, exercise: Exercise) -> str:
    """The source of the answer cell; "" where the notebook has none."""
    found: list[str] = [cell.source for cell in notebook.cells if role_of(cell) == (exercise.id, "answer")]
    return found[0].strip() if found else ""


def _not_attempted(exercise: Exercise) -> Verdict:
    """What the judge says of the stub."""
    stub = Observation(error=Failure(type="NotImplementedError", message=exercise.id))
    return judge(exercise, [Case(name="", inputs={})], [stub], [Observation()])


def code_cells(notebook: NotebookNode) -> Sequence[CodeCell]:
    """The code cells that students' definitions may stand in: all but the check cells."""
    roles = [(cell, *role_of(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    return [
        CodeCell(source=cell.source, answers=exercise.partition(".")[2] if role == "answer" else "")
        for cell, exercise, role in roles
        if role != "check"
    ]
