"""grading.log: everything that nbgrader and the engine have to say, below the root."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy.exc
from traitlets import TraitError

from autograder.engine.grade import Graded
from autograder.nbgrader_bridge.locks import DATABASE_ERRORS, database_words
from course.errors import CourseError

FILE = "grading.log"


class _File(logging.FileHandler):
    """A full disk is told by the batch itself, in one line; the log's own failure to write adds nothing to it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing."""


class _OneEntry(logging.Formatter):
    """What follows the first line of an entry is indented: no name that holds a line break begins another entry."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry, whose lines end as a reader may see them end."""
        return "\n    ".join(super().format(record).encode("utf-8", "replace").decode().splitlines())


@contextlib.contextmanager
def logged(root: Path) -> Iterator[logging.Logger]:
    """A logger that writes to the log; SQLAlchemy's warning about nbgrader's own habits is left out.

    Raises CourseError where the root is no folder, as a slip of the pen shall not make one, and where the gradebook's
    database or a setting of nbgrader's refuses something.
    """
    if not root.is_dir():
        words = f"the folder of the course must be there, but {root} is not"
        raise CourseError(f"{words}: `autograder build` makes it, --root names another")
    log = logging.getLogger("autograder.nbgrader")
    log.propagate = False
    handler = _File(root / FILE, encoding="utf-8")
    handler.setFormatter(_OneEntry("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=sqlalchemy.exc.SAWarning)
            yield log
    except DATABASE_ERRORS as error:
        log.exception("the gradebook")
        raise CourseError(f"{database_words(error)}; when that is mended, the same command goes on") from None
    except TraitError as error:
        raise CourseError(f"nbgrader_config.py must set what nbgrader takes, but: {error}; mend it") from None
    finally:
        log.removeHandler(handler)
        handler.close()


def report_one(log: logging.Logger, graded: Graded) -> None:
    """What came out of one submission."""
    what = graded.failed or graded.problem or f"{graded.points} points"
    log.warning("%s: %s (seed %d, %.2f s)", graded.student, what, graded.seed, graded.seconds)
    for repair in graded.repairs:
        log.warning("%s: %s", graded.student, repair)
