"""A submitted file, read with suspicion: bytes in, cells out, or one sentence that says why not.

Only what a rebuild needs is taken: kind, source, id, and the names under which the course knows a cell. Nothing is
validated against a schema, because everything else in the file is dropped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat

from autograder.engine.cells import Cell, parse
from course.errors import CourseError

MAX_BYTES = 20 * 2**20  # a notebook with outputs is a few MiB; outputs are dropped anyway
MAX_CELLS = 5_000
MAX_PARTS = 500_000  # lists and objects, each of which takes a hundred bytes of memory and more
CELL, TOTAL = 200_000, 2 * 2**20  # characters of one cell, and of all: they are written on pages, in several forms


class Unreadable(CourseError):
    """A submitted file that is no notebook, or none that can be read."""


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
    if data.count(b"{") + data.count(b"[") > MAX_PARTS:
        raise Unreadable(f"a notebook must not hold more than {MAX_PARTS:,} lists and objects")
    notebook = _latest(_parse(data))
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("the file is JSON, but no notebook: it has no list of cells")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"a notebook must not have more than {MAX_CELLS} cells, got {len(cells)}")
    return [*_without_long_ones(parse(cell) for cell in cells if isinstance(cell, dict))]


def _without_long_ones(cells: Iterable[Cell]) -> Iterator[Cell]:
    """A sentence in place of a cell that is too long by itself, or with those above it."""
    room = TOTAL
    for cell in cells:
        if (size := len(cell.source)) > min(CELL, room):
            said = f"left out: a cell may hold {CELL:,} characters, and all together {TOTAL:,}; this one held {size:,}"
            yield dataclasses.replace(cell, source=f"# {said}" if cell.kind == "code" else said)
        else:
            room -= size
            yield cell


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
