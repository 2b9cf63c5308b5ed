"""What a name in an exercise's `removes` covers. Grading disables this; a notebook finds it in an answer and says so.

"torch.utils.checkpoint"       a module: every function and class that it and its submodules define
"torch.nn.functional.silu"     a function: itself, its decompositions, and aten::silu, silu_, silu.out, silu_backward
"torch.autograd"               what differentiates, under any name, and the recording of graphs itself
"torch"                        the same, and every operator while the answer runs
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

import torch

from course.errors import DeclarationError

TORCH = "torch"
TENSOR = "torch.Tensor."
UNLOADED = ("networkx", "sympy")  # they lie beside torch: an import is refused, and takes too long to look at
AUTOGRAD = (TORCH, "torch.autograd")  # removals that end the recording of graphs
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
# Removals that are not what their module defines: torch.autograd also holds no_grad and the profiler.
MEMBERS = {TORCH: _AUTOGRAD, "torch.autograd": _AUTOGRAD, "torch.func": _FUNC}
# What finds nothing any more: where no graph is recorded, and in a kernel that was handed out before.
_OF_GRAPHS = ("torch.Tensor.grad_fn", "torch._C._EngineBase.run_backward", "torch._C._jit_differentiate")
# What switches torch's own autocast on and off in C: by its name, or by the key under which its kernels stand.
AUTOCAST = ("torch.autocast", "torch.amp")
_SWITCH = r"(set|clear)_autocast\w*|autocast_\w*|_dispatch_tls_set_\w*|_(Set\w+|Include|Force)DispatchKeyGuard"
SWITCHES = tuple(each for each in dir(torch._C) if re.fullmatch(_SWITCH, each))
CASTS = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS")
_IN_C = (*SWITCHES, *(f"DispatchKey.{key}" for key in CASTS))
_OF_AUTOCAST = tuple(f"{home}.{each}" for home in ("torch", "torch._C") for each in _IN_C)
_OF_KERNELS = ("torch._C._SafeKernelFunction.call_boxed",)

# silu -> silu, silu_, silu_backward; nll_loss -> nll_loss_nd, nll_loss2d_forward; layer_norm -> native_layer_norm
# sum_to_size -> _grad_sum_to_size
_NAMED = r"aten::(_|_grad_|native_|_?linalg_)?{}(_loss)?(_nd|2d)?(_forward|_backward)?(_data)?_?"
_ALSO = {
    "torch.nn.functional.silu": r"mkldnn::\w*_pointwise_?|onednn::\w*pointwise",  # they fuse "swish" when told to
    "torch.nn.functional.scaled_dot_product_attention": r"aten::_(scaled|flash|efficient|cudnn)\w*attention\w*",
    "torch.optim": r"aten::_fused_(sgd|adam|adamw|adagrad)_?",
    "torch.amp": r"aten::_amp_\w+",
    "torch.autograd": r"aten::\w*_backward(_\w+)?|aten::_make_dual(_copy)?",
}
_WRITTEN_IN_PYTHON = ("torch._decomp", "torch._refs")
_DECOMPOSED = ("torch._refs", "torch._refs.nn.functional", "torch._refs.special")


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What a name covers.

    parts      dotted names of modules, functions, classes or attributes: they, and what lies below them
    objects    Python functions and classes
    operators  of torch, as its dispatcher or TorchScript calls them, overloads included
    """

    name: str
    parts: tuple[str, ...]
    objects: tuple[Any, ...]
    operators: tuple[str, ...]

    def covers(self, value: object, path: str = "") -> bool:
        """Whether this is one of the objects or operators, an instance or subclass of one, or called by such a path."""
        kinds = inspect.getmro(value if isinstance(value, type) else type(value))
        paths = (path, *(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds))
        lost = (*(_OF_GRAPHS if self.name in AUTOGRAD else ()), *(_OF_KERNELS if self.operators else ()))
        lost = (*lost, *(_OF_AUTOCAST if self.name in AUTOCAST else ()))
        named = any(lies_in(each, part) for each in paths for part in (*self.parts, *lost))
        return named or any(id(each) in self._ids for each in (value, *kinds)) or self.runs(_operator(value))

    def runs(self, operator: str) -> bool:
        """Whether it is one of the operators, with or without the name of an overload."""
        return operator in self._operators or (self.name == TORCH and operator != "")

    @functools.cached_property
    def _ids(self) -> frozenset[int]:
        return frozenset(id(each) for each in self.objects)

    @functools.cached_property
    def _operators(self) -> frozenset[str]:
        return frozenset({*self.operators, *(each.partition(".")[0] for each in self.operators)})


@functools.cache
def removal(name: str) -> Removal:
    """What `name` covers among the modules that are loaded now. Raises DeclarationError where nothing of it can be."""
    with warnings.catch_warnings():  # of names that are deprecated, at which we look
        warnings.simplefilter("ignore")
        module = importlib.import_module(name) if name not in UNLOADED and _is_module(name) else None
        found = [*in_modules(name, list(sys.modules)), *_attributes(name)]
        operators = _operators_named(name, _words(name, found, module))
        known = operators or name in UNLOADED or hasattr(module, "__path__")
        if not (known or any(isinstance(each, CUT) for each in found)):
            raise DeclarationError(
                f"`{name}` must be Python code or an operator of torch to be removed, but is neither"
            )
        objects = (*found, *_python_kernels(operators))
    return Removal(name=name, parts=_parts(name), objects=objects, operators=operators)


