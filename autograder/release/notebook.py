"""From a lesson to its two notebooks, byte for byte the same whenever the lesson is the same.

    Lesson --students-->   stubs, no outputs: what students open, and what nbgrader would release
           --instructor--> worked solutions between nbgrader's marks: nbgrader's `source`

Numbers (points, minutes, difficulty) come from the exercise and the syllabus. Cells carry nbgrader's metadata
(schema version 3 of nbgrader 0.9.6), and ours under `hpml`, by which answers are found where nbgrader's is gone:

    {"hpml": {"exercise": "computational_graphs.backward", "role": "answer"}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from autograder.release.authored import Cell, Lesson
from autograder.release.stub import marked, stub
from course import exercises
from course.performing.exercise import Exercise

Json: TypeAlias = dict[str, Any]

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def students(lesson: Lesson) -> bytes:
    """The notebook that students get: answers are stubs, locked cells cannot be edited in JupyterLab."""
    cells = _cells(lesson, lambda cell, exercise: stub(cell, exercise.id))
    for cell in cells:
        if "nbgrader" in cell["metadata"]:
            _lock(cell)
    return _bytes(lesson, cells)


def instructor(lesson: Lesson) -> bytes:
    """The notebook of nbgrader's `source` folder: it runs, and `nbgrader generate_assignment` takes it."""
    return _bytes(lesson, _cells(lesson, lambda cell, exercise: marked(cell)))


def _bytes(lesson: Lesson, cells: list[Json]) -> bytes:
    """The notebook as Jupyter itself writes it: nbformat 4.5, keys sorted, one line of source per line."""
    notebook = {
        "cells": [{**cell, "source": cell["source"].splitlines(keepends=True)} for cell in cells],
        "metadata": {"hpml": {"unit": lesson.unit.slug}, "kernelspec": KERNEL, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _cells(lesson: Lesson, write: Callable[[Cell, Exercise], str]) -> list[Json]:
    made: list[Json] = []
    for cell in lesson.cells:
        if cell.role in ("text", "code"):
            made.append(_plain_cell(cell, {each["id"] for each in made}))
            continue
        exercise = exercises.load(cell.entry)
        if cell.role == "answer":
            made += [_text(heading(exercise), f"heading-{exercise.name}", {}), _answer(exercise, write(cell, exercise))]
        else:
            made.append(_check(exercise, cell.source))
    return made


def _text(source: str, name: str, metadata: Json) -> Json:
    return {"cell_type": "markdown", "id": name, "metadata": metadata, "source": source}


def _code(source: str, name: str, metadata: Json) -> Json:
    cell = {"cell_type": "code", "id": name, "metadata": metadata, "source": source}
    return {**cell, "execution_count": None, "outputs": []}


def _plain_cell(cell: Cell, taken: set[str]) -> Json:
    """Text or code as written, without nbgrader's metadata: students may change it, and write notes beside it."""
    make = _text if cell.role == "text" else _code
    return make(cell.source, _id_of_content(cell, taken), cell.metadata)


def _id_of_content(cell: Cell, taken: set[str]) -> str:
    """A cell id that an insertion elsewhere does not change; equal cells are numbered."""
    stem = f"{cell.role}-{hashlib.sha256(cell.source.encode()).hexdigest()[:8]}"
    repeats = sum(each.startswith(stem) for each in taken)
    return f"{stem}-{repeats + 1}" if repeats else stem


def heading(exercise: Exercise) -> str:
    """What stands above an exercise: its name and its numbers, so that no author types them."""
    entry = exercise.entry
    kind = "Bonus exercise" if entry.bonus else "Exercise"
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    said = f"{points}, about {entry.minutes} minutes, difficulty {entry.difficulty} of 5."
    if exercise.removes:
        said += f" Not to be used: {', '.join(f'`{module}`' for module in exercise.removes)}."
    return f"### {kind}: `{exercise.name}`\n\n{said}"


def _answer(exercise: Exercise, source: str) -> Json:
    grading = {"grade": False, "grade_id": exercise.id.replace(".", "-"), "locked": False, "solution": True}
    return _exercise_cell(exercise, "answer", source, grading)


def _check(exercise: Exercise, source: str) -> Json:
    grading = {"grade": True, "grade_id": f"check_{exercise.name}", "locked": True, "solution": False}
    return _exercise_cell(exercise, "check", source, {**grading, "points": exercise.points})


def _exercise_cell(exercise: Exercise, role: str, source: str, grading: Json) -> Json:
    metadata = {
        "hpml": {"exercise": exercise.id, "role": role},
        "nbgrader": {**grading, "schema_version": 3, "task": False},
    }
    return _code(source, f"{role}-{exercise.name}", metadata)


def _lock(cell: Json) -> None:
    """What nbgrader's LockCells and ComputeChecksums do to a cell on its way from `source` to `release`."""
    grading = cell["metadata"]["nbgrader"]
    cell["metadata"]["deletable"] = False
    if grading["locked"]:
        cell["metadata"]["editable"] = False
    grading["cell_type"] = cell["cell_type"]
    grading["checksum"] = _checksum(cell["source"], grading)


def _checksum(source: str, grading: Json) -> str:
    """nbgrader's own md5 of a cell, by which `nbgrader validate` tells a student that a check was changed."""
    parts = [source, grading["cell_type"], *[str(grading[key]) for key in ("grade", "solution", "locked")]]
    parts += [grading["grade_id"], *([str(float(grading["points"]))] if grading["grade"] else [])]
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()
