"""nbgrader's view of the course's folders, with submitted folders read as a stranger's.

nbgrader itself copies every file that lies beside a submitted notebook into autograded/ and from there into
feedback/: of a symbolic link it copies what the link leads to, at a pipe or a link without a target it gives the
submission up and leaves its old score, and a pipe called timestamp.txt stops it for good. Here only the two files of
nbgrader's exchange are taken, and only where they are small regular files.

nbgrader also reads the path of a student's folder as a glob pattern: of a student called `[x]` it finds no notebook,
and of the files it should leave out it copies every one.
"""

from __future__ import annotations

import glob
import json
import os
import re
from datetime import datetime
from pathlib import Path

from nbgrader.converters.base import BaseConverter
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc, rmtree

from autograder.engine.read import Unreadable, bytes_of

JOURNALS = ".grading"  # below the root: what batches have done
STAMP = "timestamp.txt"
SECRET = "submission_secret.txt"  # names a student's feedback in the exchange, so that nobody else finds it
EXCHANGED = (STAMP, SECRET)  # what the exchange writes beside a submission, and asks for beside the feedback
EXCHANGED_BYTES = 200  # at most; a secret has 128
# What the exchange writes. Nothing else is parsed: dateutil opens the file whose path stands in place of a time zone.
STAMPED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(\.\d+)?)?( [A-Za-z]+| [+-]\d+)?", re.ASCII)
EVERYTHING = ["*", ".*"]  # a glob's star leaves out names that begin with a dot


class CarefulDirectory(CourseDirectory):
    """A CourseDirectory that takes a time stamp that is none for a missing one."""

    @classmethod
    def of(cls, directory: CourseDirectory, ignore: list[str]) -> CarefulDirectory:
        """The same folders, database and selection of students; files that match `ignore` are not copied."""
        settings = {name: getattr(directory, name) for name in CourseDirectory.class_trait_names(config=True)}
        return cls(**{**settings, "ignore": ignore, "log": directory.log})

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        """When the submission in this folder was handed in; None where that is not known."""
        try:
            return time_in(Path(dest_path))
        except ValueError:
            self.log.warning("%s must hold a time, but does not; the submission counts as handed in in time", dest_path)
            return None


def is_link(folder: Path) -> bool:
    """Whether a submission's folder, or its student's, is a link, perhaps to another student's."""
    return os.path.islink(folder) or os.path.islink(folder.parent)  # False where nobody may look


def time_in(folder: Path) -> datetime | None:
    """The time in a submission's stamp, UTC; None where there is no stamp. Raises ValueError where it holds no time."""
    if is_link(folder) or not os.path.lexists(folder / STAMP):
        return None
    stamp = (_read_small(folder / STAMP) or b"").decode().strip()
    if not STAMPED.fullmatch(stamp):
        raise ValueError("no time")
    try:
        time: datetime = parse_utc(stamp)
    except Exception as error:  # dateutil has errors of its own, of Python's and of decimal's
        raise ValueError("no time") from error
    return time


def exchanged(folder: Path) -> dict[str, bytes]:
    """By name, what nbgrader's exchange wrote beside a submission, as far as it should be opened and read."""
    if is_link(folder):
        return {}
    try:
        time_in(folder)
        names = [*EXCHANGED]
    except ValueError:
        names = [SECRET]
    found = {name: _read_small(folder / name) for name in names}
    return {name: data for name, data in found.items() if data is not None}


def _read_small(path: Path) -> bytes | None:
    try:
        data = bytes_of(path, EXCHANGED_BYTES + 1)
    except Unreadable:
        return None
    return data if len(data) <= EXCHANGED_BYTES else None


def notebooks_of(converter: BaseConverter) -> dict[str, list[str]]:
    """What nbgrader's converter looks for: notebooks by folder, where no folder's own name is read as a pattern."""
    directory = converter.coursedir
    folders = glob.glob(converter._format_source(directory.assignment_id, directory.student_id), include_hidden=True)
    pattern = f"{directory.notebook_id}.ipynb"
    found = {folder: glob.glob(os.path.join(glob.escape(folder), pattern)) for folder in folders}
    return {folder: notebooks for folder, notebooks in found.items() if notebooks}


def take_names_literally(converter: BaseConverter, ignore: list[str]) -> CarefulDirectory:
    """Repairs what a converter has found, and gives it a view of the folders of its own, which is returned.

    ignore  patterns of files that are not copied, in whatever folder they lie
    """
    converter.assignments = notebooks_of(converter)
    magic = [folder for folder in converter.assignments if glob.has_magic(folder)]
    # nbgrader joins a pattern with the folder in which it looks; one that begins at the root stays as it is.
    named = [os.path.join(glob.escape(folder), each) for folder in magic for each in (*ignore, "*.ipynb")]
    converter.coursedir = directory = CarefulDirectory.of(converter.coursedir, [*ignore, *named])
    return directory


def remove_unfinished(directory: CourseDirectory) -> list[Path]:
    """Removes what killed runs left in autograded/, and returns it.

    nbgrader skips a folder that exists, so that a submission whose run was killed would never be graded.
    """
    pattern = directory.format_path(directory.autograded_directory, directory.student_id, directory.assignment_id)
    left = [folder for folder in map(Path, sorted(glob.glob(pattern, include_hidden=True))) if not _is_finished(folder)]
    for folder in left:
        rmtree(str(folder))
    return left


def _is_finished(folder: Path) -> bool:
    notebooks = list(folder.glob("*.ipynb"))
    return bool(notebooks) and all(map(_is_graded, notebooks))


def _is_graded(path: Path) -> bool:
    """Whether this is a notebook that was graded to its end."""
    try:
        return "grading" in json.loads(path.read_bytes())["metadata"]["hpml"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
