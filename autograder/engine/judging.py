"""What a judge process does: it holds one runner, and grades one submission after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autograder.engine.cells import Release
from autograder.engine.grade import Graded, Submission, grade
from autograder.sandbox import Limits, Runner, open_runner


@dataclass(frozen=True, kw_only=True)
class GradingTask:
    """One submission, and the seed that draws its cases."""

    submission: Submission
    seed: int


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Grades with a runner of its own, which starts when it is entered. Picklable."""

    release: Release
    limits: Limits | None = None
    trusted: bool = False
    display: bool = True

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Callable[[GradingTask], Graded]]:
        """Raises RunnerError where students' code cannot be run here."""
        with open_runner(self.limits, trusted=self.trusted, display=self.display) as runner:
            yield lambda task: judge(task, self.release, runner, display=self.display)


def judge(task: GradingTask, release: Release, runner: Runner, *, display: bool) -> Graded:
    """Grade one submission with a runner that is open."""
    return grade(task.submission, release, runner, seed=task.seed, display=display)
