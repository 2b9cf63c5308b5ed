"""Notebooks whose cells are not where, what or as many as they should be."""

from __future__ import annotations

import copy
from collections.abc import Callable

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from attacks.attack import NOTHING, VICTIM, WRONG, Attack, changed
from attacks.lesson import find, solutions

Change = Callable[[NotebookNode], None]
ANSWER, CHECK = f"answer-{VICTIM}", f"check-{VICTIM}"
FORGED = "6"


def _all(*steps: Change) -> Change:
    def change(notebook: NotebookNode) -> None:
        for step in steps:
            step(notebook)

    return change


def _wrong(notebook: NotebookNode) -> None:
    find(notebook, ANSWER).source = WRONG


def _forge_check(notebook: NotebookNode) -> None:
    """A check cell that is a number, and is worth more."""
    cell = find(notebook, CHECK)
    cell.source = FORGED
    cell.outputs = [new_output("execute_result", {"text/plain": FORGED}, execution_count=1)]
    cell.metadata.nbgrader["points"] = 1000


def _copy_check(notebook: NotebookNode) -> None:
    for number in range(3):
        again = copy.deepcopy(find(notebook, CHECK))
        again.update(id=f"copy-{number}", source=FORGED)
        notebook.cells.append(again)


def _copy_answer(source: str, *, seen: bool) -> Change:
    """The answer cell once more, just before the check or at the end: the last one that the check sees counts."""

    def change(notebook: NotebookNode) -> None:
        again = copy.deepcopy(find(notebook, ANSWER))
        again.update(id="copy", source=source)
        notebook.cells.insert(notebook.cells.index(find(notebook, CHECK)) if seen else len(notebook.cells), again)

    return change


def _delete(cell_id: str) -> Change:
    def change(notebook: NotebookNode) -> None:
        notebook.cells.remove(find(notebook, cell_id))

    return change


def _keep(kept: Callable[[NotebookNode], bool]) -> Change:
    def change(notebook: NotebookNode) -> None:
        notebook.cells = [cell for cell in notebook.cells if kept(cell)]

    return change


def _is_code(cell: NotebookNode) -> bool:
    return bool(cell.cell_type == "code")


def _retype(cell_id: str, kind: str) -> Change:
    def change(notebook: NotebookNode) -> None:
        find(notebook, cell_id).cell_type = kind

    return change


def _retype_all(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.cell_type = {"code": "raw", "markdown": "code"}.get(cell.cell_type, "raw")


def _reverse(notebook: NotebookNode) -> None:
    notebook.cells.reverse()


def _swap_roles(notebook: NotebookNode) -> None:
    """Each answer says that it is a check, each check that it is an answer."""
    for cell in notebook.cells:
        role = cell.metadata.get("hpml", {}).get("role")
        if role:
            cell.metadata.hpml["role"] = {"answer": "check", "check": "answer"}[role]


def _one_name(notebook: NotebookNode) -> None:
    """Every cell claims to belong to the same exercise, under one name."""
    for cell in notebook.cells:
        if "hpml" in cell.metadata:
            cell.metadata.hpml["exercise"] = f"computational_graphs.{VICTIM}"
            cell.metadata.nbgrader["grade_id"] = f"check_{VICTIM}"


def _one_id(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.id = "one-id"


def _no_metadata(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.metadata = NotebookNode(nbgrader="none", hpml=3, tags="skip-execution")
        cell.pop("id", None)


def _thousands(notebook: NotebookNode) -> None:
    notebook.cells += [new_code_cell(f"x{number} = {number}", id=f"more-{number}") for number in range(6_000)]


def _claims_grading(notebook: NotebookNode) -> None:
    """Verdicts and a grading record written by the student."""
    find(notebook, CHECK).metadata.hpml["verdict"] = {"points": 1000, "possible": 1000}
    notebook.metadata["hpml"] = {"grading": {"seed": 1, "runner": "sandboxed", "repairs": [], "failed": ""}}


def _takes_the_name(*, seen: bool) -> Change:
    """A cell that uses the answer's name for something else: just before the check, or at the end."""

    def change(notebook: NotebookNode) -> None:
        fake = f"from unittest import mock\n\n{VICTIM} = mock.MagicMock()\ncheck = mock.MagicMock(return_value=6)\n"
        at = notebook.cells.index(find(notebook, CHECK)) if seen else len(notebook.cells)
        notebook.cells.insert(at, new_code_cell(fake, id="fake-1"))

    return change


NO_ANSWER = {VICTIM: 0}

ATTACKS: list[Attack] = [
    changed("forged_check", _all(_wrong, _forge_check), honest=NO_ANSWER),
    changed("copied_check", _all(_wrong, _copy_check), honest=NO_ANSWER),
    changed("copied_answer", _copy_answer(solutions()[VICTIM], seen=True)),
    changed("copied_wrong_answer", _copy_answer(WRONG, seen=True), honest=NO_ANSWER),
    changed("wrong_answer_copied_below", _copy_answer(WRONG, seen=False)),
    changed("deleted_check", _delete(CHECK)),
    changed("deleted_answer", _delete(ANSWER), honest=NO_ANSWER),
    changed("deleted_text", _keep(_is_code)),
    changed("deleted_everything", _keep(lambda cell: False), honest=NOTHING),
    changed("check_turned_into_text", _all(_wrong, _retype(CHECK, "markdown")), honest=NO_ANSWER),
    changed("answer_turned_into_text", _retype(ANSWER, "markdown")),
    changed("every_cell_retyped", _retype_all),
    changed("reversed_order", _reverse),
    changed("swapped_roles", _all(_wrong, _swap_roles), honest=NO_ANSWER),
    changed("one_name_for_all", _all(_wrong, _one_name), honest=NO_ANSWER),
    changed("one_id_for_all", _one_id),
    changed("no_metadata", _no_metadata),
    changed("six_thousand_cells", _thousands, honest=NOTHING),
    changed("forged_grading_record", _all(_wrong, _claims_grading), honest=NO_ANSWER),
    changed("name_taken_by_later_cells", _takes_the_name(seen=False)),
    changed("name_taken_before_the_check", _takes_the_name(seen=True), honest=NO_ANSWER),
]
