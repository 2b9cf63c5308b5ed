"""What a gradebook's database refuses: where another program has locked it, wait, say so, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from nbgrader.api import InvalidEntry
from sqlalchemy.exc import DBAPIError, OperationalError

from course.errors import CourseError

PATIENCE = 60.0  # seconds
PAUSE = 0.2  # seconds between two tries; SQLite itself waits for some seconds in each
DATABASE_ERRORS = (DBAPIError, InvalidEntry)  # what SQLAlchemy and nbgrader raise
LOCKED = ("is locked", "lock timeout")  # what SQLite and PostgreSQL say

Result = TypeVar("Result")


class Locked(CourseError):
    """The gradebook stayed locked."""


def patiently(
    action: Callable[[], Result],
    said: Callable[[str], None],
    *,
    seconds: float = PATIENCE,
    check: Callable[[], None] = lambda: None,
) -> Result:
    """What `action` returns, tried again for as long as the gradebook is locked. Raises Locked after `seconds`.

    said   is told once that something waits
    check  is called between two tries, and may raise
    """
    deadline, told = time.monotonic() + seconds, False
    while True:
        try:
            return action()
        except (OperationalError, InvalidEntry) as error:
            if not is_locked(error):
                raise
            if time.monotonic() >= deadline:
                raise Locked(
                    f"the gradebook must not stay locked, but was for {seconds:g} s; close what has it open "
                    "(formgrader, a database browser, another nbgrader command)"
                ) from None
        if not told:
            said(f"the gradebook is locked by another program: waiting for it, {seconds:g} s at most")
            told = True
        check()
        time.sleep(PAUSE)


def is_locked(error: Exception) -> bool:
    """Whether a database says with this that another program has locked it; what it was given may say anything."""
    return any(words in _said(error) for words in LOCKED)


def database_words(error: BaseException) -> str:
    """What a database said, in one line, of one of DATABASE_ERRORS."""
    while isinstance(error.__context__, DBAPIError):  # what it met when it took back what had failed
        error = error.__context__
    return f"the gradebook: {_said(error)}"


def _said(error: BaseException) -> str:
    """The first line of what the database itself said, without the statement and its values."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    return said.strip().partition("\n")[0]
