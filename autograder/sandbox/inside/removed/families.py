"""What a removed name stands for: Python objects, and kernels of torch's dispatcher.

"torch.utils.checkpoint"       a module: every function and class that it and its submodules define
"torch.nn.functional.silu"     a function: itself, its decompositions, and aten::silu, silu_, silu.out, silu_backward
"torch.autograd"               what differentiates, under any name, and the recording of graphs itself
"torch"                        the same, and every operator while the answer runs (guard.py)
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from autograder.sandbox.inside.removed.operators import Kernel, kernels_of, operators_named, python_kernels
from autograder.sandbox.wire.start import STAND_INS
from course.errors import DeclarationError

TORCH = "torch"
CUT = (FunctionType, type, functools._lru_cache_wrapper)

# vmap and functional_call, which torch.func holds too, differentiate nothing.
_TRANSFORMS = ("grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize")
_IMPLEMENTATIONS = ("grad_impl", "grad_and_value_impl", "_vjp_with_argnums", "_jvp_with_argnums")  # of held transforms
_FUNC = (
    *(f"torch.func.{name}" for name in _TRANSFORMS),
    *(f"torch._functorch.eager_transforms.{name}" for name in _IMPLEMENTATIONS),
)
_AUTOGRAD = (
    "torch.autograd.grad",
    "torch.autograd.backward",
    "torch.autograd.functional",
    "torch.autograd.forward_ad",
    "torch.autograd.gradcheck",
    "torch.autograd.Function",
    "torch.Tensor.backward",
    *_FUNC,
)
# Families that are not what their module defines: torch.autograd also holds no_grad and the profiler.
_MEMBERS = {TORCH: _AUTOGRAD, "torch.autograd": _AUTOGRAD, "torch.func": _FUNC}


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a removed name means.

    objects  Python functions and classes
    kernels  those of torch's operators, with what becomes of each
    modules  how many were loaded when this was looked up
    """

    name: str
    objects: tuple[Any, ...]
    kernels: tuple[Kernel, ...]
    modules: int

    def loaded_since(self) -> Iterator[Any]:
        """Its functions and classes in modules that came later. In a forked child, to touch all modules takes 15 ms."""
        count = len(sys.modules) - self.modules + len(STAND_INS)  # a module takes the place of its stand-in at the end
        later = itertools.islice(reversed(sys.modules), max(0, count))
        return _in_modules(self.name, list(later))


@functools.cache
def family(name: str) -> Family:
    """Everything that `name` means at this moment. Raises DeclarationError where nothing of it can be removed."""
    module = importlib.import_module(name) if _is_module(name) else None
    found = [*_in_modules(name, list(sys.modules)), *_attributes(name)]
    operators = operators_named(name, _words(name, found, module))
    if not (operators or hasattr(module, "__path__") or any(isinstance(each, CUT) for each in found)):
        raise DeclarationError(f"`{name}` must be Python code or an operator of torch to be removed, but is neither")
    return Family(
        name=name,
        objects=(*found, *python_kernels(operators)),
        kernels=kernels_of(name, operators),
        modules=len(sys.modules),
    )


def _parts(name: str) -> tuple[str, ...]:
    return _MEMBERS.get(name, (name,))


def _in_modules(name: str, loaded: Sequence[str]) -> Iterator[Any]:
    """The functions and classes of a family in modules with these names."""
    for part in _parts(name):
        for each in loaded:
            if _lies_in(each, part):
                yield from _defined_in(sys.modules[each], part)


def _lies_in(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _defined_in(module: ModuleType, path: str) -> Iterator[Any]:
    """What the module's code defines; what it only imported from elsewhere belongs to others."""
    for value in list(vars(module).values()):
        home = getattr(value, "__module__", None)
        if isinstance(value, CUT) and isinstance(home, str) and _lies_in(home, path):
            yield value


def _attributes(name: str) -> Iterator[Any]:
    """The parts of a family that are named as attributes of a module, or of a class in one."""
    for part in _parts(name):
        words = part.split(".")
        end = next((end for end in range(len(words) - 1, 0, -1) if ".".join(words[:end]) in sys.modules), 0)
        value: Any = sys.modules.get(".".join(words[:end]))
        for word in words[end:]:
            value = getattr(value, word, None)
        if end and value is not None and not isinstance(value, ModuleType):
            yield value


def _words(name: str, found: Sequence[Any], module: ModuleType | None) -> set[str]:
    """What operators of the family are called: its last word, or what a module's public C functions are called."""
    if name in _MEMBERS or not _lies_in(name, TORCH):
        return set()
    if module is None:
        return {name.rpartition(".")[2]} if found else set()
    public = [value for key, value in vars(module).items() if not key.startswith("_")]
    return {each.__name__ for each in public if isinstance(each, BuiltinFunctionType)}


def _is_module(name: str) -> bool:
    """Whether a module of this name is loaded or can be."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package, but a class
        return False
