"""What an answer's source names, held against what its exercise asks to do without.

    def f(x): return x.svd()        and removes ("torch.Tensor.svd",)  ->  {"x.svd": "torch.Tensor.svd"}

A remark for honest students, in time: it reads the answer and what it calls of the student's own, and proves nothing.
Whoever wants to hide a call can. What a name covers stands in removals.py, by which grading disables it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from course.failing import is_own, short
from course.performing.removals import TENSOR, TORCH, Removal, at, lies_in, removal

MOST = 200  # functions and classes of the student's that are read
UNREAD = ("annotation", "returns", "decorator_list", "bases")  # they use nothing when the answer is called
SELF = ("self", "cls")


@dataclass(frozen=True)
class Thing:
    """What a name stands for: its dotted name from the module that it comes from, and its value; None is unknown."""

    path: str = ""
    value: Any = None


def forbidden(answer: object, removes: Sequence[str]) -> dict[str, str]:
    """By what is written in the answer, or in what it calls of the student's own: the name in `removes` that covers it.

    What cannot be read names nothing.
    """
    removals, found = [removal(name) for name in removes], dict[str, str]()
    for text, things in mentions(answer) if removals else ():
        covering = next((each.name for each in removals if _covers_any(each, things)), "")
        if covering:
            found.setdefault(text, covering)
    return {text: name for text, name in found.items() if not any(other.startswith(f"{text}.") for other in found)}


def mentions(answer: object) -> Iterator[tuple[str, list[Thing]]]:
    """What is written in the answer, and in what it calls of the student's own, with what that stands for.

    Of `F.silu` first what all of it stands for, then `F`.
    """
    waiting, seen = [answer], set[int]()
    while waiting and len(seen) < MOST:
        each = waiting.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            with contextlib.suppress(RecursionError):  # a sum of a thousand terms cannot be read
                for text, things in _mentioned(each):
                    waiting.append(things[0].value)
                    yield text, things


def _covers_any(each: Removal, things: Sequence[Thing]) -> bool:
    """Whether a removal covers what is written, or what stands before its dots; `torch.float32` is no use of torch."""
    whole = each.name == TORCH and things[0].value is not None
    return any(_covers(each, thing) for thing in (things[:1] if whole else things))


def _covers(each: Removal, thing: Thing) -> bool:
    """Whether a removal covers it. Of all of torch types and constants do no harm, and methods may be anybody's."""
    value, path = thing.value, thing.path
    if each.name == TORCH and not path.startswith(TENSOR):
        return isinstance(value, torch.Tensor) or (
            lies_in(path, TORCH) and (value is None or callable(value) or isinstance(value, ModuleType))
        )
    inner = [*_inside(value), _maker(value)]
    return each.covers(value if each.name != TORCH else None, path) or any(each.covers(every) for every in inner)


def _inside(value: Any, deep: int = 8) -> Iterator[object]:
    """What runs when a value is called: of a partial, a method or a wrapper, which may be endless."""
    if isinstance(value, (type, ModuleType)) or value is None or not deep:
        return
    for name in ("func", "__func__", "__wrapped__", "__self__"):
        inner = _attribute(value, name)
        if inner is not None and not isinstance(inner, (ModuleType, torch.Tensor)):
            yield inner
            yield from _inside(inner, deep - 1)


def _maker(value: Any) -> object:
    """The function of which this one is a copy, or inside which it was defined (torch.func makes such)."""
    return at(f"{value.__module__}.{value.__qualname__.partition('.')[0]}") if isinstance(value, FunctionType) else None


def _attribute(value: Any, name: str) -> Any:
    with contextlib.suppress(Exception):
        return getattr(value, name, None)
    return None


# --- reading ----------------------------------------------------------------------------------------


def _mentioned(value: Any) -> Iterator[tuple[str, list[Thing]]]:
    """What is written, and what it and the names before its dots stand for, for all that the student's code names."""
    if isinstance(value, type) and _functions(value):
        yield value.__name__, [Thing(value=base) for base in value.__mro__[1:-1]] or [Thing()]
    for function in _functions(value):
        tree = _tree(function.__code__)
        if tree is not None:
            scope = _Scope(function, tree)
            yield from ((short(node), list(scope.things(node))) for node in _chains(tree))


def _functions(value: Any) -> list[FunctionType]:
    """The student's functions that run when a value is called, or when its methods are."""
    found = list[Any]()
    for each in (value, *_inside(value)):
        found.append(each)
        for kind in (each if isinstance(each, type) else type(each)).__mro__:
            for part in vars(kind).values():
                parts = [part, _attribute(part, "__func__"), _attribute(part, "fget")]
                found += [*parts, *(_attribute(each, "__wrapped__") for each in parts)]
    return [each for each in found if isinstance(each, FunctionType) and is_own(each.__code__)]


