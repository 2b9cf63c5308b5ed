"""What one cell looks up, binds and may change, as far as its source tells: on the safe side.

    source --parse--> statements --the compiler's account of names--> Names

CHANCE stands for what has no name, the state of the generators that nobody hands on.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autograder.sandbox.inside.cell_forms import (
    called,
    dotted,
    is_constant,
    is_import,
    may_draw,
    modules,
    plain_defaults,
    root,
    runs_inside,
    sows,
    surely_binds,
    walk,
    words,
)
from course.errors import CourseError
from course.performing.cells import global_names

CHANCE = "<chance>"
READS_ALL = "globals"
BY_TEXT = frozenset(["exec", "eval", "locals", "vars", "get_ipython"])  # nobody's cells may use these in a slice
BY_NAME = BY_TEXT | frozenset(
    ["globals", "compile", "dir", "__import__", "In", "Out", "exit", "quit", "inspect", "gc", "ctypes"]
)
BY_ATTRIBUTE = re.compile(
    r"__dict__|__globals__|__class__|__builtins__|__setattr__|_getframe|f_globals|f_locals|f_back|settrace|setprofile"
    r"|patch|run_cell|user_ns|run_path|run_module|import_module"
)
SHELL = re.compile(r"_|__|___|_\d+|_i{1,3}|_i\d+|_ih|_oh|_dh")  # what IPython binds after each cell
ELSEWHERE = frozenset({"np", "numpy", "random"})  # generators of their own
SETS = re.compile(
    r"set_num_(?:interop_)?threads|set_default_(?:dtype|device|tensor_type)|set_grad_enabled|set_printoptions"
    r"|set_deterministic_debug_mode|set_float32_matmul_precision|set_flush_denormal|set_warn_always|set_detect_anomaly"
    r"|use_deterministic_algorithms|backends|rcParams|rcdefaults|rc|style|environ|putenv|chdir|umask|simplefilter"
    r"|filterwarnings|resetwarnings|setrecursionlimit|setswitchinterval|basicConfig|set_start_method|setlocale|seterr"
    r"|getcontext|setcontext|__future__|matplotlib_inline|set_matplotlib_formats"
)


class Unknowable(CourseError):
    """What the cell does to names cannot be told from its source."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Of one cell, or of one part of it.

    reads     looked up while it runs, where the cell itself has not surely bound them before
    binds     bound or deleted, perhaps
    surely    bound if the cell ends without an exception
    fixed     of these, what nothing can change: imports, numbers, text and functions, with what each function looks
              up when it is called
    later     looked up by whatever functions it defines
    changes   whether it may change objects
    sets      whether it may set something for all cells
    """

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    surely: frozenset[str] = frozenset()
    fixed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    later: frozenset[str] = frozenset()
    changes: bool = False
    sets: bool = False


def parsed(source: str) -> list[ast.stmt]:
    """The statements of a cell. Raises Unknowable where it is no plain Python, as with a magic in it."""
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unknowable("a cell that is no plain Python") from None


def dynamic(statements: Sequence[ast.stmt], *, own: bool) -> bool:
    """Whether code in it may reach names that do not stand in it; of a student's `own` nothing is taken on trust."""
    for node in walk(statements):
        if isinstance(node, ast.alias) and node.name == "*":
            return True
        if isinstance(node, ast.Name) and node.id in (BY_NAME if own else BY_TEXT):
            return True
        if own and isinstance(node, (ast.Import, ast.ImportFrom)) and not BY_NAME.isdisjoint(modules(node)):
            return True
        if (
            own
            and isinstance(node, ast.Attribute)
            and (BY_ATTRIBUTE.fullmatch(node.attr) or dotted(node) == "sys.modules")
        ):
            return True
    return own and any(SHELL.fullmatch(name) for name in names(statements).reads)


