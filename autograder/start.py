"""How a process of the autograder starts: without what takes long in imports and is not needed.

It stands outside of the sandbox's package, because to import anything there is to import torch, the long way.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
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
    if not any(name in sys.modules for name in STAND_INS):
        sys.modules.update({name: kind(name) for name, kind in STAND_INS.items()})
        sys.meta_path.insert(0, _Once())
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
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # somebody looks at all modules that there are, or what kind of module this is
            raise AttributeError(name)
        return getattr(self.real(), name)


class _CompiledAutograd(_StandIn):
    """torch.func switches off what is off."""

    _disable = staticmethod(contextlib.nullcontext)


class _Compiler(_StandIn):
    """Every optimizer tells the compiler that nothing is to be compiled here."""

    compiled_autograd = _CompiledAutograd("torch._dynamo.compiled_autograd")

    @property
    def __path__(self) -> Any:  # type: ignore[override]
        return self.real().__path__

    def graph_break(self, msg: str = "") -> None:
        """Nothing: there is no graph."""

    def disable(self, fn: Callable[..., Any] | None = None, recursive: bool = True, **options: Any) -> Any:
        """The function, as it is; a decorator where there is none yet."""
        return fn or (lambda given: given)


class _Shapes(_StandIn):
    """Every backward pass with a gradient to begin with compares two shapes."""

    def expect_true(self, a: Any, skip: int = 0) -> bool:
        """A bool, as it is."""
        return a if type(a) is bool else self.real().expect_true(a, skip + 1)

    def sym_eq(self, x: Any, y: Any) -> Any:
        """Whether two shapes are equal."""
        plain = isinstance(x, tuple) and isinstance(y, tuple) and all(type(size) is int for size in (*x, *y))
        return x == y if plain else self.real().sym_eq(x, y)


STAND_INS: dict[str, type[_StandIn]] = {"torch._dynamo": _Compiler, "torch.fx.experimental.symbolic_shapes": _Shapes}


class _Once:
    """Finds modules that are there: importing one of the compiler's first loads the whole of it meanwhile."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """None where other finders should look."""
        there = target is None and name.startswith("torch._dynamo.") and name in sys.modules
        return ModuleSpec(name, _Same(sys.modules[name].__spec__)) if there else None


class _Same(Loader):
    """Gives the module that is there, and leaves it as it is."""

    def __init__(self, spec: ModuleSpec | None) -> None:
        self._spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that is there."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing but to put its own spec back."""
        with contextlib.suppress(AttributeError):  # torch's settings refuse to be set what they do not know
            module.__spec__ = self._spec
