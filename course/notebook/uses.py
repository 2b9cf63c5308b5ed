"""What an answer's source names, held against what its exercise asks to do without.

    def f(x): return torch.autograd.grad(...)      and removes ("torch.autograd",)  ->  ("torch.autograd.grad",)

A remark for honest students, in time: it reads the source and proves nothing. Whoever wants to hide a call can.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from course.performing.exercise import Answer

TENSOR = "torch.Tensor."


def forbidden(answer: Answer, removes: Sequence[str]) -> tuple[str, ...]:
    """Dotted names in the answer's source that lie in one of the modules of `removes`, each once.

    Empty where the source cannot be read.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError):
        return ()
    found = [name for name in _names(tree, _namespace(answer)) if any(_lies_in(name, path) for path in removes)]
    longest = [
        name for name in dict.fromkeys(found) if not any(_lies_in(other, name) for other in found if other != name)
    ]
    return tuple(name.removeprefix(TENSOR) for name in longest)


def _lies_in(name: str, path: str) -> bool:
    """Whether the name is the path or below it; methods of tensors count only where they are named one by one."""
    return name == path or (name.startswith(f"{path}.") and not name.startswith(TENSOR))


def _namespace(answer: Any) -> Mapping[str, Any]:
    """The globals of the cell that defines the answer; of a class, those of its first method."""
    functions = [answer, *[getattr(each, "__func__", each) for each in getattr(answer, "__dict__", {}).values()]]
    return next((each.__globals__ for each in functions if hasattr(each, "__globals__")), {})


def _names(tree: ast.AST, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Every dotted name that code uses or imports, spelled from the module that it comes from."""
    known = dict(_local_imports(tree))
    yield from known.values()
    for node in _code(tree):
        if isinstance(node, ast.Attribute):
            yield f"{TENSOR}{node.attr}"  # a method of whatever stands before it
        if isinstance(node, (ast.Attribute, ast.Name)):
            yield _spelled(node, known, namespace)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree without annotations and decorators, which use nothing when the answer is called."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield node
                yield from _code(node)


def _local_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name in the code, where it comes from) for each import inside the answer."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name.partition(".")[0], each.name) for each in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _spelled(node: ast.expr, known: Mapping[str, str], namespace: Mapping[str, Any]) -> str:
    """`F.silu` as `torch.nn.functional.silu`, where `F` is that module; "" for what starts with a call."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    first = known.get(node.id) or _origin(node.id, namespace.get(node.id))
    return ".".join([first, *reversed(parts)])


def _origin(name: str, value: Any) -> str:
    """The full name of a global: a module's own, or `module.name` of a function or class."""
    if isinstance(value, ModuleType):
        return value.__name__
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"{getattr(value, '__module__', None) or ''}.{value.__name__}"
    return name
