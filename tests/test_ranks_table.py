"""Each row of the table "What runs unchanged" in docs/ranks.md names tests that show it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_public_style

DOCUMENT = Path(__file__).parent.parent / "docs" / "ranks.md"
LEFT_OUT = {"skip", "xfail"}


def rows() -> dict[str, str]:
    """What runs, and which tests are said to show it."""
    (table,) = re.findall(r"(?m)^\| what \| where \| how \| shown by \|\n\| .*\n((?:\| .*\n)+)", DOCUMENT.read_text())
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    return {row[0]: row[-1] for row in cells}


def named(shown: str) -> list[tuple[str, str]]:
    """Files and names of a cell."""
    found = re.findall(r"`(test_\w+)\.py: ([^`]+)`", shown)
    return [(file, name.strip()) for file, names in found for name in names.split(",")]


def offered_by(file: str) -> Iterator[str]:
    """The names of its tests, and of the cases of those that have some; not of what no run makes."""
    for name, value in vars(importlib.import_module(file)).items():
        marks = getattr(value, "pytestmark", [])
        if name.startswith("test_") and callable(value) and not LEFT_OUT & {mark.name for mark in marks}:
            yield name
            for cases in (mark.args[1] for mark in marks if mark.name == "parametrize"):
                yield from (case for case in cases if isinstance(case, str))


def missing(cell: str) -> list[str]:
    """The names of a cell that no test has."""
    return [name for file, name in named(cell) if name not in set(offered_by(file))]


@pytest.mark.parametrize("what", rows())
def test_a_row_names_tests_that_are_there(what):
    assert named(rows()[what])
    assert missing(rows()[what]) == []


def test_a_name_without_a_test_is_seen():
    assert missing("`test_public_style.py: ddp, no_such_program`") == ["no_such_program"]


def test_every_program_for_torch_has_its_row():
    shown = {name for cell in rows().values() for file, name in named(cell) if file == "test_public_style"}
    assert set(test_public_style.PROGRAMS) <= shown
