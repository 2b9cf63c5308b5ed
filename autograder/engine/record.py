"""The graded notebook: what was found stands in it, for people and to be read back.

    Graded --show--> notebook: a table below each check cell, the verdict in its metadata --read_back--> Graded
                     what the display run showed, below the other code cells

The output of a check cell is written here and never executed: one result, whose plain text is the number of points
and whose HTML is the verdict's table. The seed lies in the metadata only, which no feedback page shows.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_markdown_cell, new_output

from autograder.engine.cells import role_of
from autograder.engine.grade import Graded
from autograder.engine.outputs import Outputs
from course.judging.verdict import Diagnosis, Finding, Verdict
from course.notebook.report import to_html
from course.performing.exercise import Failure
from course.tree import pack, unpack


def show(graded: Graded) -> NotebookNode:
    """The notebook with every verdict in it, and above all cells what was repaired or why nothing was read."""
    notebook = copy.deepcopy(graded.notebook)
    verdicts = {verdict.exercise: verdict for verdict in graded.verdicts}
    _put_displayed(notebook, graded.displayed)
    for cell in notebook.cells:
        exercise, role = role_of(cell)
        if role == "check" and exercise in verdicts:
            cell.outputs = [_output(verdicts[exercise])]
            cell.metadata.hpml["verdict"] = _pack(verdicts[exercise])
    notebook.metadata.setdefault("hpml", {})["grading"] = {
        "seed": str(graded.seed),  # as a number, JupyterLab would round it
        "runner": graded.runner,
        "repairs": list(graded.repairs),
        "problem": graded.problem,
        "failed": graded.failed,
        "seconds": round(graded.seconds, 3),
    }
    notes = _notes(graded)
    if notes:
        metadata = {"hpml": {"role": "notes"}}
        notebook.cells.insert(0, new_markdown_cell(notes, id="grading-notes", metadata=metadata))  # type: ignore[no-untyped-call]
    return notebook


def read_file(student: str, path: Path) -> Graded | None:
    """What `show` wrote into the file at `path`; None where there is no such notebook, or a damaged one."""
    try:
        return read_back(student, from_dict(json.loads(path.read_bytes())))  # type: ignore[no-untyped-call]
    except (OSError, ValueError, RecursionError):
        return None


def read_back(student: str, notebook: NotebookNode) -> Graded | None:
    """What `show` wrote; None for a notebook that it did not write, or that was damaged since then."""
    try:
        grading = notebook.metadata["hpml"]["grading"]
        graded = Graded(
            student=student,
            notebook=notebook,
            verdicts=tuple(
                _unpack(cell.metadata.hpml.verdict) for cell in notebook.cells if role_of(cell)[1] == "check"
            ),
            seed=int(grading["seed"]),
            runner=grading["runner"],
            repairs=tuple(grading["repairs"]),
            problem=grading["problem"],
            failed=grading["failed"],
            seconds=grading["seconds"],
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return graded if _fits(graded, Graded) else None


def _put_displayed(notebook: NotebookNode, displayed: Outputs) -> None:
    """What the display run showed, numbered as it ran: check cells and empty ones were left out."""
    number = 0
    for cell, outputs in zip([each for each in notebook.cells if each.cell_type == "code"], displayed, strict=False):
        if role_of(cell)[1] != "check" and cell.source.strip():
            number += 1
            cell.outputs, cell.execution_count = [from_dict(output) for output in outputs], number  # type: ignore[no-untyped-call]


def _output(verdict: Verdict) -> NotebookNode:
    data = {"text/plain": str(verdict.points), "text/html": to_html(verdict)}
    output: NotebookNode = new_output("execute_result", data, execution_count=1)  # type: ignore[no-untyped-call]
    return output


def _notes(graded: Graded) -> str:
    """Markdown made of our own sentences; what may hold a student's words is shown letter by letter."""
    parts = []
    if graded.failed:
        parts.append("**This submission was not graded**, because grading broke. Your teachers know:")
        parts.append(f"    {' '.join(graded.failed.split())}")
    if graded.problem:
        parts.append("**The submitted file could not be read** and was graded as untouched:")
        parts.append(f"    {' '.join(graded.problem.split())}")
    if graded.repairs:
        parts.append("**Before grading, the notebook was rebuilt from the released one:**")
        parts.append("\n".join(f"- {repair}" for repair in graded.repairs))
    return "\n\n".join(parts)


def _pack(verdict: Verdict) -> Any:
    """JSON in which inf and nan have a form of their own."""
    lists_for_tuples = json.loads(json.dumps(dataclasses.asdict(verdict)))
    return pack(lists_for_tuples, {})


def _unpack(packed: Any) -> Verdict:
    fields: Any = unpack(packed, {})
    failure, diagnosis = fields["failure"], fields["diagnosis"]
    fields |= {
        "findings": tuple(_finding(finding) for finding in fields["findings"]),
        "diagnosis": Diagnosis(**diagnosis) if diagnosis else None,
        "failure": Failure(**{**failure, "where": tuple(failure["where"])}) if failure else None,
    }
    return Verdict(**fields)


def _finding(fields: dict[str, Any]) -> Finding:
    measured = fields["measured"]
    return Finding(**{**fields, "measured": tuple(measured) if measured else None})


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is what its annotation says, to the last part of it: a damaged file may hold anything."""
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(each, parts[0]) for each in value)
    if parts:  # one of several kinds
        return any(_fits(value, each) for each in parts)
    if not isinstance(value, (int, float) if kind is float else kind):
        return False
    names = _hints(kind) if dataclasses.is_dataclass(value) else {}
    return all(_fits(getattr(value, name), each) for name, each in names.items())


_hints = functools.cache(get_type_hints)