def in_modules(name: str, loaded: Sequence[str]) -> Iterator[Any]:
    """The functions and classes that `name` covers in modules with these names."""
    for part in _parts(name):
        for each in loaded:
            if lies_in(each, part):
                yield from _defined_in(sys.modules[each], part)


def lies_in(name: str, path: str) -> bool:
    """Whether the dotted name is the path or lies below it."""
    return name == path or name.startswith(f"{path}.")


@functools.cache
def all_operators() -> tuple[str, ...]:
    """Everything that torch's dispatcher knows."""
    return tuple(torch._C._dispatch_get_all_op_names())


@functools.cache
def scripted_operators() -> dict[str, Any]:
    """What TorchScript knows besides, and calls past the dispatcher: schemas by names."""
    dispatched, schemas = set(all_operators()), torch._C._jit_get_all_schemas()
    named = {f"{each.name}.{each.overload_name}".rstrip("."): each for each in schemas}
    return {name: schema for name, schema in named.items() if name not in dispatched}


def _parts(name: str) -> tuple[str, ...]:
    return MEMBERS.get(name, (name,))


def _defined_in(module: ModuleType, path: str) -> Iterator[Any]:
    """What the module's code defines; what it only imported from elsewhere belongs to others."""
    for value in list(vars(module).values()):
        home = getattr(value, "__module__", None)
        if isinstance(value, CUT) and isinstance(home, str) and lies_in(home, path):
            yield value


def _attributes(name: str) -> Iterator[Any]:
    """The parts of a removal that are named as attributes of a module, or of a class in one."""
    for part in _parts(name):
        value = at(part)
        if value is not None and not isinstance(value, ModuleType):
            yield value


def at(path: str) -> Any:
    """What stands at a dotted name among the loaded modules; None where there is nothing."""
    words = path.split(".")
    end = next((end for end in range(len(words), 0, -1) if ".".join(words[:end]) in sys.modules), 0)
    value: Any = sys.modules.get(".".join(words[:end]))
    for word in words[end:]:
        value = getattr(value, word, None)
    return value


def _words(name: str, found: Sequence[Any], module: ModuleType | None) -> set[str]:
    """What operators of it are called: its last word, or what a module's public C functions are called."""
    if name in MEMBERS or not lies_in(name, TORCH):
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


# --- operators of torch -------------------------------------------------------------------------------


def _operator(value: Any) -> str:
    """`aten::silu` of the operator itself, an overload, or a function in C of its name; "" of anything else."""
    if isinstance(value, torch._ops.OpOverload):
        return str(value.name())  # type: ignore[no-untyped-call]
    if isinstance(value, torch._ops.OpOverloadPacket):
        return value._qualified_op_name
    if isinstance(value, MethodDescriptorType) and value.__objclass__ is torch._C.TensorBase:
        return f"aten::{value.__name__}"
    python = isinstance(value, FunctionType) and value.__module__.startswith(_WRITTEN_IN_PYTHON)
    if python or (isinstance(value, BuiltinFunctionType) and _of_torch(value)):
        return f"aten::{value.__name__}"
    return ""


def _of_torch(function: BuiltinFunctionType) -> bool:
    """Whether it is torch's: of one of its modules in C, or of the class that holds most of its functions."""
    home = function.__self__ if isinstance(function.__self__, (type, ModuleType)) else type(function.__self__)
    name = home.__name__ if isinstance(home, ModuleType) else home.__module__
    return lies_in(str(getattr(function, "__module__", None) or name), TORCH)


def _operators_named(name: str, words: Iterable[str]) -> tuple[str, ...]:
    """Operators, overloads included, that compute what `name` computes, or that one of `words` is called."""
    patterns = [_NAMED.format(re.escape(word)) for word in words]
    also = _ALSO.get(name)
    wanted = re.compile("|".join([*patterns, *([also] if also else [])]))
    known = (*all_operators(), *scripted_operators())
    return tuple(each for each in known if wanted.fullmatch(each.partition(".")[0]))


def _python_kernels(operators: Sequence[str]) -> tuple[Any, ...]:
    """The same operators written in Python: torch's decompositions, and its reference implementations."""
    names, found = set(operators), list[Any]()
    for table in _decompositions():
        for operator, function in table.items():
            if getattr(operator, "name", lambda: "")() in names:
                found.append(function)
    short = {each.partition("::")[2].partition(".")[0] for each in names}
    modules = [sys.modules[each] for each in _DECOMPOSED if each in sys.modules]
    found += [getattr(module, each) for module in modules for each in short if hasattr(module, each)]
    return tuple(found)


def _decompositions() -> Iterator[dict[Any, Callable[..., Any]]]:
    """Torch's tables from operators to Python functions, where that part of torch is loaded."""
    module = sys.modules.get("torch._decomp")
    if module is not None:
        yield from module.global_decomposition_table.values()
