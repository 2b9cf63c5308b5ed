"""What students handed in: submitted/<student>/<assignment>/<notebook>.ipynb, and timestamp.txt beside it.

Nobody trusts what lies there. Links are not followed, pipes not opened, large files not read to the end.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

from autograder.engine.cells import Release
from autograder.engine.grade import Submission
from autograder.engine.journal import digest
from autograder.engine.read import MAX_BYTES, Unreadable, bytes_of
from autograder.nbgrader_bridge.folders import STAMP, is_link, time_in
from course.errors import CourseError

SHOWN = 80  # characters of a file's name


class NoTime(CourseError):
    """A time stamp that cannot be read as one."""


def students(directory: CourseDirectory, assignment: str, wanted: Iterable[str] | None) -> list[str]:
    """Ids of those who have handed in. Raises CourseError where there is nobody, or not everyone who is wanted."""
    looked_at = _looked_at(directory, assignment)
    excluded = {name for name in directory.student_id_exclude.split(",") if name}
    found = [student for student, why in looked_at.items() if not why and student not in excluded]
    chosen = found if wanted is None else sorted(set(wanted))
    if told := [why for student, why in looked_at.items() if why and (student in chosen or not found)]:
        raise CourseError("; ".join(told[:3]))
    if not found:
        place = Path(directory.root) / directory.submitted_directory
        raise CourseError(f"submissions must lie in {place}/<student>/{assignment}, but there are none")
    missing = [student for student in chosen if student not in found]
    if missing:
        names = ", ".join(student or "a student without a name" for student in missing)
        raise CourseError(f"{names} must have handed in {assignment}; known are {', '.join(found[:10])}")
    return chosen


def left_out(directory: CourseDirectory, assignment: str) -> Iterator[str]:
    """What is no submission where one should lie, a sentence each."""
    yield from filter(None, _looked_at(directory, assignment).values())


def _looked_at(directory: CourseDirectory, assignment: str) -> dict[str, str]:
    """By name, in order, what lies where a submission should: "" for one, or why it is none, in one sentence."""
    top = Path(directory.root) / directory.submitted_directory
    names = sorted(os.listdir(top)) if top.exists() else []
    found = {name: _why_none(top / name / assignment) for name in names}
    return {name: why for name, why in found.items() if why is not None}


def _why_none(folder: Path) -> str | None:
    """Why this is no submission; "" where it is one, None where there is nothing."""
    name = folder.parent.name
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        where = f"{_shown(name)}/{folder.name}"
        return f"{where} must be a folder that can be entered, but: {error.strerror}; {_shown(name)} was left out"
    if not name.isprintable():  # nbgrader finds no name with a control character
        return f"a student's folder must have a printable name, got {name!r}: rename it, it was left out"
    return (
        ""
        if is_folder
        else f"{name}/{folder.name} must be a folder with the notebook in it, but is a file: {name} was left out"
    )


def submission(directory: CourseDirectory, assignment: str, student: str, release: Release) -> Submission:
    """The student's file, or why there is none."""
    folder = folder_of(directory, assignment, student)
    path = folder / f"{release.name}.ipynb"
    try:
        if is_link(folder):
            return Submission(student=student, path=None, problem="the folder must not be a link")
        if os.path.lexists(path):
            return Submission(student=student, path=path)
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
