"""The one exception of this package."""

from __future__ import annotations

from course.errors import CourseError


class RemovedError(CourseError):
    """An answer used what its exercise asks to do without."""


def refusal(name: str) -> RemovedError:
    """The error to raise for what belongs to the family `name`."""
    return RemovedError(f"`{name}` may not be used in this exercise; write it from simpler operations")
