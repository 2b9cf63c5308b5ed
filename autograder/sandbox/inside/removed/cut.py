"""Python functions and classes that raise, wherever a reference to them is held.

f.__code__ = code that raises      f, its aliases, partials, bound methods, decorators around it, subclasses, instances

A function object is the same object in every alias, default argument and closure, so its code is what is replaced.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from autograder.sandbox.inside.removed.refusal import refusal

USED = ("__init__", "__new__", "__call__", "__enter__", "__iter__", "__next__")  # the others only describe


def cut(objects: Iterable[Any], name: str) -> None:
    """Every function in `objects`, and every method of classes there, raises RemovedError for `name` from now on."""
    for each in objects:
        for function in _functions(each):
            if function.__code__.co_consts != _template(name).co_consts:  # not again
                function.__code__ = _refusing(name, function.__code__)
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()


def _functions(value: Any) -> Iterator[FunctionType]:
    """The Python functions that run when `value` is called: its own, what it wraps, and the methods of a class."""
    if isinstance(value, type):
        for key, part in list(vars(value).items()):
            if not isinstance(part, type) and (key in USED or not key.startswith("__")):
                yield from (each for each in _functions(part) if each.__module__ == value.__module__)
        return
    if isinstance(value, FunctionType):
        yield value
    for inner in ("__wrapped__", "__func__"):
        if hasattr(value, inner):
            yield from _functions(getattr(value, inner))


def _refusing(name: str, code: CodeType) -> CodeType:
    """Code that raises for `name`, with the file, the line and the free variables of the code that it replaces."""
    return _template(name).replace(
        co_name=code.co_name,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_freevars=code.co_freevars,
    )


@functools.cache
def _template(name: str) -> CodeType:
    """It imports for itself: the globals of the function that it will belong to are another module's."""
    home = refusal.__module__
    source = f"def refuse(*args, **kwargs):\n    from {home} import refusal\n    raise refusal({name!r})"
    namespace: dict[str, Any] = {}
    exec(compile(source, "<removed>", "exec"), namespace)
    code: CodeType = namespace["refuse"].__code__
    return code


def block_imports(name: str) -> None:
    """Modules of the family that are not loaded cannot be, and loaded ones cannot be loaded again."""
    if name != "torch":  # a second load of torch's libraries fails by itself
        sys.meta_path.insert(0, _Blocked(name))


class _Blocked:
    """A finder that comes before all others and raises for one family."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None where other finders should look."""
        if fullname == self._name or fullname.startswith(f"{self._name}."):
            raise refusal(self._name)
        return None
