"""From a submission to verdicts.

    Submission --sanitize--> Sanitized --display_run--> outputs for people
                                       --verdicts--> Graded: observations from the runner, judged here

The inputs are drawn here from a secret seed; the student's process gets the cases, after the student's cells were
loaded, and nothing else. Every verdict is made in this process, and no cost counts that was claimed there. What a seed
draws, and what references and misconceptions show on it, is computed once for all students who have it. Exercises that
can share a process do (shared.py). The engine knows nothing of nbgrader and of where scores are kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from autograder import bank as banks
from autograder import recording
from autograder.engine.cells import Cell, Release, code_cells
from autograder.engine.outputs import Outputs, safe
from autograder.engine.read import Unreadable, read_file
from autograder.engine.rebuild import rebuild
from autograder.engine.shared import shares
from autograder.engine.suspects import Known, suspected
from autograder.sandbox import Limits, Runner, Session, WarmProcessEnded, open_runner
from autograder.undisturbed import undisturbed
from course.judging.diagnosis import Suspects
from course.judging.judge import judge
from course.judging.verdict import Verdict
from course.performing.exercise import Case, Exercise, Failure, Observation, Source

SEED_BITS = 128
DRAWN = 64  # exercises whose cases are kept: three times as many as a lesson has
# Added to a seed: whatever is performed twice has other cases, so that no run can tell the next one what is hidden.
SHARED, WITH_LIBRARIES, WHEN_BUSY, ANEW = 1, 2, 3, 4
COUNTED_OUTSIDE: frozenset[Source] = frozenset({"tick", "broker", "kernel"})  # ledger sources that may earn points


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One student's file; `problem` says why there is no file at all."""

    student: str
    path: Path | None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """A submission after reading and rebuilding; nothing was run yet.

    cells  rebuilt from the release; the release's own where `problem` says why the file could not be read
    """

    student: str
    cells: tuple[Cell, ...]
    repairs: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Graded:
    """What came out of one submission.

    problem  why the file could not be read; it was then graded as untouched
    failed   why grading itself broke: the verdicts are those of an untouched notebook, and nobody should trust them
    seed     draws the same cases again; those of what was performed once before, or in a shared process, by a sum
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
    """Grade one submission. Raises RunnerError where nothing can be run; a broken submission is no error.

    Where the process that runs answers ends in the middle, another one is started and everything is done anew, once and
    on other cases. Raises WarmProcessEnded where that one ends too.
    """
    sanitized = sanitize(submission, release)
    with contextlib.suppress(WarmProcessEnded):
        return _graded(sanitized, release, runner, seed, display)
    return _graded(sanitized, release, runner, seed, display, later=ANEW)


def _graded(
    sanitized: Sanitized, release: Release, runner: Runner, seed: int | None, display: bool, *, later: int = 0
) -> Graded:
    shown = display_run(sanitized, release, runner) if display else ()
    return verdicts(sanitized, release, runner, seed=seed, later=later, displayed=shown)


@undisturbed()
def sanitize(submission: Submission, release: Release) -> Sanitized:
    """The submission's answers in a copy of the release. Never raises for what is in the file."""
    try:
        rebuilt = rebuild(release.cells, _cells(submission))
    except Unreadable as unreadable:
        return Sanitized(student=submission.student, cells=release.cells, problem=str(unreadable))
    return Sanitized(student=submission.student, cells=rebuilt.cells, repairs=tuple(_counted(rebuilt.repairs)))


def _counted(repairs: Sequence[str]) -> Iterator[str]:
    """Each sentence once, and how often it holds where that is more often: a copy of a cell brings its own."""
    for sentence, times in Counter(repairs).items():
        yield sentence if times == 1 else f"{sentence} ({times:,} times)"


def display_run(sanitized: Sanitized, release: Release, runner: Runner) -> Outputs:
    """The display run: what the student's code cells show, and what these need runs; no check cell does, which shows
    the verdict.
    """
    cells = [cell for cell in sanitized.cells if cell.kind == "code"]
    own = [release.written(cell) for cell in cells]
    if sanitized.problem or not any(own):
        return ()
    sources = ["" if cell.role == "check" else cell.source for cell in cells]
    shown: Outputs = runner.display(sources, own, lambda cells: safe(cells, len(sources)))
    return shown