def imports_alone(statements: Iterable[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The imports at the left margin, which may run without the rest, and the rest."""
    apart: tuple[list[ast.stmt], list[ast.stmt]] = ([], [])
    for statement in statements:
        apart[not isinstance(statement, (ast.Import, ast.ImportFrom))].append(statement)
    return apart


def loose(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that functions rebind, and whose attributes are set: what they stand for is never fixed."""
    found = set()
    for node in walk(statements):
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            found.add(root(node))
        elif isinstance(node, ast.Call) and called(node) in ("setattr", "delattr") and node.args:
            found.add(root(node.args[0]))
    return found


def names(statements: Sequence[ast.stmt]) -> Names:
    """What these statements, run one after the other, look up, bind and may change. Raises Unknowable."""
    work = _Work(alone=all(ELSEWHERE.isdisjoint(words(node)) for node in walk(statements)))
    for statement in statements:
        _add(work, statement)
    pending = [name for name in work.loaded if name in work.functions]
    while pending:  # what is called here looks up its names now
        looked_up = work.functions.pop(pending.pop(), frozenset())
        work.reads |= looked_up
        pending += [name for name in looked_up if name in work.functions]
    return Names(
        reads=frozenset(work.reads),
        binds=frozenset(work.binds),
        surely=frozenset(work.surely),
        fixed=work.fixed,
        later=frozenset(work.later),
        changes=work.changes,
        sets=work.sets,
    )


@dataclass(kw_only=True)
class _Work:
    """Names in the making.

    loaded     all that are looked up while it runs
    functions  defined here, by name
    alone      no generator is used but those of torch
    sown       its own first number has been set
    """

    alone: bool
    sown: bool = False
    reads: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    surely: set[str] = field(default_factory=set)
    fixed: dict[str, frozenset[str]] = field(default_factory=dict)
    functions: dict[str, frozenset[str]] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)
    changes: bool = False
    sets: bool = False


def _add(work: _Work, statement: ast.stmt) -> None:
    now, later, binds = _looked_up(statement)
    chance = may_draw([statement])
    defines = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and not runs_inside(statement)
    if chance and (defines or is_import(statement)):
        later.add(CHANCE)
    elif chance:
        binds.add(CHANCE)
        work.sown = work.sown or (work.alone and sows(statement))
        now |= set() if work.sown else {CHANCE}
    work.sets = work.sets or any(SETS.fullmatch(word) for node in walk([statement]) for word in words(node))
    work.reads |= now - work.surely
    work.loaded |= now
    work.later |= later
    work.binds |= binds
    if defines or isinstance(statement, ast.ClassDef):
        work.functions[statement.name] = frozenset(later)  # type: ignore[attr-defined]
    sure, fixed = surely_binds(statement), is_import(statement) or is_constant(statement)
    work.surely |= sure
    for name in binds:
        work.fixed.pop(name, None)
    if fixed or (defines and plain_defaults(statement)):
        work.fixed |= dict.fromkeys(sure, frozenset(later))
    work.changes = work.changes or not (fixed or defines)


def _looked_up(statement: ast.stmt) -> tuple[set[str], set[str], set[str]]:
    """Names looked up while the statement runs, those that its functions look up later, and those that it binds."""
    try:
        code = compile(ast.Module([statement], []), "", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unknowable("a cell that does not compile") from None
    now, later, binds = set[str](), set[str](), set[str]()
    for operation, name in global_names(code):
        (binds if operation.startswith("STORE") else now).add(name)
    for inner in _inner(code):
        _nested(inner, now if runs_inside(statement) else later, now, binds)
    binds.update(node.id for node in walk([statement]) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del))
    return now, later, binds


def _nested(code: types.CodeType, into: set[str], now: set[str], binds: set[str]) -> None:
    """The names of a function, class or comprehension: of a function `into`, of others, which run at once, `now`."""
    at_once = code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED  # the latter: a class
    place = now if at_once else into
    for operation, name in global_names(code):
        if operation == "STORE_GLOBAL":
            binds.add(name)
        if operation.startswith("LOAD"):
            place.add(name)
    for inner in _inner(code):
        _nested(inner, now if place is now and code.co_name.startswith("<") else into, place, binds)


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    return (each for each in code.co_consts if isinstance(each, types.CodeType))
