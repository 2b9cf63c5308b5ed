"""The errors of the course: one small tree, each message one sentence.

A message says what must hold, what came, and what to do.
"""

from __future__ import annotations


class CourseError(Exception):
    """The root of every error that the course raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback: the sentence alone."""
        return [f"{type(self).__name__}: {self}"]


class DeclarationError(CourseError):
    """An exercise, a unit or a misconception is declared in a way that contradicts itself."""


class UnknownExercise(CourseError):
    """A name that the syllabus does not hold."""


class NotAnAnswer(CourseError):
    """Something that is no function and no class was given to be checked."""


class BadArgument(CourseError, ValueError):
    """A number, a name or a shape that makes no sense where it came."""


class WrongOutput(CourseError):
    """An answer returned something of another form than its docstring states."""


class SheetError(CourseError):
    """An answer sheet is damaged, is of another version, or lacks what was asked of it."""
