"""What an author may get wrong in the order and the names of cells; each mistake is told with file and line."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autograder.release.authored import Cell, Lesson, parse
from autograder.release.errors import AuthorError
from course.errors import UnknownExercise
from course.syllabus import find_entry


def enforce(lesson: Lesson) -> None:
    """Raises AuthorError at the first mistake in the lesson."""
    names = {entry.name for entry in lesson.unit.entries}
    for cell in lesson.answers:
        _known(cell, lesson)
    for before, cell, after in _neighbours(lesson.cells):
        if cell.role == "answer":
            _followed_by_its_check(cell, after)
        elif cell.role == "check":
            _preceded_by_its_exercise(cell, before)
        elif cell.role == "code":
            _defines_no_answer(cell, names)
    _each_once(lesson)


def _neighbours(cells: tuple[Cell, ...]) -> Iterator[tuple[Cell | None, Cell, Cell | None]]:
    return zip((None, *cells[:-1]), cells, (*cells[1:], None), strict=True)


def _known(cell: Cell, lesson: Lesson) -> None:
    try:
        entry = find_entry(cell.entry)
    except UnknownExercise as error:
        raise cell.mistake(str(error), _line_of_definition(cell)) from None
    if entry.unit != lesson.unit.slug:
        raise cell.mistake(
            f"`{entry.name}` must stand in the lesson of unit {entry.unit}, got it in {lesson.unit.slug}",
            _line_of_definition(cell),
        )


def _line_of_definition(cell: Cell) -> int:
    return parse(cell, magics=False).body[-1].lineno


def _followed_by_its_check(cell: Cell, after: Cell | None) -> None:
    if after is None or after.role != "check":
        raise cell.mistake(
            f"right after the exercise `{cell.entry}` one cell `check({cell.entry})` must stand; add it",
            _line_of_definition(cell),
        )
    if after.entry != cell.entry:
        raise after.mistake(f"the check of `{cell.entry}` must be `check({cell.entry})`, got `check({after.entry})`")


def _preceded_by_its_exercise(cell: Cell, before: Cell | None) -> None:
    if before is None or before.role != "answer":
        raise cell.mistake(
            f"`check({cell.entry})` must stand right after the exercise cell of `{cell.entry}`; "
            "is that cell marked `# %% exercise`?"
        )


def _defines_no_answer(cell: Cell, names: set[str]) -> None:
    """Only exercise cells may bind an entry's name: students see every other cell as it is."""
    for name, line in _bound(parse(cell).body):
        if name in names:
            raise cell.mistake(
                f"`{name}` is an exercise and must be written in a cell marked `# %% exercise` only, "
                "because students are given every other cell as it is",
                line,
            )


def _bound(statements: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """The names that the statements bind at the top level of the notebook, with their lines."""
    waiting: list[ast.AST] = [*statements]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
            continue  # what is bound inside has its own scope
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name, node.lineno) for alias in node.names)
        if not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            waiting.extend(ast.iter_child_nodes(node))


def _each_once(lesson: Lesson) -> None:
    seen: dict[str, Cell] = {}
    for cell in lesson.answers:
        if cell.entry in seen:
            first = seen[cell.entry]
            raise cell.mistake(
                f"the exercise `{cell.entry}` must stand here once, but line "
                f"{first.line + _line_of_definition(first) - 1} holds it too",
                _line_of_definition(cell),
            )
        seen[cell.entry] = cell
    missing = [entry.name for entry in lesson.unit.entries if entry.name not in seen]
    if missing:
        raise AuthorError(
            lesson.file,
            1,
            f"the lesson must hold every exercise of unit {lesson.unit.slug}, but lacks {', '.join(missing)}",
        )
