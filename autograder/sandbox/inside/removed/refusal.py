"""The one exception of this package."""

from __future__ import annotations

import sys

from course.errors import CourseError
from course.failing import written


class RemovedError(CourseError):
    """An answer used what its exercise asks to do without."""


def refusal(name: str) -> RemovedError:
    """The error to raise for what `name` covers: it says what the student wrote, where that can be read."""
    return RemovedError(f"{told(written(sys._getframe()), name)}; write it from simpler operations")


def told(wrote: str, name: str) -> str:
    """That what a student wrote may not be used because `name` covers it; "" where that could not be read."""
    besides = f", which is to be done without `{name}`" if wrote not in ("", name) else ""
    return f"`{wrote or name}` may not be used in this exercise{besides}"
