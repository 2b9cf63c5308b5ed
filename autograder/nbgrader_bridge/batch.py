"""Grading a class: none stops the others, and a run that was killed is taken up where it stood.

    submitted/*/<assignment> --judges, a few at a time--> one writer --> gradebook, autograded/
                             <--- .grading/<assignment>.jsonl: seeds, and what is done --->

Everything that nbgrader and the engine have to say goes to `grading.log` below the root.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

from autograder.engine.cells import Release
from autograder.engine.grade import Graded, GradingTask, Judging, new_seed
from autograder.engine.grade import grade as grade_one
from autograder.engine.journal import BatchRun, Journal, digest, now
from autograder.engine.pool import spread
from autograder.engine.results import ClassResult, StudentResult
from autograder.engine.stopping import Stop
from autograder.engine.worker import Outcome, Work, in_turn
from autograder.nbgrader_bridge import gradebook as books
from autograder.nbgrader_bridge import submitted
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.converters import release_of
from autograder.nbgrader_bridge.folders import JOURNALS
from autograder.nbgrader_bridge.locks import PATIENCE, patiently
from autograder.nbgrader_bridge.log import logged
from autograder.nbgrader_bridge.recorder import Recorder
from autograder.nbgrader_bridge.running import Batch, Watcher
from autograder.sandbox import Limits, Runner, exposed, open_runner
from course.errors import CourseError


@dataclass(frozen=True, kw_only=True)
class How:
    """How a class is graded.

    jobs      judge processes at most, each with a sandbox of its own; where one is enough the calling process judges
    trusted   run students' code without a sandbox
    display   show in the graded notebooks what the cells show when they are run
    resume    True: go on with the last run, even if it ended; False: begin a new one; None: go on if it did not end
    repeat    draw each student's cases with the seed of the journal, where the file is the same
    patience  seconds to wait for a gradebook that is locked
    work      grades in the engine's place
    """

    jobs: int = 1
    trusted: bool = False
    display: bool = True
    limits: Limits | None = None
    resume: bool | None = None
    repeat: bool = False
    patience: float = PATIENCE
    work: Work[GradingTask, Graded] | None = None


def grade(
    root: Path,
    assignment: str,
    students: Iterable[str] | None = None,
    seed: int | None = None,
    runner: Runner | None = None,
    *,
    how: How | None = None,
    watcher: Watcher | None = None,
) -> ClassResult:
    """Grade the submissions below `root`, and return what the gradebook then holds of the whole class.

    students  ids; all that have handed in if left out
    seed      draws everyone's cases; if left out a secret one does, which is drawn for this run and kept in the journal
    runner    where students' code runs; this machine's sandbox if left out

    Raises CourseError where there is nothing to grade or nothing to take up, RunnerError where nothing can be run,
    Stopped on Ctrl-C and SIGTERM: what was told is then recorded, and the next call takes up the rest.
    """
    way, watching = how or How(), watcher or Watcher()
    wanted = None if students is None else tuple(sorted(set(students)))
    waited = functools.partial(patiently, said=watching.said, seconds=way.patience)
    with logged(root) as log, Stop() as stop:
        directory, config = course_directory(root)
        directory.log = log
        release = release_of(directory, config, assignment)
        handed_in = submitted.students(directory, assignment, wanted)
        for told in submitted.left_out(directory, assignment):
            watching.said(told)
            log.warning("%s", told)
        with (
            _open(root.resolve(), runner, way, release.units) as chosen,
            Journal(root / JOURNALS / f"{assignment}.jsonl") as journal,
        ):
            log.warning("%s", chosen.describe())
            asked = BatchRun(
                began=now(),
                release=_digest(release),
                drawn=new_seed(),
                seed=seed,
                repeat=way.repeat,
                students=wanted,
            )
            run, taken_up = _run(journal, asked, way, watching)
            waited(lambda: books.register(directory, assignment, release))
            with waited(lambda: Recorder(directory, config, assignment, release)) as recorder:
                batch = Batch(
                    directory=directory,
                    assignment=assignment,
                    release=release,
                    runner=chosen,
                    journal=journal,
                    run=run,
                    taken_up=taken_up,
                    recorder=recorder,
                    stop=stop,
                    watcher=watching,
                    patience=way.patience,
                )
                _go_through(batch, batch.plan(handed_in), way)
            journal.end()
        found = waited(lambda: _results(directory, assignment, release))
        return _with_failures(found, batch.failures)


def results(root: Path, assignment: str) -> ClassResult:
    """What the gradebook and the graded notebooks hold now, whoever graded them."""
    with logged(root):
        directory, config = course_directory(root)
        return _results(directory, assignment, release_of(directory, config, assignment))


# --- the run ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open(root: Path, runner: Runner | None, way: How, units: Collection[str]) -> Iterator[Runner]:
    """The caller's runner, which stays the caller's to close, or one of our own for exercises of these units."""
    if runner is not None:
        yield runner
        return
    if not way.trusted and exposed(root):
        raise CourseError(
            f"the course folder must lie where students' code cannot read it, got {root}: move it out of the folders "
            "of the system and of Python, or grade from within it"
        )
    with open_runner(way.limits, trusted=way.trusted, display=way.display, units=units) as ours:
        yield ours


def _run(journal: Journal, asked: BatchRun, way: How, watcher: Watcher) -> tuple[BatchRun, bool]:
    """The run to go on with, and whether it began earlier. Raises CourseError where it must and cannot be taken up."""
    last = journal.run
    if last is None and way.resume:
        raise CourseError("a run must have begun before it can be resumed, but none has; leave out --resume")
    if last is None or way.resume is False or (last.ended and not way.resume):
        return journal.begin(asked), False
    difference = _difference(last, asked)
    if not difference:
        return last, True
    if way.resume:
        raise CourseError(f"the run of {last.began} cannot be resumed: {difference}; leave out --resume to grade anew")
    watcher.said(f"the run of {last.began} was not finished and is not taken up: {difference}")
    return journal.begin(asked), False


def _difference(last: BatchRun, asked: BatchRun) -> str:
    """Why a new request cannot be served by going on with an earlier run; "" where it can."""
    if last.release != asked.release:
        return "the release was built anew since then"
    if last.students != asked.students:
        return "it was for other students"
    if asked.repeat > last.repeat or asked.seed not in (None, last.seed):
        return "it drew its cases with other seeds"
    return ""


def _digest(release: Release) -> str:
    return digest(json.dumps(release.notebook, sort_keys=True).encode())


def _go_through(batch: Batch, students: list[str], way: How) -> None:
    """Grade those who are left, here or in judge processes."""
    if not students:
        return
    tasks, jobs = batch.tasks(students), min(way.jobs, len(students))
    outcomes: Generator[Outcome[GradingTask, Graded], None, None]
    if jobs == 1:
        outcomes = in_turn(tasks, way.work or _here(batch, way))
    else:
        judging = Judging(
            release=dataclasses.replace(batch.release), limits=way.limits, trusted=way.trusted, display=way.display
        )
        outcomes = spread(tasks, way.work or judging, jobs)
    with contextlib.closing(outcomes):
        for outcome in outcomes:
            batch.settle(outcome)


def _here(batch: Batch, way: How) -> Work[GradingTask, Graded]:
    """Judge in this process, with the runner that is open."""
    return lambda: contextlib.nullcontext(
        lambda task: grade_one(task.submission, batch.release, batch.runner, seed=task.seed, display=way.display),
    )


# --- the class ----------------------------------------------------------------------------------------


def _results(directory: CourseDirectory, assignment: str, release: Release) -> ClassResult:
    pairs = books.student_results(directory, assignment, release)
    runners = sorted({runner for _, runner in pairs if runner})
    return ClassResult(
        assignment=assignment, runner="; ".join(runners), students=tuple(student for student, _ in pairs)
    )


def _with_failures(result: ClassResult, failures: dict[str, str]) -> ClassResult:
    """The class with those whose failure could not even be recorded."""
    known = {student.student: student for student in result.students}
    for name, why in failures.items():
        student = known.get(name, StudentResult(student=name, score=0.0, max_score=0.0))
        known[name] = dataclasses.replace(student, failed=why)
    return dataclasses.replace(result, students=tuple(known[name] for name in sorted(known)))
