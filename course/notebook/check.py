"""What notebooks call: `check(answer)`, `hint(answer)`, `progress()`.

    check(backward)   backward.__name__ -> exercise -> perform on the sheet's cases -> judge -> Report

The exercise is found by the answer's name. A Report shows a table; its plain-text form is the number of points,
because that is what nbgrader reads from a graded cell.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from dataclasses import dataclass
from typing import Any

from course import exercises
from course.errors import BadArgument, CourseError, NotAnAnswer
from course.judging import sheet
from course.judging.judge import judge
from course.judging.sheet import Record
from course.judging.verdict import Verdict
from course.notebook import pages, progress_file, report, watching
from course.notebook.progress_file import Row
from course.performing import uses
from course.performing.exercise import Answer, Exercise
from course.performing.perform import perform_all, stops
from course.syllabus import UNITS, Entry

# What the course checks answers with: in grading an answer does not find it.
NOT_THERE = (
    *("course.exercises", "course.performing", "course.meter", "course.planner"),
    *("course.lessons.experiments", "course.lessons.widgets"),
)


@dataclass(frozen=True)
class Report:
    """A verdict as a notebook shows it: HTML there, a table as text, the number of points as plain result."""

    verdict: Verdict
    note: str = ""

    def __repr__(self) -> str:
        return str(self.verdict.points)

    def __str__(self) -> str:
        return report.to_text(self.verdict, self.note)

    def _repr_html_(self) -> str:
        return report.to_html(self.verdict, self.note)


class BonusReport(Report):
    """Shown as every Report, but not as the cell's result: nbgrader reads that as the cell's points, and refuses any
    above a bonus's maximum of 0.
    """

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/plain": repr(self), "text/html": self._repr_html_()}, raw=True)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Page:
    """Something to read: HTML in a notebook, text elsewhere."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def check(answer: Answer) -> Report:
    """Judge `answer` on the public cases, and remember the points.

    Returns a Report: in a notebook, leave it as the last line of the cell. Raises NotAnAnswer, UnknownExercise
    and SheetError, each with one sentence; whatever the answer itself does becomes part of the table.
    """
    exercise = _exercise_of(answer)
    verdict = _judged(exercise, answer)
    notes = []
    if verdict.attempted:
        notes = [
            _removed(exercise, answer, verdict),
            progress_file.update(exercise.id, lambda row: _reached(row, verdict)),
        ]
    shown = (BonusReport if exercise.entry.bonus else Report)(verdict, " ".join(filter(None, notes)))
    if not _in_notebook():
        print(shown)
    return shown


def solved(answer: Answer) -> bool:
    """Whether `answer` gets full marks on the public cases; shows and remembers nothing."""
    verdict = _judged(_exercise_of(answer), answer)
    return verdict.points == verdict.possible


def hint(answer: Answer | str, step: int | None = None) -> Page:
    """The next of three hints (or the one with this number): a question, a pointer, a sketch.

    How many were shown is remembered, except for the first one asked for by its number: lessons show that one
    themselves. Raises like `check`, and BadArgument where there is no hint of this number.
    """
    if step is not None and (type(step) is not int or not 1 <= step <= len(pages.STEPS)):
        raise BadArgument(f"step must be 1, 2 or 3, got {step!r}; leave it out for the next hint")
    exercise = exercises.load(answer) if isinstance(answer, str) else _exercise_of(answer, "hint")
    wanted = step or progress_file.load().get(exercise.id, Row()).hints + 1
    shown = max(1, min(wanted, len(exercise.hints)))
    note = ""
    if step != 1:
        note = progress_file.update(exercise.id, lambda row: dataclasses.replace(row, hints=max(row.hints, shown)))
    return Page(pages.hint_text(exercise, shown, note), pages.hint_html(exercise, shown, note))


def progress() -> Page:
    """What was reached so far: a bar for each unit and a row for each exercise."""
    rows, note = progress_file.read()
    units = [(unit, [_row(entry, rows) for entry in unit.entries]) for unit in UNITS]
    return Page(pages.progress_text(units, note), pages.progress_html(units, note))


def _removed(exercise: Exercise, answer: Answer, verdict: Verdict) -> str:
    """The remark on what this exercise asks to do without: by reading, and where that finds nothing by running."""
    used = uses.forbidden(answer, (*exercise.removes, *NOT_THERE))
    if not used and not stops(verdict.failure):
        used = watching.ran(exercise, answer, _record(exercise).cases)
    if not used:
        return ""
    wrote, names = ([f"`{name}`" for name in dict.fromkeys(each)] for each in (used, used.values()))
    return (
        f"This exercise is to be done without {' and '.join(names)}, but your answer uses {', '.join(wrote)}; "
        "grading gives no points for it."
    )


def _reached(row: Row, verdict: Verdict) -> Row:
    points = max(row.points, verdict.points)
    return dataclasses.replace(row, points=points, possible=verdict.possible, checks=row.checks + 1)


def _row(entry: Entry, rows: dict[str, Row]) -> tuple[Entry, Row]:
    row, possible = rows.get(entry.id, Row()), exercises.load(entry.id).points
    return entry, dataclasses.replace(row, points=min(row.points, possible), possible=possible)


def _judged(exercise: Exercise, answer: Answer) -> Verdict:
    record = _record(exercise)
    seen = perform_all(exercise, answer, record.cases)
    return judge(exercise, record.cases, seen, record.references, record.suspects)


def _record(exercise: Exercise) -> Record:
    records = _sheet(exercise.unit)
    if exercise.id not in records:
        raise CourseError(
            f"the answer sheet of unit {exercise.unit} must hold {exercise.id}, but it holds "
            f"{', '.join(records) or 'nothing'}; install course and sheets from the same release"
        )
    return records[exercise.id]


@functools.cache
def _sheet(unit: str) -> dict[str, Record]:
    return sheet.load(unit)


def _exercise_of(answer: Any, verb: str = "check") -> Exercise:
    """The exercise that is called like the answer. Raises NotAnAnswer or UnknownExercise."""
    name = getattr(answer, "__name__", None)
    if not callable(answer) or not isinstance(name, str) or name == "<lambda>":
        came, advice = _mistaken(answer)
        raise NotAnAnswer(
            f"{verb} needs the function or class itself, as in {verb}(backward), got {came}; {advice} its name"
        )
    return exercises.load(name)


def _mistaken(value: object) -> tuple[str, str]:
    """What came instead of an answer, and what to do to or with its name."""
    if isinstance(value, str):
        return f"the text {value[:40]!r}", "leave out the quotation marks around"
    if callable(value):
        kind = "lambda" if inspect.isfunction(value) else type(value).__name__
        return f"a {kind}, which has no name of its own", "write it with def or class under"
    came = "nothing (None)" if value is None else f"a value of type {type(value).__name__}"
    return came, "leave out the brackets behind"


def _in_notebook() -> bool:
    """Whether a Jupyter kernel shows the result of a cell as HTML."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
