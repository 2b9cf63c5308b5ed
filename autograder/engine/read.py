"""A submitted file, read with suspicion: bytes in, cells out, or one sentence that says why not.

Only what a rebuild needs is taken: kind, source, id, and the names under which the course knows a cell. Nothing is
validated against a schema, because everything else in the file is dropped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from course.errors import CourseError

MAX_BYTES = 20 * 2**20  # a notebook with outputs is a few MiB; outputs are dropped anyway
MAX_CELLS = 5_000
KINDS = ("code", "markdown", "raw")


class Unreadable(CourseError):
    """A submitted file that is no notebook, or none that can be read."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One submitted cell.

    exercise, role  from `metadata.hpml`; "" where there is none
    grade_id        from `metadata.nbgrader`; "" where there is none
    """

    kind: str
    source: str
    id: str = ""
    exercise: str = ""
    role: str = ""
    grade_id: str = ""


def read_file(path: Path) -> list[Cell]:
    """The cells of a file. Raises Unreadable; a link, a pipe or a folder is refused unopened."""
    try:
        if path.is_symlink() or not path.is_file():
            raise Unreadable(f"{path.name} must be a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"{path.name} must not be larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be opened: {error.strerror}") from None
    return read(data)


def read(data: bytes) -> list[Cell]:
    """The cells of a notebook. Raises Unreadable; notebooks of format 3 are upgraded first."""
    if len(data) > MAX_BYTES:
        raise Unreadable(f"a notebook must not be larger than {MAX_BYTES >> 20} MiB")
    notebook = _latest(_parse(data))
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("the file is JSON, but no notebook: it has no list of cells")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"a notebook must not have more than {MAX_CELLS} cells, got {len(cells)}")
    return [_cell(cell) for cell in cells if isinstance(cell, dict)]


def _parse(data: bytes) -> dict[str, Any]:
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise Unreadable("the file is nested too deeply to be read") from None
    except ValueError as error:  # includes UnicodeDecodeError and json.JSONDecodeError
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"the file is not valid JSON{place}") from None
    if not isinstance(notebook, dict):
        raise Unreadable("the file is JSON, but no notebook")
    return notebook


def _latest(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook in format 4."""
    version = notebook.get("nbformat", 4)
    if version == 4:
        return notebook
    try:
        upgraded: dict[str, Any] = nbformat.convert(nbformat.from_dict(notebook), 4)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise Unreadable(
            f"the notebook has format {str(version)[:20]} and cannot be upgraded to 4 ({type(error).__name__})"
        ) from None
    return upgraded


def _cell(cell: dict[str, Any]) -> Cell:
    metadata = _mapping(cell.get("metadata"))
    hpml, nbgrader = _mapping(metadata.get("hpml")), _mapping(metadata.get("nbgrader"))
    kind = _text(cell.get("cell_type"))
    return Cell(
        kind=kind if kind in KINDS else "raw",
        source=_source(cell.get("source")),
        id=_text(cell.get("id")),
        exercise=_text(hpml.get("exercise")),
        role=_text(hpml.get("role")),
        grade_id=_text(nbgrader.get("grade_id")),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _source(value: object) -> str:
    return "".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    """The string without half surrogate pairs, which no file can hold; "" for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
