"""Submissions that are no notebook, an old one, another's, a huge one; and what lies beside and behind them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output

from attacks import lesson
from attacks.attack import NOTHING, VICTIM, WRONG, Attack, Places, body, raw
from attacks.lesson import ASSIGNMENT, FILE, find, solved, to_bytes

HUGE = 100 * 2**20
OWN_MODULE = """\
open({outside!r}, "w").write("attack")


def __getattr__(name):
    raise RuntimeError("this is not the library")
"""
MODULES = ("torch", "course", "autograder", "numpy", "nbformat", "json", "sitecustomize", "usercustomize", "conftest")
NAMES = (
    *("a b.py", "ünïcode – 名前.txt", "new\nline.ipynb", "-rf", "$(touch x).sh", "a" * 200, "%s%n.json"),
    f"{chr(0x202E)}txt.exe",  # read from right to left
)


def _huge() -> bytes:
    """A valid notebook whose outputs are 100 MB."""
    notebook = solved()
    find(notebook, f"check-{VICTIM}").outputs = [new_output("stream", text="x" * HUGE)]
    return to_bytes(notebook)


def _long_source() -> bytes:
    """Within the size limit, and slow for whatever goes over the text again and again."""
    return to_bytes(solved(**{VICTIM: "async" + " \t" * 3_000_000 + "\n" + "def " * 500_000}))


def _deep_source() -> bytes:
    return to_bytes(solved(**{VICTIM: WRONG.replace("0.5", "(" * 5_000 + "0.5" + ")" * 5_000)}))


def _old() -> bytes:
    """Format 3, with the answers as that format has them."""
    cells = [
        nbformat.v3.new_code_cell(input=source, metadata=dict(find(solved(), f"answer-{name}").metadata))
        for name, source in lesson.solutions().items()
    ]
    return json.dumps(nbformat.v3.new_notebook(worksheets=[nbformat.v3.new_worksheet(cells=cells)])).encode()


def _another() -> bytes:
    """A lesson of a course that is not ours."""
    metadata = {"nbgrader": {"grade_id": "sort", "grade": True, "solution": False, "points": 50, "locked": True}}
    cells = [new_code_cell("def sort(x):\n    return sorted(x)"), new_code_cell("assert sort([1])", metadata=metadata)]
    return to_bytes(new_notebook(cells=cells, metadata={"title": "Algorithms"}))


def _start_here() -> bytes:
    return (lesson.ROOT / "notebooks" / "00_start_here.ipynb").read_bytes()


def _odd(**fields: object) -> bytes:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [], **fields}).encode()


def _modules(folder: Path, places: Places) -> None:
    """Modules that Python would find first, if anything were run in this folder."""
    own = OWN_MODULE.format(outside=places.outside)
    for name in MODULES:
        (folder / f"{name}.py").write_text(own)
    (folder / "torch").mkdir()
    for name in ("torch/__init__.py", "nbgrader_config.py", "ipython_config.py"):
        (folder / name).write_text(own)
    (folder / "lesson.pth").write_text(f"import os; open({places.outside!r}, 'w')\n")


def _links(folder: Path, places: Places) -> None:
    """Links to what the student may not read, under names that might be passed on."""
    (folder / "gradebook.db").symlink_to(places.gradebook)
    (folder / "solution.ipynb").symlink_to(places.solution)
    (folder / "everything").symlink_to("/")
    (folder / "itself").symlink_to(folder)
    (folder / "timestamp.txt").symlink_to(places.other)
    (folder / "nowhere").symlink_to("/nonexistent")
    os.mkfifo(folder / "pipe")


def _is_link(folder: Path, places: Places) -> None:
    """The notebook itself is a link, to a submission that is right."""
    (folder / FILE).unlink()
    (folder / FILE).symlink_to(places.other)


def _is_pipe(folder: Path, places: Places) -> None:
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)


def _folder_is_link(folder: Path, places: Places) -> None:
    """The folder is a link to that of somebody else."""
    (folder / FILE).unlink()
    folder.rmdir()
    folder.symlink_to(Path(places.other).parent)


def _names(folder: Path, places: Places) -> None:
    for name in NAMES:
        (folder / name).write_text("attack")
    (folder / "sub folder\n").mkdir()


def _renamed(folder: Path, places: Places) -> None:
    (folder / FILE).rename(folder / f" {ASSIGNMENT}\n(1).ipynb")


def _whole(name: str, **fields: object) -> Attack:
    return Attack(name=name, make=lambda places: to_bytes(solved()), **fields)  # type: ignore[arg-type]


ATTACKS = [
    raw("no_bytes", lambda: b""),
    raw("no_json", lambda: b"PK\x03\x04 not JSON"),
    raw("half_a_file", lambda: to_bytes(solved())[:8_000]),
    raw("half_a_character", lambda: b'{"cells": "\xff\xfe\xed\xa0\x80"}'),
    raw("utf_16", lambda: to_bytes(solved()).decode().encode("utf-16")),
    raw("a_list", lambda: b"[[], {}]"),
    raw("a_hundred_thousand_brackets", lambda: b"[" * 100_000),
    raw("a_million_brackets", lambda: b'{"a":' * 1_000_000),
    raw("a_number_of_a_million_digits", lambda: b'{"nbformat": ' + b"9" * 1_000_000 + b', "cells": []}'),
    raw("cells_that_are_none", lambda: _odd(cells=[None, 3, "x", [], {"source": {"a": 1}, "metadata": []}] * 100)),
    raw("cells_that_are_text", lambda: _odd(cells="cells")),
    raw("a_format_of_the_future", lambda: _odd(nbformat=10**9)),
    raw("a_format_that_is_text", lambda: _odd(nbformat="four; drop table grade")),
    raw("not_a_number_in_json", lambda: b'{"nbformat": NaN, "cells": [], "metadata": Infinity}'),
    raw("format_2", lambda: _odd(nbformat=2, worksheets=[{"cells": [{"cell_type": "code", "prompt_number": 1}]}])),
    raw("format_3", _old, honest={}),
    raw("another_courses_notebook", _another),
    raw("another_lessons_notebook", _start_here),
    raw("a_hundred_megabytes", _huge, costly=True, heavy=True),
    raw("a_source_of_many_megabytes", _long_source, honest={VICTIM: 0}, costly=True, heavy=True),
    raw("a_source_of_many_brackets", _deep_source, honest={VICTIM: 0}),
    _whole("modules_beside_it", beside=_modules),
    _whole("links_beside_it", beside=_links),
    _whole("names_beside_it", beside=_names),
    _whole("a_link_to_another_submission", beside=_is_link, honest=NOTHING),
    _whole("a_pipe_in_its_place", beside=_is_pipe, honest=NOTHING),
    body("half_a_surrogate_pair", "return '\\ud800', chr(0xD800), chr(0) * 3"),
]

# Only a batch looks for the file: an engine that is given a path has nothing to find.
IN_A_FOLDER = [
    _whole("a_folder_that_is_a_link", beside=_folder_is_link, honest=NOTHING),
    _whole("another_name", beside=_renamed, honest=NOTHING),
]
STUDENTS = ("an na", "änne-名", "-o", "a'; drop table student; --", "{student_id}", "%d", "<b>bob<b>", "..x")
