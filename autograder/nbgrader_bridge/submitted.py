"""What students handed in: submitted/<student>/<assignment>/<notebook>.ipynb, and timestamp.txt beside it.

Nobody trusts what lies there. Links are not followed, pipes not opened, large files not read to the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

from autograder.engine.cells import Release
from autograder.engine.grade import Submission
from autograder.engine.journal import digest
from autograder.engine.read import MAX_BYTES, Unreadable, bytes_of
from autograder.nbgrader_bridge.folders import STAMP, time_in
from course.errors import CourseError

SHOWN = 80  # characters of a file's name


class NoTime(CourseError):
    """A time stamp that cannot be read as one."""


def students(directory: CourseDirectory, assignment: str, wanted: Iterable[str] | None) -> list[str]:
    """Ids of those who have handed in. Raises CourseError where there is nobody, or not everyone who is wanted."""
    top = Path(directory.root) / directory.submitted_directory
    left_out = {name for name in directory.student_id_exclude.split(",") if name}
    found = sorted(each.parent.name for each in top.glob(f"*/{assignment}") if each.is_dir())
    found = [student for student in found if student not in left_out and student.isprintable()]
    if not found:
        raise CourseError(f"submissions must lie in {top}/<student>/{assignment}, but there are none")
    if wanted is None:
        return found
    chosen = sorted(set(wanted))
    missing = [student for student in chosen if student not in found]
    if missing:
        names = ", ".join(student or "a student without a name" for student in missing)
        raise CourseError(f"{names} must have handed in {assignment}; known are {', '.join(found[:10])}")
    return chosen


def left_out(directory: CourseDirectory, assignment: str) -> Iterator[str]:
    """What is no submission where one should lie, a sentence each: nbgrader finds no name with a control character."""
    top = Path(directory.root) / directory.submitted_directory
    for each in sorted(top.glob(f"*/{assignment}")):
        name = each.parent.name
        if not name.isprintable():
            yield f"a student's folder must have a printable name, got {name!r}: rename it, it was left out"
        elif not each.is_dir():
            yield f"{name}/{assignment} must be a folder with the notebook in it, but is a file: {name} was left out"


def submission(directory: CourseDirectory, assignment: str, student: str, release: Release) -> Submission:
    """The student's file, or why there is none."""
    folder = folder_of(directory, assignment, student)
    if folder.is_symlink() or folder.parent.is_symlink():
        return Submission(student=student, path=None, problem="the folder must not be a link")
    path = folder / f"{release.name}.ipynb"
    if os.path.lexists(path):
        return Submission(student=student, path=path)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".ipynb"))
    except OSError as error:
        return Submission(student=student, path=None, problem=f"the folder cannot be read: {error.strerror}")
    found = f"found {', '.join(map(_shown, names[:3]))}" if names else "found no notebook"
    return Submission(student=student, path=None, problem=f"the file must be called {path.name}, {found}")


def _shown(name: str) -> str:
    """A file's name as no database or terminal stumbles over it: short, and without bytes that are no UTF-8."""
    shown = "".join(each if each.isprintable() else "?" for each in name[:SHOWN])
    return f"{shown}..." if len(name) > SHOWN else shown


def digest_of(path: Path | None) -> str:
    """Names the content of a file; what can never be graded is named by its kind, size and time of change."""
    if path is None:
        return "nothing"
    with contextlib.suppress(Unreadable):
        if len(data := bytes_of(path, MAX_BYTES + 1)) <= MAX_BYTES:
            return digest(data)
    try:
        about = path.lstat()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return f"mode {about.st_mode:o}, {about.st_size} bytes, changed at {about.st_mtime_ns}"


def handed_in_at(directory: CourseDirectory, assignment: str, student: str) -> datetime | None:
    """The time in timestamp.txt, UTC; None where there is no such file. Raises NoTime where it holds none."""
    try:
        return time_in(folder_of(directory, assignment, student))
    except ValueError:
        raise NoTime(f"{STAMP} must hold a time such as 2026-01-31 23:59:00 UTC, but does not") from None


def folder_of(directory: CourseDirectory, assignment: str, student: str) -> Path:
    """Where this student's submission lies."""
    return Path(directory.format_path(directory.submitted_directory, student, assignment))
