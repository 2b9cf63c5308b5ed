"""A judge that runs nothing: points follow from the file and the seed alone, so that two runs can be compared."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from autograder.engine.grade import Release, untouched


class Nowhere:
    """A runner in which nothing is run."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Nothing is open."""

    def describe(self):
        """The sentence of summaries."""
        return "graded by a toy"


@dataclass(frozen=True)
class ToyJudge:
    """Work for a batch. Picklable. `notes` gets a line for each submission, when its grading starts.

    dies    students whose grading kills the process in which it runs
    breaks  students whose grading raises
    """

    release: Release
    notes: Path
    dies: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    repairs: tuple[str, ...] = ()

    @contextlib.contextmanager
    def __call__(self):
        """The same in every process."""
        yield self.judge

    def judge(self, task):
        """Every exercise gets some of its points."""
        student = task.submission.student
        with self.notes.open("a") as file:
            file.write(f"{student}\n")
        if student in self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if student in self.breaks:
            raise ZeroDivisionError("a slip of ours")
        data = task.submission.path.read_bytes() if task.submission.path else b""
        graded = untouched(student, self.release, Nowhere(), seed=task.seed)
        numbers = [drawn(data, task.seed, each.exercise) % (each.possible + 1) for each in graded.verdicts]
        verdicts = tuple(
            dataclasses.replace(each, points=points, attempted=True)
            for each, points in zip(graded.verdicts, numbers, strict=True)
        )
        return dataclasses.replace(graded, verdicts=verdicts, repairs=self.repairs)

    def calls(self) -> list[str]:
        """Students in the order in which their grading started, also in a process that died of it."""
        return self.notes.read_text().split() if self.notes.exists() else []


def drawn(data: bytes, seed: int, exercise: str) -> int:
    """A number that nobody can guess without the seed."""
    return int.from_bytes(hashlib.sha256(b"%d %s" % (seed, exercise.encode()) + data).digest()[:4])
