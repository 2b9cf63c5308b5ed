"""Lesson 01 as an ordinary nbgrader assignment: the same lesson and cases, graded by cells of asserts.

    our source notebook, public cases --write--> a course folder of nbgrader's own --nbgrader generate_assignment-->
    release --fill with the answers of a submission--> submitted/ --nbgrader autograde--> gradebook

What an instructor without our engine would not have is left out: checks, hints and progress. What they would have
stays: every cell of the lesson, which stock nbgrader runs for each submission. Nothing is configured but the folder;
nbgrader's own preprocessors, time limit and SQLite gradebook are in use.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import stock_cases
import stock_checks
import torch
from measuring import Cost, nbgrader, run
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.engine.cells import role_of
from course.syllabus import find_unit

CASES = "cases.pt"
PREPARED = """
import torch

CASES = torch.load("cases.pt", weights_only=False)
PASSED = set()


def solved(answer):
    \"\"\"Whether the tests of this answer have passed.\"\"\"
    return answer.__name__ in PASSED
"""
OURS = re.compile(r"^from course(\.check)? import (check|solved|hint|progress).*\n", re.MULTILINE)
MACHINERY = re.compile(r"(hint|progress)\(.*\)")
CONFIG = """
c = get_config()
c.CourseDirectory.root = {root!r}
"""


@dataclass(frozen=True)
class Stock:
    """A course folder of stock nbgrader with one assignment.

    lean  the lesson's own cells are left out: imports, answers and grade cells only
    """

    root: Path
    lesson: str
    lean: bool = False

    def build(self, source: NotebookNode) -> None:
        """Write source notebook and cases, and let nbgrader make the release. `source` is that of our own release."""
        folder = self.root / "source" / self.lesson
        folder.mkdir(parents=True)
        nbformat.write(self._notebook(source), folder / f"{self.lesson}.ipynb")  # type: ignore[no-untyped-call]
        torch.save(stock_cases.rows(find_unit(self.lesson).slug), folder / CASES)
        (self.root / "nbgrader_config.py").write_text(CONFIG.format(root=str(self.root)))
        run(nbgrader("generate_assignment", self.lesson), cwd=self.root)

    def submit(self, student: str, submission: NotebookNode) -> None:
        """Hand in, for `student`, the answers of `submission`; a check cell that is missing there is missing here."""
        release = nbformat.read(self._release, as_version=4)  # type: ignore[no-untyped-call]
        given = {role_of(cell): cell.source for cell in submission.cells}
        kept = []
        for cell in release.cells:
            exercise, role = role_of(cell)
            if role == "check" and (exercise, role) not in given:
                continue
            if role == "answer":
                cell.source = given[exercise, role]
            kept.append(cell)
        release.cells = kept
        folder = self.root / "submitted" / student / self.lesson
        folder.mkdir(parents=True)
        nbformat.write(release, folder / f"{self.lesson}.ipynb")  # type: ignore[no-untyped-call]

    def grade(self, students: str) -> Cost:
        """What `nbgrader autograde` takes for the students whose ids match this pattern."""
        return run(nbgrader("autograde", self.lesson, "--student", students), cwd=self.root)

    @property
    def _release(self) -> Path:
        return self.root / "release" / self.lesson / f"{self.lesson}.ipynb"

    def _notebook(self, source: NotebookNode) -> NotebookNode:
        notebook = copy.deepcopy(source)
        notebook.cells = list(self._cells(notebook))
        return notebook

    def _cells(self, notebook: NotebookNode) -> Iterator[NotebookNode]:
        """The lesson's cells; after the first cell of code, which imports, comes the one that loads the cases."""
        first = next(cell for cell in notebook.cells if cell.cell_type == "code")
        for cell in notebook.cells:
            exercise, role = role_of(cell)
            if role == "check":
                cell.source = _asserts(exercise)
            elif cell is first:
                cell.source = OURS.sub("", cell.source)
            elif role != "answer" and (MACHINERY.fullmatch(cell.source.strip()) or self.lean):
                continue
            yield cell
            if cell is first:
                yield _prepared()


def _prepared() -> NotebookNode:
    """The cell that every grade cell needs, locked, so that nbgrader puts it back."""
    marks = {
        "grade": False,
        "grade_id": "prepared",
        "locked": True,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    cell: NotebookNode = new_code_cell(PREPARED.strip(), metadata={"nbgrader": marks})  # type: ignore[no-untyped-call]
    return cell


def _asserts(exercise: str) -> str:
    """The source of a grade cell: what its function needs, the function, its call. Students get none of it."""
    name = exercise.partition(".")[2]
    function = getattr(stock_checks, f"check_{name}")
    parts = [stock_checks.program_of] if "program_of" in function.__code__.co_names else []
    sources = "\n\n".join(inspect.getsource(each) for each in (*parts, function))
    return f"""### BEGIN HIDDEN TESTS
from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = Callable[..., Any]
Cases = list[dict[str, Any]]


{sources}

check_{name}({name}, CASES[{exercise!r}])
PASSED.add({name!r})
### END HIDDEN TESTS"""
