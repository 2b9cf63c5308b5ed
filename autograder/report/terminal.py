"""The class in the terminal: a row per student, and which misconception hit how many."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograder.engine.results import ClassResult
from autograder.report.words import number, reasons, remarks, spaced, summary


def show(result: ClassResult, console: Console | None = None) -> None:
    """Print the class table, the misconceptions, and how students' code was run."""
    out = console or Console()
    out.print(_students(result))
    if result.misconceptions():
        out.print(_misconceptions(result))
    out.print(Text(summary(result)))
    if result.runner:
        out.print(Text(f"How it was run: {result.runner}.", style="bold yellow"))


def _students(result: ClassResult) -> Table:
    table = Table(title=f"{result.assignment}: who got what, and why", title_justify="left", show_lines=False)
    table.add_column("student", overflow="fold", max_width=32)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("why, and what was repaired", overflow="fold")
    for student in result.students:
        lines = [*reasons(student), *remarks(student)]
        score = f"{number(student.score)} / {number(student.max_score)}"
        table.add_row(Text(student.student), score, Text("\n".join(lines)))
    return table


def _misconceptions(result: ClassResult) -> Table:
    table = Table(title="Which misconception hit how many", title_justify="left")
    table.add_column("students", justify="right")
    table.add_column("exercise")
    table.add_column("misconception")
    for exercise, name, count in result.misconceptions():
        table.add_row(str(count), exercise, spaced(name))
    return table
