"""A run while it goes on: a bar with rate and time left on a terminal, a line for each submission elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from autograder.engine.grade import Graded
from autograder.report.words import number


class ProgressReport:
    """Is told how a run goes, and shows it. Use as a context manager.

    On a terminal only submissions with something to look at get a line of their own, above the bar.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        told = TextColumn("{task.description}", markup=False)  # a student's name is no markup
        columns = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(), told)
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._live = self._console.is_terminal
        self._count = self._done = 0

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bar.stop()

    def planned(self, count: int, recorded: int) -> None:
        """The run has `count` submissions, of which some were recorded before."""
        self._count, self._done = count, recorded
        self._bar.add_task("", total=count, completed=recorded)

    def told(self, graded: Graded) -> None:
        """One more is recorded, or could not be."""
        self._done += 1
        trouble = graded.failed or graded.problem
        result = trouble or f"{number(graded.points)} points"
        if graded.repairs:
            result += f", repaired ({len(graded.repairs)})"
        if trouble or graded.repairs or not self._live:
            self.said(f"{self._done}/{self._count} {graded.student}: {result}")
        self._bar.update(self._bar.task_ids[0], advance=1, description=printable(graded.student))

    def said(self, sentence: str) -> None:
        """A line for people."""
        self._console.print(Text(printable(sentence)), soft_wrap=True)


class _Rate(ProgressColumn):
    """Submissions in a minute."""

    def render(self, task: Task) -> Text:
        """Nothing before the second one."""
        return Text("" if task.speed is None else f"{60 * task.speed:.0f}/min")


def printable(text: str) -> str:
    """The text with everything that moves a terminal's cursor, or breaks the line, written out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
