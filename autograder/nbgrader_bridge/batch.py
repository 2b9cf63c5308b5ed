"""Grading a class: one student after the other, and none of them stops the others.

    submitted/*/<assignment> --engine, one student at a time--> nbgrader's Autograde --> gradebook, autograded/
    gradebook, autograded/ --nbgrader's own converter and exporter--> feedback/, grades.csv

Everything that nbgrader and the engine have to say goes to `grading.log` below the root.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import nbformat
import sqlalchemy.exc
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import CsvExportPlugin
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config

from autograder.engine.grade import Graded, Release, Submission, untouched
from autograder.engine.grade import grade as grade_submission
from autograder.engine.record import show
from autograder.engine.results import ClassResult
from autograder.engine.runner import PlainRunner, Runner, RunnerError
from autograder.nbgrader_bridge import gradebook as books
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.preprocessors import GradeSubmission
from course.errors import CourseError

LOG = "grading.log"
NOT_TAKEN = "nbgrader could not take the submission over, so it was recorded without a late penalty: see grading.log."


def grade(
    root: Path,
    assignment: str,
    students: Iterable[str] | None = None,
    seed: int | None = None,
    runner: Runner | None = None,
    told: Callable[[Graded], None] = lambda graded: None,
) -> ClassResult:
    """Grade the submissions below `root` anew, and return what the gradebook then holds of the whole class.

    students  ids; all that have handed in if left out
    seed      draws the same cases for everyone; if left out each student gets a secret one, recorded in the result
    runner    where students' code runs; a PlainRunner if left out
    told      called with each submission as soon as it is graded

    Raises CourseError where there is nothing to grade, RunnerError where nothing can be run.
    """
    with _logged(root) as log, contextlib.ExitStack() as stack:
        chosen = runner or stack.enter_context(PlainRunner())
        log.warning("%s", chosen.describe())
        directory, config = course_directory(root)
        directory.log = log
        release = _release(directory, config, assignment)
        books.register(directory, assignment, release)
        for student in _students(directory, assignment, students):
            graded = _grade_one(directory, config, student, (assignment, release, chosen, seed))
            _report_one(log, graded)
            told(graded)
        return _results(directory, assignment, release)


def results(root: Path, assignment: str) -> ClassResult:
    """What the gradebook and the graded notebooks hold now, whoever graded them."""
    with _logged(root):
        directory, config = course_directory(root)
        return _results(directory, assignment, _release(directory, config, assignment))


def feedback(root: Path, assignment: str) -> Path:
    """Write the feedback pages with nbgrader's generate_feedback, and return their folder."""
    with _logged(root) as log:
        directory, config = course_directory(root)
        directory.assignment_id = assignment
        converter = GenerateFeedback(coursedir=directory, config=config, log=log)
        converter.force = True
        _run(converter, "the feedback was not written")
        return root / str(directory.feedback_directory)


def export(root: Path, assignment: str, to: Path) -> Path:
    """Write the scores as CSV with nbgrader's own exporter, and return the file's path."""
    with _logged(root) as log:
        directory, config = course_directory(root)
        plugin = CsvExportPlugin(config=config, log=log, to=str(to), assignment=[assignment])
        with books.open_gradebook(directory) as gradebook:
            plugin.export(gradebook)
    return to


# --- one student ------------------------------------------------------------------------------------

_Batch = tuple[str, Release, Runner, int | None]  # assignment, release, runner, seed


def _grade_one(directory: CourseDirectory, config: Config, student: str, batch: _Batch) -> Graded:
    """Grade and record one submission. Only RunnerError leaves it, and what would hold for every student."""
    assignment, release, runner, seed = batch
    submission = _submission(directory, assignment, student, release)
    try:
        graded = grade_submission(submission, release, runner, seed=seed)
    except RunnerError:
        raise
    except Exception as error:  # a slip of ours, which must not cost the others their grades
        directory.log.exception("%s: grading broke", student)
        graded = untouched(student, release, runner, failed=f"{type(error).__name__}: {error}")
    if submission.path is not None:
        try:
            _record(directory, config, (assignment, release), graded)
            return graded
        except CourseError as error:
            directory.log.error("%s: %s", student, error)
            graded = dataclasses.replace(graded, repairs=(*graded.repairs, NOT_TAKEN))
    _record_by_hand(directory, (assignment, release), graded)
    return graded


def _submission(directory: CourseDirectory, assignment: str, student: str, release: Release) -> Submission:
    folder = Path(directory.format_path(directory.submitted_directory, student, assignment))
    path = folder / f"{release.name}.ipynb"
    if os.path.lexists(path):
        return Submission(student=student, path=path)
    others = ", ".join(sorted(each.name for each in folder.glob("*.ipynb"))[:3])
    found = f"found {others}" if others else "found no notebook"
    return Submission(student=student, path=None, problem=f"the file must be called {path.name}, {found}")


