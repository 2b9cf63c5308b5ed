"""A class of sample submissions to one lesson: everything that a grader should have met before the first real one.

    untouched, solved, half, mis_<misconception> (all else solved),
    unreadable, deleted_cell, copied_cell           --make--> build/submitted/<student>/<lesson>/<lesson>.ipynb

Solutions come from nbgrader's source notebook, misconceptions from the bank: the witness's own source with all that it
needs, so that it runs in a notebook.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder import bank as banks
from autograder import edits
from autograder.engine.cells import role_of
from course.errors import CourseError
from course.syllabus import find_unit

PREFIX = "mis_"
SMALL = 20  # students of a class that shows every kind
Sources = dict[str, str]  # answer cell's source by exercise id


def make(root: Path, assignment: str, *, everyone: bool = False) -> tuple[str, ...]:
    """Write the class of `assignment` below `root` (which holds source/ and release/); returns the students' ids.

    everyone  a student for each known misconception, and not only for some of each exercise
    Files of an earlier class are replaced. Raises CourseError where the lesson has not been built.
    """
    release, solved = _read(root, "release", assignment), _solutions(_read(root, "source", assignment))
    submissions = _ordinary(release, solved) | _damaged(release, solved)
    submissions |= _misconceived(release, solved, assignment, None if everyone else SMALL - len(submissions))
    for student, data in submissions.items():
        folder = root / "submitted" / student / assignment
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{assignment}.ipynb").write_bytes(data)
    return tuple(submissions)


def _read(root: Path, step: str, assignment: str) -> NotebookNode:
    path = root / step / assignment / f"{assignment}.ipynb"
    if not path.exists():
        raise CourseError(f"{path} must exist before a class can be made; run `autograder build`")
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def _solutions(source: NotebookNode) -> Sources:
    """The worked solutions, without nbgrader's marks."""
    mark = re.compile(r"^\s*### (BEGIN|END) SOLUTION\n?", re.MULTILINE)
    return {role_of(cell)[0]: mark.sub("", cell.source) for cell in source.cells if role_of(cell)[1] == "answer"}


def _filled(release: NotebookNode, sources: Sources) -> NotebookNode:
    """The release with these answers in it."""
    notebook = copy.deepcopy(release)
    for cell in notebook.cells:
        exercise, role = role_of(cell)
        if role == "answer" and exercise in sources:
            cell.source = sources[exercise]
    return notebook


def _bytes(notebook: NotebookNode) -> bytes:
    return str(nbformat.writes(notebook)).encode()  # type: ignore[no-untyped-call]


# --- kinds of students --------------------------------------------------------------------------------


def _ordinary(release: NotebookNode, solved: Sources) -> dict[str, bytes]:
    half = dict(list(solved.items())[: len(solved) // 2])
    given = {"untouched": {}, "solved": solved, "half": half}
    return {student: _bytes(_filled(release, sources)) for student, sources in given.items()}


def _misconceived(release: NotebookNode, solved: Sources, assignment: str, places: int | None) -> dict[str, bytes]:
    """One student per misconception of the unit: the first of each exercise, then the second of each, and so on, for as
    many as there are places.

    The exercise stands in the id where a name comes twice.
    """
    unit = banks.load_unit(find_unit(assignment).slug)
    known = [(turn, bank, each) for bank in unit for turn, each in enumerate(bank.misconceptions)]
    names = Counter(each.name for _, _, each in known)
    made = {}
    for _, bank, each in sorted(known, key=lambda row: row[0])[:places]:
        exercise = bank.exercise
        student = each.name if names[each.name] == 1 else f"{exercise.name}_{each.name}"
        wrong = {**solved, exercise.id: edits.cell(exercise.name, each.witnesses[0])}
        made[PREFIX + student] = _bytes(_filled(release, wrong))
    return made


def _damaged(release: NotebookNode, solved: Sources) -> dict[str, bytes]:
    """A file cut off in the middle, a check cell deleted, an answer and its check cell copied to the end."""
    whole = _filled(release, solved)
    checks = [number for number, cell in enumerate(whole.cells) if role_of(cell)[1] == "check"]
    second = checks[1 % len(checks)]
    deleted, copied = copy.deepcopy(whole), copy.deepcopy(whole)
    del deleted.cells[second]
    answer = next(cell for cell in whole.cells if role_of(cell) == (role_of(whole.cells[second])[0], "answer"))
    for number, cell in enumerate((answer, whole.cells[second])):
        copied.cells.append(copy.deepcopy(cell))
        copied.cells[-1].id = f"copy-{number}"
    data = _bytes(whole)
    return {"unreadable": data[: len(data) // 2], "deleted_cell": _bytes(deleted), "copied_cell": _bytes(copied)}
