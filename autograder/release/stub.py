"""From a worked solution to what students get, by cutting the bodies out of the source.

    def f(x: Tensor) -> Tensor:          kept as written
        '''Docstring.'''                 kept as written
        y = x + 1                        a body: lines to cut
        return y

    source --bodies--> line ranges --stub--> ... raise NotImplementedError("unit.f")
                                   --marked-> ... ### BEGIN SOLUTION ... ### END SOLUTION

A class is cut in each of its methods. Comments behind a docstring, and between two methods, belong to the body
before them, so that no remark on the solution reaches students.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from autograder.release.authored import Cell, parse

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Body:
    """Lines `start` to `end` (0-based, `end` excluded) of a cell's source, and their indentation."""

    start: int
    end: int
    indent: str


def stub(cell: Cell, exercise: str) -> str:
    """The answer cell's source with each body replaced by one line that raises with the exercise's id."""
    return _replaced(cell, lambda body, lines: [f'{body.indent}raise NotImplementedError("{exercise}")'])


def marked(cell: Cell) -> str:
    """The answer cell's source with each body between nbgrader's solution marks."""
    return _replaced(
        cell, lambda body, lines: [f"{body.indent}### BEGIN SOLUTION", *lines, f"{body.indent}### END SOLUTION"]
    )


def _replaced(cell: Cell, replace: Callable[[Body, list[str]], list[str]]) -> str:
    """The source with each body's lines replaced; an empty line parts it from what follows."""
    lines = cell.source.split("\n")
    made: list[str] = []
    at = 0
    for body in bodies(cell):
        cut = "\n".join(lines[body.start : body.end]).rstrip()
        made += [*lines[at : body.start], *replace(body, cut.split("\n") if cut else []), ""]
        at = body.end
    return "\n".join([*made, *lines[at:]]).rstrip("\n")


def bodies(cell: Cell) -> list[Body]:
    """What to cut, from top to bottom. Raises AuthorError where a body shares a line with what is kept."""
    definition = parse(cell, magics=False).body[-1]
    end = len(cell.source.split("\n"))
    if isinstance(definition, Function):
        return [_body(cell, definition, end)]
    assert isinstance(definition, ast.ClassDef)
    _demand_interface_only(cell, definition)
    starts = [*[_first_line(member) for member in definition.body], end]
    return [
        _body(cell, member, after)
        for member, (_, after) in zip(definition.body, pairwise(starts), strict=True)
        if isinstance(member, Function)
    ]


def _demand_interface_only(cell: Cell, definition: ast.ClassDef) -> None:
    """Outside its methods a class may show its docstring and its declared fields, no code of the solution."""
    for member in definition.body[1:]:
        if not isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign)):
            raise cell.mistake(
                f"the class `{definition.name}` may hold a docstring, fields with types and methods; "
                "students would see this statement, move it into a method",
                member.lineno,
            )


def _first_line(member: ast.stmt) -> int:
    """0-based; of a method, its first decorator."""
    decorators: list[ast.expr] = getattr(member, "decorator_list", [])
    return min([member.lineno, *[each.lineno for each in decorators]]) - 1


def _body(cell: Cell, function: Function, end: int) -> Body:
    """What to cut from one def: everything behind its docstring, or behind its header where it has none."""
    first, *others = function.body
    kept_until = header_end = _header_end(cell.source, function.lineno)
    if ast.get_docstring(function, clean=False) is not None:
        kept_until = first.end_lineno or first.lineno
    if first.lineno <= header_end or any(each.lineno <= kept_until for each in others):
        raise cell.mistake(
            f"docstring and body of `{function.name}` must each begin on a line of their own", function.lineno
        )
    return Body(start=kept_until, end=end, indent=" " * first.col_offset)


def _header_end(source: str, lineno: int) -> int:
    """The line (from 1) of the colon that ends the `def` in line `lineno`."""
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP and token.start[0] >= lineno:
            depth += int(token.string in "([{") - int(token.string in ")]}")
            if token.string == ":" and depth == 0:
                return int(token.start[0])
    raise AssertionError("a parsed def has a colon")
