"""Reading an authored lesson: `solutions/NN_slug.py`, jupytext's percent format.

    # %% [markdown]     text
    # %%                code that students see as it is
    # %% exercise       imports, then one def or class: the worked solution
    # %%                check(entry), right after its exercise

    file --read--> Lesson of Cells, each with its role and the line it begins at

The marker is all that an author types; what else a notebook needs is derived in `notebook.py`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jupytext
from IPython.core.inputtransformer2 import TransformerManager

from autograder.release.errors import AuthorError
from course.errors import UnknownExercise
from course.syllabus import Unit, find_unit

Role: TypeAlias = Literal["text", "code", "answer", "check"]

MARKER = "exercise"
CELL_START = re.compile(r"#\s*%%(\s|%|$)")
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

JUPYTEXT_KEYS = {"title", "cell_depth", "cell_marker", "lines_to_next_cell", "lines_to_end_of_cell_marker"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a lesson.

    line      number of the source's first line in the file
    entry     the exercise's entry name, of an answer or a check
    metadata  what the author wrote into the cell's header (tags); empty for answers and checks
    """

    role: Role
    source: str
    file: str
    line: int
    entry: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def mistake(self, sentence: str, line: int = 1) -> AuthorError:
        """The error that stands in line `line` (from 1) of this cell."""
        return AuthorError(self.file, self.line + line - 1, sentence)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """An authored lesson: its unit and its cells, in order."""

    unit: Unit
    file: str
    cells: tuple[Cell, ...]

    @property
    def answers(self) -> tuple[Cell, ...]:
        """The exercise cells, in order."""
        return tuple(cell for cell in self.cells if cell.role == "answer")


def read(path: Path, root: Path) -> Lesson:
    """The lesson in `path`, files named relative to `root`. Raises AuthorError with file and line."""
    file = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    found = jupytext.reads(text, fmt="py:percent").cells
    starts = [number for number, line in enumerate(text.split("\n"), 1) if CELL_START.match(line)]
    if len(found) != len(starts):
        raise AuthorError(
            file,
            starts[0] if starts else 1,
            f"every cell must begin with a line `# %%`, but {len(starts)} such lines make {len(found)} cells; "
            "look for text before the first of them, or for one inside a string",
        )
    cells = tuple(_cell(raw, file, start) for raw, start in zip(found, starts, strict=True))
    return Lesson(unit=_unit(path, file), file=file, cells=cells)


def _unit(path: Path, file: str) -> Unit:
    try:
        unit = find_unit(path.stem)
    except UnknownExercise as error:
        raise AuthorError(file, 1, f"a lesson must be named after its unit, but {error}") from None
    if unit.notebook != path.stem:
        raise AuthorError(file, 1, f"the lesson of {unit.slug} must be named {unit.notebook}.py, got {path.name}")
    return unit


def _cell(raw: Any, file: str, start: int) -> Cell:
    source = raw.source.lstrip("\n")
    line = start + 1 + len(raw.source) - len(source)
    title = raw.metadata.get("title", "")
    metadata = {key: value for key, value in raw.metadata.items() if key not in JUPYTEXT_KEYS}
    plain = Cell(role="text", source=source, file=file, line=line, metadata=metadata)
    if raw.cell_type not in ("code", "markdown"):
        raise AuthorError(file, start, f"a cell must be code or [markdown], got [{raw.cell_type}]")
    if title not in ("", MARKER) or (title and raw.cell_type != "code"):
        raise AuthorError(file, start, f"a code cell may be marked `{MARKER}` and no cell otherwise, got `{title}`")
    if raw.cell_type == "markdown":
        return plain
    if title == MARKER:
        return Cell(role="answer", source=source, file=file, line=line, entry=_entry_of_answer(plain))
    code = Cell(role="code", source=source, file=file, line=line, metadata=metadata)
    checked = _entry_of_check(code)
    return Cell(role="check", source=source, file=file, line=line, entry=checked) if checked else code


def _entry_of_answer(cell: Cell) -> str:
    """The name of the one def or class. Raises AuthorError where the cell holds anything else."""
    statements = parse(cell, magics=False).body
    for index, statement in enumerate(statements):
        last = index == len(statements) - 1
        if not isinstance(statement, Definition if last else (ast.Import, ast.ImportFrom)):
            raise cell.mistake(
                "an exercise cell must hold imports and then one def or class, and nothing else; "
                "move this statement into the solution or into another cell",
                statement.lineno,
            )
    if not statements:
        raise cell.mistake("an exercise cell must hold one def or class, got an empty cell", 0)
    definition = statements[-1]
    assert isinstance(definition, Definition)
    if not ast.get_docstring(definition):
        raise cell.mistake(f"`{definition.name}` must have a docstring, which is the task", definition.lineno)
    return definition.name


def _entry_of_check(cell: Cell) -> str:
    """`name` where the cell is exactly `check(name)`, otherwise nothing."""
    match parse(cell).body:
        case [ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[ast.Name(id=name)], keywords=[]))]:
            return name
    return ""


def parse(cell: Cell, *, magics: bool = True) -> ast.Module:
    """The cell's code as a tree; lines such as `%matplotlib inline` become calls. Raises AuthorError."""
    transform = TransformerManager().transform_cell if magics else str  # type: ignore[no-untyped-call]
    source = transform(cell.source)
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise cell.mistake(f"the cell must be valid Python, but: {error.msg}", error.lineno or 1) from None
