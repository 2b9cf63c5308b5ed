"""A small lesson of three real exercises, and students who hand it in: what tests of grading work on.

quadratic_grads (with a wrong answer that is known), hinge_backward, and the bonus exercise hvp.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader import api
from nbgrader.api import Gradebook

from autograder.engine.grade import Release
from course import exercises

# A new gradebook asks for it, and alembic takes seconds to say what is the same in each.
api.get_alembic_version = functools.cache(api.get_alembic_version)

ASSIGNMENT = "01_computational_graphs"
UNIT = "computational_graphs"
NAMES = ("quadratic_grads", "hinge_backward", "hvp")
POINTS = {name: exercises.load(name).points for name in NAMES}

RIGHT = {
    "quadratic_grads": """\
def quadratic_grads(a, b, c, x, y):
    value = a * x**2 + b * x * y + c * y**2
    return value, 2 * a * x + b * y, b * x + 2 * c * y
""",
    "hinge_backward": """\
def hinge_backward(w, x, b, y):
    on = sum(p * q for p, q in zip(w, x)) + b > 0
    dz = -1.0 if on else 0.0
    return [dz * q for q in x], [dz * p for p in w], dz, 1.0, dz
""",
    "hvp": """\
import torch


def hvp(f, x, v):
    x = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(f(x), x, create_graph=True)
    (product,) = torch.autograd.grad(grad, x, v, allow_unused=True) if grad.requires_grad else (None,)
    return torch.zeros_like(x) if product is None else product
""",
}
CROSS_TERM_DROPPED = """\
def quadratic_grads(a, b, c, x, y):
    return a * x**2 + b * x * y + c * y**2, 2 * a * x, 2 * c * y
"""


def stub(name: str) -> str:
    """What students find in an answer cell."""
    return f'def {name}(*args):\n    """The task."""\n    raise NotImplementedError("{UNIT}.{name}")'


def marked(name: str) -> str:
    """What nbgrader's source holds in an answer cell."""
    head, *body = RIGHT[name].rstrip().split("\n")[-4:] if name != "hvp" else ["def hvp(f, x, v):", "    return v"]
    return "\n".join([head, "    ### BEGIN SOLUTION", *body, "    ### END SOLUTION"])


def notebook(sources: dict[str, str] | None = None, write=stub) -> NotebookNode:
    """The release notebook, with these sources in its answer cells."""
    cells = [
        new_markdown_cell("# A lesson", id="title"),
        new_code_cell("from course import check\n\nimport math", id="imports"),
    ]
    for name in NAMES:
        cells.append(_cell(name, "answer", (sources or {}).get(name, write(name)), grade=False, solution=True))
        cells.append(_cell(name, "check", f"check({name})", grade=True, solution=False, points=POINTS[name]))
    cells.append(new_code_cell('demo = print("shown")', id="demo"))
    return new_notebook(
        cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "P", "language": "python"}}
    )


def _cell(name: str, role: str, source: str, **nbgrader) -> NotebookNode:
    metadata = {
        "hpml": {"exercise": f"{UNIT}.{name}", "role": role},
        "nbgrader": {
            "grade_id": f"check_{name}" if role == "check" else name,
            "locked": role == "check",
            "schema_version": 3,
            "task": False,
            **nbgrader,
        },
    }
    return new_code_cell(source, id=f"{role}-{name}", metadata=metadata)


def release() -> Release:
    """The lesson as students get it."""
    return Release(name=ASSIGNMENT, notebook=notebook())


def find(book: NotebookNode, cell_id: str) -> NotebookNode:
    """The cell with this id."""
    return next(cell for cell in book.cells if cell.id == cell_id)


def without(book: NotebookNode, cell_id: str) -> NotebookNode:
    """A copy of the notebook without one cell."""
    shorter = copy.deepcopy(book)
    shorter.cells = [cell for cell in shorter.cells if cell.id != cell_id]
    return shorter


@functools.cache
def empty_gradebook() -> bytes:
    """A new gradebook."""
    with tempfile.TemporaryDirectory() as folder:
        Gradebook(f"sqlite:///{folder}/gradebook.db").close()
        return Path(folder, "gradebook.db").read_bytes()


def publish(root: Path, *, gradebook: bool = False) -> None:
    """Put the lesson where nbgrader looks for releases; and an empty gradebook beside it, or none."""
    if gradebook:
        root.mkdir(parents=True, exist_ok=True)
        (root / "gradebook.db").write_bytes(empty_gradebook())
    _write(root / "release" / ASSIGNMENT, nbformat.writes(notebook()).encode())


def hand_in(root: Path, student: str, submission: NotebookNode | bytes | None, stamp: str = "") -> None:
    """Put a student's file where nbgrader looks for submissions; None hands in an empty folder."""
    folder = root / "submitted" / student / ASSIGNMENT
    folder.mkdir(parents=True, exist_ok=True)
    if stamp:
        (folder / "timestamp.txt").write_text(stamp)
    if submission is not None:
        _write(folder, submission if isinstance(submission, bytes) else nbformat.writes(submission).encode())


def _write(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{ASSIGNMENT}.ipynb").write_bytes(data)
