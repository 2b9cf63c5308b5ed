"""A class of sample submissions to one lesson: everything that a grader should have met before the first real one.

    untouched, solved, half, mis_<misconception> for each (all else solved),
    unreadable, deleted_cell, copied_cell           --make--> build/submitted/<student>/<lesson>/<lesson>.ipynb

Solutions come from nbgrader's source notebook, misconceptions from the bank: the witness's own source with what it
needs of its module, so that it runs in a notebook.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import sys
from collections import Counter
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder import bank as banks
from autograder.bank import Bank, Misconception
from autograder.engine.rebuild import role_of
from course.errors import CourseError
from course.performing.cells import source_of
from course.performing.exercise import Answer
from course.syllabus import find_unit

PREFIX = "mis_"
SPOILS = """

import copy

_right = {name}


def _spoil(argument):
    if isinstance(argument, (list, tuple)):
        if isinstance(argument, list):
            argument[:] = [value + 1.0 if isinstance(value, float) else value for value in argument]
        for value in argument:
            _spoil(value)
    elif hasattr(argument, "add_") and argument.is_floating_point():
        argument.add_(1.0)


def {name}(*args):
    result = copy.deepcopy(_right(*args))
    for argument in args:
        _spoil(argument)
    return result
"""

Sources = dict[str, str]  # answer cell's source by exercise id


def make(root: Path, assignment: str) -> tuple[str, ...]:
    """Write the class of `assignment` below `root` (which holds source/ and release/); returns the students' ids.

    Files of an earlier class are replaced. Raises CourseError where the lesson has not been built.
    """
    release, solved = _read(root, "release", assignment), _solutions(_read(root, "source", assignment))
    submissions = {
        **_ordinary(release, solved),
        **_misconceived(release, solved, assignment),
        **_damaged(release, solved),
    }
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


def _misconceived(release: NotebookNode, solved: Sources, assignment: str) -> dict[str, bytes]:
    """One student per misconception of the unit; the exercise stands in the id where a name comes twice."""
    known = [(bank, each) for bank in banks.load_unit(find_unit(assignment).slug) for each in bank.misconceptions]
    names = Counter(each.name for _, each in known)
    made = {}
    for bank, each in known:
        exercise = bank.exercise
        student = each.name if names[each.name] == 1 else f"{exercise.name}_{each.name}"
        wrong = {**solved, exercise.id: _wrong(bank, each, solved[exercise.id])}
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


# --- a misconception as a student would hand it in ------------------------------------------------------


def _wrong(bank: Bank, misconception: Misconception, solved: str) -> str:
    """Source that defines the exercise's name as the misconception's first witness."""
    witness, name = misconception.witnesses[0], bank.exercise.name
    if witness.__module__ == banks.__name__:  # made by the bank: a right answer that spoils its arguments
        return solved + SPOILS.format(name=name)
    module = inspect.getsource(sys.modules[witness.__module__])
    outer = witness.__qualname__.partition(".")[0]
    tree = ast.parse(source_of(module, outer))
    if witness.__qualname__ == outer:
        source = ast.unparse(_Rename({name: f"right_{name}", outer: name}).visit(tree))
    else:  # made by a function of the module: call it the same way
        source = ast.unparse(_Rename({name: f"right_{name}"}).visit(tree))
        source += f"\n\n{name} = {outer}({_arguments(witness)})"
    future = "from __future__ import annotations\n\n"
    return (future if future.strip() in module else "") + source


class _Rename(ast.NodeTransformer):
    """Renames what is defined, imported and used; a name that is imported keeps its module's spelling."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """A use, or an assignment."""
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_alias(self, node: ast.alias) -> ast.alias:
        """`import a` as `import a as b`."""
        bound = node.asname or node.name
        if bound in self.names:
            node.asname = self.names[bound]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function and what is in it."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class and what is in it."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)


def _arguments(witness: Answer) -> str:
    """The closed-over values as keyword arguments. Raises CourseError where they cannot be written down."""
    values = inspect.getclosurevars(witness).nonlocals
    try:
        for value in values.values():
            ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        raise CourseError(
            f"{witness.__module__}.{witness.__qualname__} closes over values that have no source: {values}; "
            "write the witness as a function of its own"
        ) from None
    return ", ".join(f"{key}={value!r}" for key, value in values.items())
