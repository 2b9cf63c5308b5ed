"""Answers as text: a right one with everything it needs, and wrong ones as small edits of it.

    answer --standalone--> source that a notebook's cell could hold --edits--> source of a wrong one --> answer

An edit stands for the slip alone, without a copy of what is right around it.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import importlib
import inspect
import itertools
import linecache
from collections import Counter
from collections.abc import Iterator
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from course.errors import DeclarationError
from course.performing.cells import global_names, source_of
from course.performing.exercise import Answer

INLINED = ("course.reference.", "autograder.")  # modules that no student has: what is needed of them is copied in
FUTURE = "from __future__ import annotations"

_numbers = itertools.count(1)
_made: WeakKeyDictionary[Answer, tuple[str, str]] = WeakKeyDictionary()  # edited answer -> source before and after


def edited(answer: Answer, *edits: tuple[str, str]) -> Answer:
    """`answer` with these edits (old text, new text) of its standalone source; it may be an edited one itself.

    Each old text must stand in the source exactly once, docstrings left out. Raises DeclarationError where it does
    not: a change of the right answer can then leave no edit without effect.
    """
    before = after = source(answer)
    for old, new in edits:
        if after.count(old) != 1:
            raise DeclarationError(
                f"an edit of {answer.__module__}.{answer.__qualname__} no longer applies: it must hold {old!r} exactly "
                f"once, but holds it {after.count(old)} times; adapt the edit to the source as it is now"
            )
        after = after.replace(old, new)
    return compiled(after, answer.__name__, module=answer.__module__, before=before)


def compiled(text: str, name: str, *, module: str, before: str = "") -> Answer:
    """What the source `text` defines as `name`; an edit of the source `before`. Tracebacks show its lines.

    Raises DeclarationError where it uses a name that it does not have: such an answer would show a NameError, which the
    proof would take for the mistake itself.
    """
    file = f"<{name}, edited: {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": module}
    try:
        code = compile(text, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise DeclarationError(f"an edit of {name} must leave valid Python, but {error.msg}: {error.text}") from None
    try:
        exec(code, namespace)
    except Exception as error:
        raise DeclarationError(f"an edit of {module}.{name} must define it, but raised {error!r}") from None
    unknown = sorted({*_globals(code)} - namespace.keys() - vars(builtins).keys())
    if unknown:
        raise DeclarationError(
            f"an edit of {module}.{name} must use what its source defines, but uses {', '.join(unknown)}: "
            "import it in the edit, or edit an answer that has it"
        )
    answer: Answer = namespace[name]
    _made[answer] = before, text
    return answer


def _globals(code: CodeType) -> Iterator[str]:
    """What the functions in this code look up in their module."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from (name for operation, name in global_names(part) if operation == "LOAD_GLOBAL")
            yield from _globals(part)


def source(answer: Answer) -> str:
    """The source of an answer, edited or not, with all that it needs of modules which no student has.

    Raises DeclarationError where it is not defined at the margin of a module.
    """
    return _made[answer][1] if answer in _made else _standalone(answer.__module__, answer.__qualname__)


def cell(name: str, answer: Answer) -> str:
    """Source that defines `name` as this answer, as a student would hand it in.

    Its helpers get names that no other cell of the notebook has: a later cell that binds one would change the answer.
    """
    text = source(answer)
    tree = ast.parse(text)
    helpers = {each: f"{each}_of_{name}" for each in _defined(tree) if each != answer.__name__}
    hidden = sorted(helpers.keys() & {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})
    if hidden:
        raise DeclarationError(f"{answer.__name__}: no parameter may have the name of a helper, as {hidden[0]} does")
    if answer.__name__ == name and not helpers:
        return text
    return ast.unparse(_Rename(helpers | {answer.__name__: name}).visit(tree))


def _defined(tree: ast.Module) -> Iterator[str]:
    """What a module's own statements define: functions, classes, constants."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def slip(answer: Answer) -> str:
    """The lines that edits removed and added, each behind - or +; "" for an answer that is no edit."""
    if answer not in _made or not _made[answer][0]:
        return ""
    before, after = (text.splitlines() for text in _made[answer])
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if not line.startswith(("---", "+++", "@@")))


@functools.cache
def _standalone(module: str, name: str) -> str:
    if "<locals>" in name:
        raise DeclarationError(
            f"{module}.{name} must have a source of its own: define it at the margin of its module, or as an edit"
        )
    parts = list(dict.fromkeys([FUTURE, *_parts(module, name.partition(".")[0])]))
    counts = Counter(each for part in parts for each in _defined(ast.parse(part)))
    twice = [each for each, count in counts.items() if count > 1]
    if twice:
        raise DeclarationError(f"{module}.{name} must need one definition of {twice[0]}, not two modules' own")
    return "\n\n\n".join(parts) + "\n"


def _parts(module: str, name: str) -> Iterator[str]:
    """The statements of `module` that the definition of `name` needs, and of the modules that are inlined."""
    text = source_of(_text_of(module), name)
    if not text:
        raise DeclarationError(f"{module} must define {name}, of which a source is needed")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(INLINED):
            for alias in node.names:
                yield from _parts(str(node.module), alias.name)
                if alias.asname:
                    yield f"{alias.asname} = {alias.name}"
        elif not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            yield _without_docstrings(text, node)


def _text_of(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))


def _without_docstrings(text: str, statement: ast.stmt) -> str:
    """The lines of a statement, its decorators included, without the docstrings in it."""
    lines = text.splitlines()
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
    dropped: set[int] = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            dropped.update(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
            if len(node.body) == 1:
                dropped.discard(doc.lineno)
                lines[doc.lineno - 1] = " " * doc.col_offset + "pass"
    kept = [line for number, line in enumerate(lines, 1) if number >= first and number not in dropped]
    return "\n".join(kept[: (statement.end_lineno or first) - first + 1 - len(dropped)]).rstrip()


class _Rename(ast.NodeTransformer):
    """Renames what is defined and used; a name that is imported keeps its module's spelling."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """A use, or an assignment."""
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function and what is in it."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class and what is in it."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)