def _record(directory: CourseDirectory, config: Config, place: tuple[str, Release], graded: Graded) -> None:
    """Let nbgrader's Autograde record what is graded already. Raises CourseError where it cannot.

    Of the files that lie beside the notebook only the time stamp is kept: the others may be links to what no student
    may read, and would come back to them with the feedback.
    """
    assignment, release = place
    directory.assignment_id, directory.student_id = assignment, graded.student
    directory.notebook_id = release.name
    directory.ignore = ["*"]
    step = GradeSubmission()
    step.graded = graded
    converter = Autograde(coursedir=directory, config=config, log=directory.log)
    converter.force = True
    converter.sanitize_preprocessors = [step, AssignLatePenalties]
    _run(converter, "nbgrader could not record the submission")
    stamp = _folder(directory, directory.submitted_directory, place, graded) / "timestamp.txt"
    if stamp.is_file() and not stamp.is_symlink():
        shutil.copy(stamp, _folder(directory, directory.autograded_directory, place, graded))


def _record_by_hand(directory: CourseDirectory, place: tuple[str, Release], graded: Graded) -> None:
    """Write scores and graded notebook of a submission that nbgrader would skip or stumbles over."""
    assignment, release = place
    books.save_submission(directory, assignment, release.name, graded)
    folder = _folder(directory, directory.autograded_directory, place, graded)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    nbformat.write(show(graded), folder / f"{release.name}.ipynb")  # type: ignore[no-untyped-call]


def _folder(directory: CourseDirectory, step: str, place: tuple[str, Release], graded: Graded) -> Path:
    return Path(directory.format_path(step, graded.student, place[0]))


# --- the class ----------------------------------------------------------------------------------------


def _release(directory: CourseDirectory, config: Config, assignment: str) -> Release:
    """The release copy; where there is a source and no release, nbgrader's generate_assignment makes it."""
    path = books.release_path(directory, assignment, assignment)
    source = directory.format_path(directory.source_directory, ".", assignment)
    if not path.exists() and os.path.isdir(source):
        directory.assignment_id = assignment
        converter = GenerateAssignment(coursedir=directory, config=config, log=directory.log)
        _run(converter, f"the release of {assignment} could not be made")
    return Release.load(path)


def _students(directory: CourseDirectory, assignment: str, wanted: Iterable[str] | None) -> list[str]:
    """Ids of those who have handed in. Raises CourseError where there is nobody, or not everyone who is wanted."""
    top = Path(directory.root) / directory.submitted_directory
    found = sorted(each.parent.name for each in top.glob(f"*/{assignment}") if each.is_dir())
    if not found:
        raise CourseError(f"submissions must lie in {top}/<student>/{assignment}, but there are none")
    if wanted is None:
        return found
    chosen = list(wanted)
    missing = [student for student in chosen if student not in found]
    if missing:
        raise CourseError(f"{', '.join(missing)} must have handed in {assignment}; known are {', '.join(found[:10])}")
    return chosen


def _results(directory: CourseDirectory, assignment: str, release: Release) -> ClassResult:
    pairs = books.student_results(directory, assignment, release)
    runners = sorted({runner for _, runner in pairs if runner})
    return ClassResult(
        assignment=assignment, runner="; ".join(runners), students=tuple(student for student, _ in pairs)
    )


def _run(converter: Autograde | GenerateAssignment | GenerateFeedback, sentence: str) -> None:
    try:
        converter.start()
    except (NbGraderException, SystemExit) as error:
        root = converter.coursedir.root
        raise CourseError(f"{sentence} ({error}); {Path(root) / LOG} says more") from None


@contextlib.contextmanager
def _logged(root: Path) -> Iterator[logging.Logger]:
    """A logger that writes to `grading.log`; SQLAlchemy's warning about nbgrader's own habits is left out."""
    root.mkdir(parents=True, exist_ok=True)
    log = logging.getLogger("autograder.nbgrader")
    log.propagate = False
    handler = logging.FileHandler(root / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=sqlalchemy.exc.SAWarning)
            yield log
    finally:
        log.removeHandler(handler)
        handler.close()


def _report_one(log: logging.Logger, graded: Graded) -> None:
    what = graded.failed or graded.problem or f"{graded.points} points"
    log.warning("%s: %s (seed %d, %.2f s)", graded.student, what, graded.seed, graded.seconds)
    for repair in graded.repairs:
        log.warning("%s: %s", graded.student, repair)
