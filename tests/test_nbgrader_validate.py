"""`nbgrader validate`, and JupyterLab's button of that name, tell students what would lose points."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbgrader.validator import Validator
from nbgrader_buttons import jupyter_with
from small_class import CROSS_TERM_DROPPED, POINTS, RIGHT, find, notebook, stub

RAISES = "def hvp(f, x, v):\n    raise"
NO_CODE = "hvp = None"
# exercise, its maximum in the check cell, answer, whether it fails; nbgrader's own releases have 0 for a bonus
ROWS = [
    ("quadratic_grads", POINTS["quadratic_grads"], RIGHT["quadratic_grads"], False),
    ("quadratic_grads", POINTS["quadratic_grads"], CROSS_TERM_DROPPED, True),
    *[("hvp", maximum, RIGHT["hvp"], False) for maximum in (0, POINTS["hvp"])],
    *[("hvp", maximum, stub("hvp"), False) for maximum in (0, POINTS["hvp"])],
    *[("hvp", maximum, RAISES, False) for maximum in (0, POINTS["hvp"])],
    *[("hvp", maximum, NO_CODE, True) for maximum in (0, POINTS["hvp"])],
]


def checked(number: int, name: str, maximum: int) -> NotebookNode:
    """A check cell of a row."""
    cell = find(notebook(), f"check-{name}")
    cell.id, cell.source = f"row-{number}", f"check({name})  # row {number}"
    cell.metadata.nbgrader |= {"grade_id": cell.id, "points": maximum}
    return cell


def by_command(book: Path) -> dict:
    """What `nbgrader validate` finds."""
    return Validator().validate(str(book))


def by_button(book: Path) -> dict:
    """What JupyterLab's *Validate* shows: what the server answers that the button asks."""

    async def press() -> dict:
        async with jupyter_with("validate_assignment", book.parent) as post:
            return await post("assignments/validate", path=book.name)

    answer = asyncio.run(press())
    assert answer["success"], answer["value"]
    return answer["value"]


@pytest.fixture(scope="module", params=[by_command, by_button])
def failed(request, tmp_path_factory):
    """The check cells that nbgrader says fail, of one notebook with all rows."""
    book = notebook()
    book.cells = [find(book, "imports")]
    for number, (name, maximum, answer, _) in enumerate(ROWS):
        book.cells += [nbformat.v4.new_code_cell(answer), checked(number, name, maximum)]
    path = tmp_path_factory.mktemp("validated") / "rows.ipynb"
    nbformat.write(book, path)
    return [each["source"] for each in request.param(path).get("failed", [])]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_what_would_lose_points_fails_and_a_bonus_only_where_its_cell_does(failed, number):
    name, _, _, fails = ROWS[number]
    assert (f"check({name})  # row {number}" in failed) == fails
