"""The small lesson that attacks are handed in for: cells and worked solutions of lesson 01, built as that is.

An honest student has solved two of its exercises, one of plain numbers and one of tensors. The others are there for
attacks that need an oracle, a ledger or more time; only such an attack writes in one of them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.engine.cells import role_of
from autograder.engine.grade import Release
from autograder.release import authored
from autograder.release.notebook import instructor, students

ROOT = Path(__file__).resolve().parents[2]
ASSIGNMENT = "01_computational_graphs"
UNIT = "computational_graphs"
FILE = f"{ASSIGNMENT}.ipynb"
SOLVED = ("quadratic_grads", "linear_vjp")
UNTOUCHED = ("backward", "SaveLess", "accumulate_gradients", "hvp")
DEMO = 'print("shown")'
MARKS = re.compile(r"^\s*### (BEGIN|END) SOLUTION\n?", re.MULTILINE)


@functools.cache
def built() -> dict[str, bytes]:
    """The files of `build/source` and `build/release`, by step."""
    whole = authored.read(ROOT / "solutions" / f"{ASSIGNMENT}.py", ROOT)
    title = dataclasses.replace(whole.cells[0], source="# A small lesson")
    demo = dataclasses.replace(title, role="code", source=DEMO)
    kept = (each for each in whole.cells if each.entry in (*SOLVED, *UNTOUCHED))
    lesson = dataclasses.replace(whole, cells=(title, demo, *kept))
    return {"source": instructor(lesson), "release": students(lesson)}


@functools.cache
def release() -> Release:
    """The lesson as students get it; nobody may change it."""
    return Release(name=ASSIGNMENT, notebook=nbformat.reads(built()["release"].decode(), as_version=4))


@functools.cache
def honest() -> dict[str, int]:
    """What an honest student has, by exercise name: full marks for what was solved."""
    return {each.name: each.points if each.name in SOLVED else 0 for each in release().exercises}


@functools.cache
def solutions() -> dict[str, str]:
    """Sources of the worked solutions that an honest student hands in, by exercise name."""
    source = nbformat.reads(built()["source"].decode(), as_version=4)
    answers = [cell for cell in source.cells if role_of(cell)[1] == "answer"]
    sources = {role_of(cell)[0].partition(".")[2]: MARKS.sub("", cell.source) for cell in answers}
    return {name: sources[name] for name in SOLVED}


def untouched() -> NotebookNode:
    """The release notebook, to be changed."""
    return copy.deepcopy(release().notebook)


def solved(**instead: str) -> NotebookNode:
    """The release with the honest student's solutions, and with these sources in place of some or beside them."""
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
