"""A class that is graded by a toy: what tests of batches work on."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import pkgutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import unsynced  # noqa: F401 -- in the process that is killed, too
from nbgrader.api import Gradebook
from small_class import ASSIGNMENT, RIGHT, hand_in, notebook, publish, release
from toy_judge import Nowhere, ToyJudge

from autograder.engine.stopping import Stopped
from autograder.nbgrader_bridge import How, Watcher, grade

STUDENTS = ("ann", "bob", "cid", "dan", "eve", "fay")


@dataclasses.dataclass
class Class:
    """A folder in which students have handed in, and how it was graded."""

    root: Path
    said: list = dataclasses.field(default_factory=list)
    told: list = dataclasses.field(default_factory=list)
    planned: list = dataclasses.field(default_factory=list)

    def toy(self, **traits) -> ToyJudge:
        """Notes go to a file beside the folder."""
        return ToyJudge(release(), self.root.parent / "notes", **traits)

    def grade(self, *, students=None, seed=None, toy=None, **how):
        """Grade with the toy."""
        watcher = Watcher(
            said=self.said.append, told=self.told.append, planned=lambda *counts: self.planned.append(counts)
        )
        work = how.pop("work", None) or toy or self.toy()
        way = How(work=work, **{"patience": 0.0, **how})
        return grade(self.root, ASSIGNMENT, students, seed, Nowhere(), how=way, watcher=watcher)

    def calls(self) -> Counter:
        """How often the grading of each student was started."""
        return Counter(self.toy().calls())

    def notebook(self, student: str) -> Path:
        """The graded notebook."""
        return self.root / "autograded" / student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"

    def gradebook(self) -> Gradebook:
        """nbgrader's own."""
        return Gradebook(f"sqlite:///{self.root}/gradebook.db")


def made(folder: Path, students=STUDENTS) -> Class:
    """A class in which everyone has handed in something of their own."""
    root = folder / "build"
    publish(root, gradebook=True)
    for student in students:
        hand_in(root, student, notebook({**RIGHT, "hvp": f"# {student}\n{RIGHT['hvp']}"}))
    return Class(root)


def outcome(result) -> dict:
    """Everything that must not depend on how a run went: by student."""
    return {each.student: dataclasses.replace(each, seconds=0.0) for each in result.students}


@functools.cache
def undisturbed() -> dict:
    """What one judge makes of the class with seed 7, from beginning to end: by student."""
    with tempfile.TemporaryDirectory() as folder:
        return outcome(made(Path(folder)).grade(seed=7))


def scores(result) -> dict[str, float]:
    """Score by student."""
    return {each.student: each.score for each in result.students}


def seeds(result) -> dict[str, int]:
    """Seed by student."""
    return {each.student: each.seed for each in result.students}


def run_killed(room: Class, owner: str, name: str, call: int, *, after: bool, **how) -> None:
    """Grade in a process that is killed before or after the given call of a function.

    It comes from the fork server of all tests, which has one thread.
    """
    process = multiprocessing.get_context("forkserver").Process(
        target=_grade_and_die, args=(room.root, owner, name, call, after, how)
    )
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def _grade_and_die(root: Path, owner: str, name: str, call: int, after: bool, how: dict) -> None:
    place, counted = pkgutil.resolve_name(owner), []
    function = getattr(place, name)

    def deadly(*arguments, **named):
        counted.append(name)
        if len(counted) == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        value = function(*arguments, **named)
        if len(counted) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(place, name, deadly)
    Class(root).grade(**how)


def stop_at(room: Class, student: str) -> None:
    """A run in which Ctrl-C comes when this student is being graded."""

    class Stops(ToyJudge):
        def judge(self, task):
            if task.submission.student == student:
                os.kill(os.getpid(), signal.SIGINT)
            return super().judge(task)

    with pytest.raises(Stopped):
        room.grade(work=Stops(release(), room.root.parent / "notes"))
