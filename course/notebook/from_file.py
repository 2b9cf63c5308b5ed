"""Checking a whole notebook from the terminal, without running more of it than its answers need."""

from __future__ import annotations

import json
from pathlib import Path

from course import syllabus
from course.errors import CourseError
from course.performing.cells import CodeCell, Loaded, load


def answers(path: Path) -> dict[str, Loaded]:
    """By entry name, in the notebook's order: the answer that the notebook defines, or why there is none.

    Raises CourseError where the file cannot be read or holds no exercise of this course.
    """
    cells = _cells(path)
    names = dict.fromkeys(cell.answers for cell in cells if cell.answers)
    if not names:
        raise CourseError(f"{path} must be a notebook of this course, but no cell of it holds an exercise")
    return {name: load(cells, name) for name in names}


def _cells(path: Path) -> list[CodeCell]:
    try:
        if path.exists() and not path.is_file():
            raise CourseError(f"{path} must be a notebook (.ipynb), but is a folder, a pipe or a device")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return [_cell("".join(cell["source"]), cell["metadata"].get("hpml")) for cell in code]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CourseError(f"{path} must be a notebook (.ipynb), but: {type(error).__name__}: {error}") from None


def _cell(source: str, ours: object) -> CodeCell:
    """With the entry name of an answer cell or a check cell; of the latter without its source."""
    if not isinstance(ours, dict) or (role := ours.get("role")) not in ("answer", "check"):
        return CodeCell(source=source)
    name = syllabus.find_entry(str(ours.get("exercise"))).name
    return CodeCell(source=source if role == "answer" else "", answers=name)
