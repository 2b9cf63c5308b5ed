"""Where stock nbgrader's CPU seconds go: one notebook, cell by cell, in a kernel whose CPU clock is read from /proc."""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbformat
from measuring import environment
from nbformat import NotebookNode

from autograder.engine.cells import role_of

PARTS = ("kernel start", "imports", "the lesson's own cells", "answer cells", "grade cells")


def shares(path: Path) -> dict[str, float]:
    """CPU seconds of the kernel by part, for a notebook of the stock course folder after `nbgrader autograde`."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = nbclient.NotebookClient(
        notebook, timeout=60, allow_errors=True, resources={"metadata": {"path": path.parent}}
    )
    spent = dict.fromkeys(PARTS, 0.0)
    with client.setup_kernel(env=environment(), cwd=str(path.parent)):
        kernel = client.km.provisioner.pid  # type: ignore[union-attr]
        clock = spent["kernel start"] = _cpu(kernel)
        first = next(index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code")
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
            now = _cpu(kernel)
            spent["imports" if index <= first + 1 else _part(cell)] += now - clock
            clock = now
    return spent


def _part(cell: NotebookNode) -> str:
    return {"answer": "answer cells", "check": "grade cells"}.get(role_of(cell)[1], "the lesson's own cells")


def _cpu(pid: int) -> float:
    """User and system seconds of a process and of its children, in steps of 0.01 s; see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) / os.sysconf("SC_CLK_TCK")
