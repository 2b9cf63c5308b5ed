"""Classes of sample submissions, and the command that grades them with this engine.

solved   the worked solutions, again and again
mixed    untouched, half done, a deleted check cell, and wrong answers from all over the unit's misconceptions, all else
         solved. Two kinds of the sample class are left out, because stock nbgrader cannot grade them: a file cut off in
         the middle, and a copied check cell.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from measuring import ROOT
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from autograder import classroom
from course.errors import CourseError

LESSON = "01_computational_graphs"
PROGRAM = """
import sys
from pathlib import Path
from autograder.start import quick_imports

with quick_imports():
    import torch
    from autograder.nbgrader_bridge import How, grade

torch.set_num_threads(1)
root, lesson, jobs, display, trusted, seed = sys.argv[1:]
how = How(jobs=int(jobs), display=bool(int(display)), trusted=bool(int(trusted)))
grade(Path(root), lesson, seed=int(seed) if seed else None, how=how)
"""
UNLIKE = ("untouched", "half", "deleted_cell")


def samples() -> dict[str, bytes]:
    """The sample class by the kind of submission. Raises CourseError where the lesson has not been built."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _copy_lesson(root)
        students = classroom.make(root, LESSON)
        return {student: submitted(root, student).read_bytes() for student in students}


def solved(kinds: Mapping[str, bytes], count: int) -> list[bytes]:
    """`count` times the worked solutions."""
    return [kinds["solved"]] * count


def mixed(kinds: Mapping[str, bytes], count: int) -> list[bytes]:
    """`count` submissions of many kinds, the same ones every time."""
    wrong = sorted(kind for kind in kinds if kind.startswith(classroom.PREFIX))
    wanted = max(1, count - len(UNLIKE))
    evenly = [wrong[number * len(wrong) // wanted] for number in range(wanted)]
    return [kinds[kind] for kind in [*UNLIKE, *evenly][:count]]


def make(root: Path, submissions: Mapping[str, bytes]) -> Path:
    """A new course folder with the lesson, an empty gradebook, and what each student has handed in.

    The gradebook is there before anybody is graded, as it is for stock nbgrader, whose release has made one.
    """
    shutil.rmtree(root, ignore_errors=True)
    _copy_lesson(root)
    (root / "gradebook.db").write_bytes(_empty_gradebook())
    for student, data in submissions.items():
        path = submitted(root, student)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return root


def submitted(root: Path, student: str) -> Path:
    """Where a student's file lies."""
    return root / "submitted" / student / LESSON / f"{LESSON}.ipynb"


def source() -> NotebookNode:
    """The lesson with its solutions, as nbgrader's source."""
    notebook: NotebookNode = nbformat.read(_built("source") / f"{LESSON}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def command(root: Path, *, display: bool, jobs: int = 1, seed: int | None = None, trusted: bool = False) -> list[str]:
    """Grade everybody in `root` with this engine, as `autograder grade` does before it writes feedback pages.

    Stock `nbgrader autograde`, with which it is compared, writes none either. `seed` draws the same cases for all.
    """
    drawn = "" if seed is None else str(seed)
    numbers = [str(jobs), str(int(display)), str(int(trusted))]
    return [sys.executable, "-c", PROGRAM, str(root), LESSON, *numbers, drawn]


@functools.cache
def _empty_gradebook() -> bytes:
    """nbgrader's, with no assignment and no student."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gradebook.db"
        Gradebook(f"sqlite:///{path}").close()
        return path.read_bytes()


def _copy_lesson(root: Path) -> None:
    for step in ("source", "release"):
        shutil.copytree(_built(step), root / step / LESSON)


def _built(step: str) -> Path:
    folder = ROOT / "build" / step / LESSON
    if not folder.is_dir():
        raise CourseError(f"{folder} must exist before grading is measured; run `autograder build`")
    return folder
