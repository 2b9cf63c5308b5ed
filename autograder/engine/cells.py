"""Cells as grading sees them, and the release as cells: parsed once, and asked for roles from then on.

nbformat's nodes --parse--> cells;   cells of the release and of students --Release.notebook_of--> nodes
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograder.engine.slim import mapping_of, source_of, text_of
from course import exercises
from course.errors import CourseError
from course.performing.cells import CodeCell
from course.performing.exercise import Exercise

KINDS = ("code", "markdown", "raw")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell. Of a submission all of it is a claim.

    exercise, role  from `metadata.hpml`; "" where there is none. Ours are answer and check; free: a student's own
    grade_id        from `metadata.nbgrader`; "" where there is none
    locked          whether it is to stay as it was released
    number          of the cell of the release that it stands for; None for a student's own
    holds           exercises whose answers stand here, and not in their own cells
    """

    kind: str
    source: str
    id: str = ""
    exercise: str = ""
    role: str = ""
    grade_id: str = ""
    locked: bool = False
    number: int | None = None
    holds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The exercise's entry name, by which an answer is called."""
        return self.exercise.partition(".")[2]

    @property
    def fixed(self) -> bool:
        """Whether the release's own source stands, whatever was submitted."""
        return self.role == "check" or self.locked


def parse(node: dict[str, Any], number: int | None = None) -> Cell:
    """A cell from a node of any notebook, whatever stands in it."""
    metadata = mapping_of(node.get("metadata"))
    hpml, nbgrader = mapping_of(metadata.get("hpml")), mapping_of(metadata.get("nbgrader"))
    kind = text_of(node.get("cell_type"))
    return Cell(
        kind=kind if kind in KINDS else "raw",
        source=source_of(node.get("source")),
        id=text_of(node.get("id")),
        exercise=text_of(hpml.get("exercise")),
        role=text_of(hpml.get("role")),
        grade_id=text_of(nbgrader.get("grade_id")),
        locked=bool(nbgrader.get("locked")) and not nbgrader.get("solution"),
        number=number,
    )


def role_of(node: NotebookNode) -> tuple[str, str]:
    """(exercise id, "answer" or "check") of a node of ours; two empty strings for every other one."""
    hpml = node.metadata.get("hpml", {})
    return hpml.get("exercise", ""), hpml.get("role", "")


def code_cells(cells: Sequence[Cell]) -> list[CodeCell]:
    """The code cells that students' definitions may stand in; of check cells, only where they stand."""
    held = {exercise for cell in cells for exercise in cell.holds}
    found = []
    for cell in cells:
        own = [] if cell.role == "answer" and cell.exercise in held else [cell.exercise]
        names = " ".join(exercise.partition(".")[2] for exercise in [*own, *cell.holds])
        if cell.kind == "code":
            found.append(CodeCell(source="" if cell.role == "check" else cell.source, answers=names))
    return found


@dataclass(frozen=True, kw_only=True)
class Release:
    """What students were given: the notebook, its cells, and the exercises that its check cells ask for."""

    name: str
    notebook: NotebookNode

    @classmethod
    def load(cls, path: Path) -> Release:
        """The release notebook at `path`. Raises CourseError where there is none or it has no check cell."""
        try:
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise CourseError(f"the release notebook must lie at {path}, but {error}; build it first") from None
        release = cls(name=path.stem, notebook=notebook)
        if not release.exercises:
            raise CourseError(f"{path} must have check cells, found none; build it again")
        return release

    @functools.cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, in order."""
        return tuple(parse(node, number) for number, node in enumerate(self.notebook.cells))

    @functools.cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        """In the order of their check cells."""
        return tuple(exercises.load(cell.exercise) for cell in self.cells if cell.role == "check")

    @property
    def units(self) -> frozenset[str]:
        """Those that the exercises belong to: one, in a lesson of the course."""
        return frozenset(each.unit for each in self.exercises)

    def written(self, cell: Cell) -> bool:
        """Whether the source of a cell of a rebuilt notebook is the student's."""
        return cell.number is None or cell.source.strip() != self.cells[cell.number].source.strip()

    def notebook_of(self, cells: Iterable[Cell], *, marked: bool = False) -> NotebookNode:
        """The release notebook with these cells; students' own text is shown as it was typed, never rendered.

        marked  whether the metadata of each cell that a student has written say so
        """
        notebook = copy.copy(self.notebook)
        notebook.metadata, notebook.cells = copy.deepcopy(self.notebook.metadata), []
        for cell in cells:
            notebook.cells.append(self._node(cell))
            if marked and self.written(cell):
                notebook.cells[-1].metadata.setdefault("hpml", {})["written"] = True
        return notebook

    def _node(self, cell: Cell) -> NotebookNode:
        if cell.number is None:
            make: Any = new_code_cell if cell.kind == "code" else new_markdown_cell
            source = cell.source if cell.kind == "code" else verbatim(cell.source)
            free: NotebookNode = make(source, id=cell.id, metadata={"hpml": {"role": "free"}})
            return free
        node: NotebookNode = copy.deepcopy(self.notebook.cells[cell.number])
        node.source = cell.source
        if node.cell_type == "code":
            node.outputs, node.execution_count = [], None
        return node


def verbatim(text: str) -> str:
    """Markdown that shows `text` letter by letter: a block indented by four spaces, which no text can end."""
    return "\n".join(f"    {line}" for line in text.splitlines())
