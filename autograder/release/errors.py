"""What can go wrong between an authored lesson and a student's bundle."""

from __future__ import annotations

from course.errors import CourseError


class AuthorError(CourseError):
    """A lesson is written in a way that gives no sound notebook; the message begins with `file:line`."""

    def __init__(self, file: str, line: int, sentence: str) -> None:
        super().__init__(f"{file}:{line}: {sentence}")
        self.file = file
        self.line = line


class ReleaseError(CourseError):
    """A bundle cannot be made from what is here, or not be written where it was asked for."""