def _tree(code: CodeType) -> ast.AST | None:
    """The definition that was compiled to this code, from the text of its file or cell; None where there is none."""
    named = _definitions("".join(linecache.getlines(code.co_filename)))
    return next((node for node, name, first in named if (name, first) == (code.co_name, code.co_firstlineno)), None)


@functools.lru_cache(maxsize=64)
def _definitions(source: str) -> tuple[tuple[ast.AST, str, int], ...]:
    """Every function in a text, with its name and its first line, decorators included."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = [(node, getattr(node, "name", "<lambda>")) for node in nodes if isinstance(node, _DEFINITIONS)]
    return tuple(
        (node, name, min([node.lineno, *[each.lineno for each in getattr(node, "decorator_list", [])]]))
        for node, name in found
    )


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _chains(node: ast.AST) -> Iterator[ast.expr]:
    """Every name with all that follows behind dots; none in what only says which type something has."""
    if isinstance(node, (ast.Attribute, ast.Name)):
        if isinstance(node.ctx, ast.Load):
            yield node
        while isinstance(node, ast.Attribute):
            node = node.value
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
        yield from _chains(node.args[0]) if node.args else ()
        return
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and name not in UNREAD:
                yield from _chains(each)


class _Scope:
    """What names stand for inside a function."""

    def __init__(self, function: FunctionType, tree: ast.AST) -> None:
        code, last = function.__code__, function.__defaults__ or ()
        given = zip(code.co_varnames[code.co_argcount - len(last) : code.co_argcount], last, strict=True)
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        self._outer: Mapping[str, Any] = {**function.__globals__, **{name: _content(cell) for name, cell in cells}}
        self._inner = {name: _thing(each) for name, each in (*given, *(function.__kwdefaults__ or {}).items())}
        self._inner |= dict(_imported(tree))
        stores = [each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        self._hidden = {*stores, *(each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))}
        for each in ast.walk(tree):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                self._inner.setdefault(each.targets[0].id, next(self.things(each.value)))

    def things(self, node: ast.AST) -> Iterator[Thing]:
        """What a chain of names stands for, then without its last name, and so on."""
        if isinstance(node, ast.Attribute):
            before = list(self.things(node.value))
            yield self._below(before[0], node)
            yield from before
        elif isinstance(node, ast.Name):
            yield self._named(node.id)
        else:
            yield self._loaded(node)

    def _named(self, name: str) -> Thing:
        if name in self._inner:
            return self._inner[name]
        return Thing() if name in self._hidden else _thing(self._outer.get(name))

    def _below(self, before: Thing, node: ast.Attribute) -> Thing:
        if isinstance(before.value, (type, ModuleType)):
            value = _attribute(before.value, node.attr)
            return _thing(value) if isinstance(value, ModuleType) else Thing(f"{before.path}.{node.attr}", value)
        if before.value is not None:
            kind = type(before.value)
            return Thing(f"{kind.__module__}.{kind.__qualname__}.{node.attr}", _attribute(kind, node.attr))
        own = getattr(node.value, "id", "") in SELF or getattr(getattr(node.value, "func", None), "id", "") == "super"
        return Thing() if own else Thing(f"{TENSOR}{node.attr}", getattr(torch.Tensor, node.attr, None))

    def _loaded(self, node: ast.AST) -> Thing:
        """`import_module("torch.optim")` and `sys.modules["torch.optim"]` are modules; others are not known."""
        asked = node.args[:1] if isinstance(node, ast.Call) else [getattr(node, "slice", None)]
        before = getattr(node, "func", getattr(node, "value", None))
        path = asked[0].value if asked and isinstance(asked[0], ast.Constant) else None
        by = short(before) if isinstance(before, ast.expr) else ""
        named = by.endswith(("import_module", "__import__", "sys.modules"))
        return Thing(path, at(path)) if named and isinstance(path, str) else Thing()


def _content(cell: CellType) -> Any:
    with contextlib.suppress(ValueError):  # it is empty
        return cell.cell_contents
    return None


def _imported(tree: ast.AST) -> Iterator[tuple[str, Thing]]:
    """What each import inside the function binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                path = each.name if each.asname else each.name.partition(".")[0]
                yield each.asname or path, Thing(path, at(path))
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                yield each.asname or each.name, Thing(f"{node.module}.{each.name}", at(f"{node.module}.{each.name}"))


def _thing(value: Any) -> Thing:
    """A module, or a function or class of one, with its dotted name; of other values none is known."""
    if isinstance(value, ModuleType):
        return Thing(value.__name__, value)
    if inspect.isroutine(value) or inspect.isclass(value):
        return Thing(f"{getattr(value, '__module__', None) or ''}.{getattr(value, '__qualname__', '')}", value)
    return Thing("", value)
