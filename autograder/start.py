"""How a process of the autograder starts: without what takes long in imports and is not needed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """For the imports of a process of our own.

    Nobody searches for reference cycles meanwhile, a quarter of the time, nor later among what was imported. And some
    packages are not imported. jsonschema, which nbformat imports, does without the one that checks international
    addresses (the format "iri"), 0.8 s: no schema of a notebook has such a format. torch does without its compiler
    and its symbolic shapes, 0.8 s and 70 MiB, as long as nobody compiles.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    for stand_in in (_Compiler("torch._dynamo"), _Shapes("torch.fx.experimental.symbolic_shapes")):
        sys.modules.setdefault(stand_in.__name__, stand_in)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _StandIn(ModuleType):
    """Stands for a module of torch's until somebody asks for more than it has: then the module takes its place."""

    def real(self) -> ModuleType:
        """The module."""
        if sys.modules[self.__name__] is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # somebody looks at all modules that there are, or what kind of module this is
            raise AttributeError(name)
        return getattr(self.real(), name)


class _Compiler(_StandIn):
    """Every optimizer tells the compiler that nothing is to be compiled here."""

    @property
    def __path__(self) -> Any:  # type: ignore[override]
        return self.real().__path__

    def graph_break(self, msg: str = "") -> None:
        """Nothing: there is no graph."""

    def disable(self, fn: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
        """The function, as it is."""
        return fn


class _Shapes(_StandIn):
    """Every backward pass with a gradient to begin with compares two shapes."""

    def expect_true(self, a: Any, skip: int = 0) -> bool:
        """A bool, as it is."""
        return a if type(a) is bool else self.real().expect_true(a, skip + 1)

    def sym_eq(self, x: Any, y: Any) -> Any:
        """Whether two shapes are equal."""
        plain = isinstance(x, tuple) and isinstance(y, tuple) and all(type(size) is int for size in (*x, *y))
        return x == y if plain else self.real().sym_eq(x, y)
