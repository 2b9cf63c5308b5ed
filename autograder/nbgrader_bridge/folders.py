"""nbgrader's view of the course's folders, with submitted folders read as a stranger's.

nbgrader itself copies every file that lies beside a submitted notebook into autograded/ and from there into
feedback/: of a symbolic link it copies what the link leads to, at a pipe or a link without a target it gives the
submission up and leaves its old score, and a pipe called timestamp.txt stops it for good. Here only the time stamp
is taken, and only from a small regular file.
"""

from __future__ import annotations

import glob
import json
import stat
from datetime import datetime
from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import rmtree

STAMP = "timestamp.txt"
STAMP_BYTES = 200
EVERYTHING = ["*", ".*"]  # a glob's star leaves out names that begin with a dot


class CarefulDirectory(CourseDirectory):
    """A CourseDirectory that copies no file of a student's and takes a time stamp that is none for a missing one."""

    @classmethod
    def of(cls, directory: CourseDirectory) -> CarefulDirectory:
        """The same folders, database and selection of students."""
        settings = {name: getattr(directory, name) for name in CourseDirectory.class_trait_names(config=True)}
        return cls(**{**settings, "ignore": EVERYTHING, "log": directory.log})

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        """When the submission in this folder was handed in; None where that is not known."""
        if read_stamp(Path(dest_path)) is None:
            return None
        try:
            found: datetime | None = super().get_existing_timestamp(dest_path)
        except (AttributeError, OSError, OverflowError, ValueError):  # AttributeError: nbgrader's way to refuse a stamp
            self.log.warning("%s must hold a time, but does not; the submission counts as handed in in time", dest_path)
            return None
        return found


def read_stamp(folder: Path) -> bytes | None:
    """The time stamp of a submission as it was written; None where there is none that should be opened."""
    path = folder / STAMP
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > STAMP_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None


def remove_unfinished(directory: CourseDirectory) -> list[Path]:
    """Removes what killed runs left in autograded/, and returns it.

    nbgrader skips a folder that exists, so that a submission whose run was killed would never be graded.
    """
    pattern = directory.format_path(directory.autograded_directory, directory.student_id, directory.assignment_id)
    left = [folder for folder in map(Path, sorted(glob.glob(pattern))) if not _is_finished(folder)]
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
    except (OSError, ValueError, KeyError, TypeError):
        return False
