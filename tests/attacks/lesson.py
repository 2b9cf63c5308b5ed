"""The lesson that attacks are handed in for: the release and the worked solutions, built from `solutions/`."""

from __future__ import annotations

import copy
import functools
import json
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.engine.grade import Release
from autograder.engine.rebuild import role_of
from autograder.release import authored
from autograder.release.notebook import instructor, students

ROOT = Path(__file__).resolve().parents[2]
ASSIGNMENT = "01_computational_graphs"
UNIT = "computational_graphs"
FILE = f"{ASSIGNMENT}.ipynb"
MARKS = re.compile(r"^\s*### (BEGIN|END) SOLUTION\n?", re.MULTILINE)


@functools.cache
def built() -> dict[str, bytes]:
    """The files of `build/source` and `build/release`, by step."""
    lesson = authored.read(ROOT / "solutions" / f"{ASSIGNMENT}.py", ROOT)
    return {"source": instructor(lesson), "release": students(lesson)}


@functools.cache
def release() -> Release:
    """The lesson as students get it; nobody may change it."""
    return Release(name=ASSIGNMENT, notebook=nbformat.reads(built()["release"].decode(), as_version=4))


@functools.cache
def full() -> dict[str, int]:
    """Full marks by exercise name."""
    return {exercise.name: exercise.points for exercise in release().exercises}


@functools.cache
def solutions() -> dict[str, str]:
    """Source of the worked solution by exercise name."""
    source = nbformat.reads(built()["source"].decode(), as_version=4)
    answers = [cell for cell in source.cells if role_of(cell)[1] == "answer"]
    return {role_of(cell)[0].partition(".")[2]: MARKS.sub("", cell.source) for cell in answers}


def untouched() -> NotebookNode:
    """The release notebook, to be changed."""
    return copy.deepcopy(release().notebook)


def solved(**instead: str) -> NotebookNode:
    """The release with every solution in it, and with these sources in place of some."""
    notebook = untouched()
    for name, source in {**solutions(), **instead}.items():
        find(notebook, f"answer-{name}").source = source
    return notebook


def find(notebook: NotebookNode, cell_id: str) -> NotebookNode:
    """The cell with this id."""
    return next(cell for cell in notebook.cells if cell.id == cell_id)


def to_bytes(notebook: NotebookNode) -> bytes:
    """The file, whatever is in it: nothing is validated."""
    return json.dumps(notebook, indent=1).encode()
