"""The one exception of this package."""

from __future__ import annotations

import sys

from course.errors import CourseError
from course.failing import written


class RemovedError(CourseError):
    """An answer used what its exercise asks to do without."""


def refusal(name: str) -> RemovedError:
    """The error to raise for what `name` covers: it says what the student wrote, where that can be read."""
    wrote = written(sys._getframe())
    besides = f", which is to be done without `{name}`" if wrote not in ("", name) else ""
    return RemovedError(f"`{wrote or name}` may not be used in this exercise{besides}; write it from simpler operations")
