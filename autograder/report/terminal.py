"""The class in the terminal: a row per student, which misconception hit how many, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograder.engine.results import ClassResult
from autograder.report.progress import printable
from autograder.report.words import number, reasons, remarks, slip, spaced, summary


def show(result: ClassResult, console: Console | None = None) -> None:
    """Print the class table, the misconceptions, how students' code was run, and whom it did not go well with."""
    out = console or Console()
    out.print(_students(result))
    if result.misconceptions():
        out.print(_misconceptions(result))
    out.print(Text(summary(result)))
    if result.runner:
        out.print(Text(f"How it was run: {result.runner}.", style="bold yellow"))
    _list(out, "Repaired before grading", {each.student: each.repairs for each in result.students})
    _list(out, "Could not be read", {each.student: [each.problem] for each in result.students if each.problem})
    _list(out, "Not graded", {each.student: [each.failed] for each in result.students if each.failed})


def _list(out: Console, title: str, sentences: Mapping[str, Sequence[str]]) -> None:
    """Every student with a sentence, and the sentences."""
    named = {student: each for student, each in sentences.items() if each}
    if named:
        out.print(Text(f"{title}: {len(named)}", style="bold"))
    for student, each in named.items():
        out.print(Text(printable(f"  {student}: {' '.join(each)}")), soft_wrap=True)


def _students(result: ClassResult) -> Table:
    table = Table(title=f"{result.assignment}: who got what, and why", title_justify="left", show_lines=False)
    table.add_column("student", overflow="fold", max_width=32)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("why, and what was repaired", overflow="fold")
    for student in result.students:
        lines = [printable(line) for line in [*reasons(student), *remarks(student)]]
        score = f"{number(student.score)} / {number(student.max_score)}"
        table.add_row(Text(printable(student.student)), score, Text("\n".join(lines)))
    return table


def _misconceptions(result: ClassResult) -> Table:
    table = Table(title="Which misconception hit how many", title_justify="left")
    table.add_column("students", justify="right")
    table.add_column("exercise")
    table.add_column("misconception")
    table.add_column("for example", overflow="fold")
    for exercise, name, count in result.misconceptions():
        table.add_row(str(count), exercise, spaced(name), Text(slip(exercise, name)))
    return table