@undisturbed()
def verdicts(
    sanitized: Sanitized,
    release: Release,
    runner: Runner,
    *,
    seed: int | None = None,
    later: int = 0,
    displayed: Outputs = (),
) -> Graded:
    """The graded calls, judged, on the cases of the seed or those of `later`. Raises RunnerError where nothing can be
    run.
    """
    started = time.monotonic()
    drawn = new_seed() if seed is None else seed
    if sanitized.problem:
        return untouched(sanitized.student, release, runner, problem=sanitized.problem, seed=drawn)
    judged = _verdicts(sanitized.cells, release, runner, drawn + later)
    return Graded(
        student=sanitized.student,
        notebook=release.notebook_of(sanitized.cells, marked=True),
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
        notebook=release.notebook_of(release.cells),
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


def _verdicts(cells: Sequence[Cell], release: Release, runner: Runner, seed: int) -> tuple[Verdict, ...]:
    """One verdict per exercise of the release; what nobody has written is not run."""
    before, after = _answers(release.cells), _answers(cells)
    written = [each for each in release.exercises if before.get(each.id) != after.get(each.id)]
    found: dict[str, Verdict] = {}
    if written:
        with runner.session(code_cells(cells)) as session:
            found = _found(written, session, seed)
    return tuple(found.get(exercise.id) or _not_attempted(exercise) for exercise in release.exercises)


def _found(written: Sequence[Exercise], session: Session, seed: int) -> dict[str, Verdict]:
    """By exercise. Those that share a process first: full marks count there, all else is performed alone."""
    found: dict[str, Verdict] = {}
    for exercises in shares(written):
        found |= _full_marks(exercises, session, seed + SHARED)
    left = [exercise for exercise in written if exercise.id not in found]
    return {**found, **{exercise.id: alone(exercise, session, seed) for exercise in left}}


def _full_marks(exercises: Sequence[Exercise], session: Session, seed: int) -> dict[str, Verdict]:
    """Of those that get them in one process, which has ended, with all that it has begun, when they are judged."""
    drawn = [_known(exercise.id, seed) for exercise in exercises]
    with session.together(exercises) as together:
        performed = [together.perform(known.bank.exercise, known.cases) for known in drawn]
    judged = [_judged(known, seen) for known, seen in zip(drawn, performed, strict=True) if seen]
    return {each.exercise: each for each in judged if each.points == each.possible}


def alone(exercise: Exercise, session: Session, seed: int) -> Verdict:
    """One exercise, in a process of its own. Misconceptions are computed only if it failed."""
    known = _known(exercise.id, seed)
    seen = session.perform(exercise, known.cases)
    if libraries := session.libraries:  # was it they that took so much?
        known, seen = _known(exercise.id, seed + WITH_LIBRARIES), ()  # what was seen takes memory
        seen = session.perform(exercise, known.cases, libraries)
    too_long = any(each.error and each.error.type == "TimeLimit" for each in seen)
    if too_long and _busy():  # nobody loses a point to others
        known, seen = _known(exercise.id, seed + WHEN_BUSY), ()
        seen = session.perform(exercise, known.cases, libraries)
    return _judged(known, seen, () if nothing_ran(seen) else lambda: suspected(known, seen))


def _judged(known: Known, seen: Sequence[Observation], suspects: Suspects = ()) -> Verdict:
    """Cases here, observations there, verdict here."""
    return judge(known.bank.exercise, known.cases, seen, known.references, suspects, sources=COUNTED_OUTSIDE)


@functools.lru_cache(maxsize=DRAWN)
def _known(name: str, seed: int) -> Known:
    bank = banks.load(name)
    cases = tuple(bank.exercise.draw(seed))
    return Known(bank=bank, cases=cases, references=recording.references(bank, cases))


def _busy() -> bool:
    """Whether more processes were ready to run in the last minute than there are processors."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1)


def nothing_ran(seen: Sequence[Observation]) -> bool:
    """Whether the same failure stands for all cases, before a line of the answer: it tells of no misconception."""
    first = seen[0].error
    return first is not None and not first.where and all(each.error == first and not each.values for each in seen)


def _answers(cells: Sequence[Cell]) -> dict[str, str]:
    """The sources of the cells that answers stand in, by exercise."""
    own = {cell.exercise: cell.source.strip() for cell in cells if cell.role == "answer"}
    return own | {exercise: cell.source.strip() for cell in cells for exercise in cell.holds}


def _not_attempted(exercise: Exercise) -> Verdict:
    """What the judge says of the stub."""
    stub = Observation(error=Failure(type="NotImplementedError", message=exercise.id))
    return judge(exercise, [Case(name="", inputs={})], [stub], [Observation()])


# --- in a judge process -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GradingTask:
    """One submission, and the seed that draws its cases."""

    submission: Submission
    seed: int


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Grades one submission after the other with a runner of its own, which starts when it is entered. Picklable."""

    release: Release
    limits: Limits | None = None
    trusted: bool = False
    display: bool = True

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Callable[[GradingTask], Graded]]:
        """Raises RunnerError where students' code cannot be run here."""
        units = self.release.units
        with open_runner(self.limits, trusted=self.trusted, display=self.display, units=units) as runner:
            yield lambda task: grade(task.submission, self.release, runner, seed=task.seed, display=self.display)
