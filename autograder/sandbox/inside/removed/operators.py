"""Kernels of torch's dispatcher that raise, or that no longer record.

    F.silu, nn.SiLU, torch._C._nn.silu, torch.ops.aten.silu --dispatcher--> kernel of aten::silu: raises
    any operator --Autograd key: falls through--> kernel of the CPU: a value, and no graph

All of Python, C++, TorchScript and every thread go through the one table that is changed here. Under the Autograd key
stand the formulas of reverse and of forward mode, so without those kernels nothing in the process is differentiated.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograder.sandbox.inside.removed.refusal import refusal

AUTOGRAD = ("torch", "torch.autograd")  # families whose removal ends the recording of graphs
BACKENDS = ("CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU", "QuantizedCPU", "CUDA", "ZeroTensor")
KEYS = (*BACKENDS, "Autograd", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
# silu -> silu, silu_, silu_backward; nll_loss -> nll_loss_nd, nll_loss2d_forward; layer_norm -> native_layer_norm
NAMED = r"aten::(_|native_|_?linalg_)?{}(_loss)?(_nd|2d)?(_forward|_backward)?(_data)?_?"
ALSO = {
    "torch.nn.functional.silu": r"mkldnn::\w*_pointwise_?|onednn::\w*pointwise",  # they fuse "swish" when told to
    "torch.nn.functional.scaled_dot_product_attention": r"aten::_(scaled|flash|efficient|cudnn)\w*attention\w*",
    "torch.optim": r"aten::_fused_(sgd|adam|adamw|adagrad)_?",
    "torch.autograd": r"aten::\w*_backward(_\w+)?|aten::_make_dual(_copy)?",
}
DECOMPOSED = ("torch._refs", "torch._refs.nn.functional", "torch._refs.special")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel in the dispatcher's table: to be replaced by one that raises, or by none."""

    operator: str
    key: str
    raises: bool


def operators_named(name: str, words: Iterable[str]) -> tuple[str, ...]:
    """Operators, overloads included, that compute what the family `name` computes, or that one of `words` is called."""
    patterns = [NAMED.format(re.escape(word)) for word in words]
    also = ALSO.get(name)
    wanted = re.compile("|".join([*patterns, *([also] if also else [])]))
    return tuple(each for each in _all_operators() if wanted.fullmatch(each.partition(".")[0]))


def kernels_of(name: str, operators: Sequence[str]) -> tuple[Kernel, ...]:
    """The kernels to replace: all of the family's operators, and for autograd those that record graphs."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    raising = [Kernel(operator=each, key=key, raises=True) for each in operators for key in KEYS if has(each, key)]
    return (*raising, *(_recording(set(operators)) if name in AUTOGRAD else ()))


def _recording(besides: set[str]) -> Iterator[Kernel]:
    """The Autograd kernel of every operator but those that write into `out`, which refuse to record anyway."""
    for each in _all_operators():
        other = each.startswith("aten::") and not each.endswith("out") and each not in besides
        if other and torch._C._dispatch_has_kernel_for_dispatch_key(each, "Autograd"):
            yield Kernel(operator=each, key="Autograd", raises=False)


@functools.cache
def _all_operators() -> tuple[str, ...]:
    return tuple(torch._C._dispatch_get_all_op_names())


def override(kernels: Sequence[Kernel], name: str) -> None:
    """Replaces them for the rest of the process; about 15 microseconds each."""
    if not kernels:
        return

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise refusal(name)

    for space in {each.operator.partition("::")[0] for each in kernels}:
        library = torch._C._dispatch_library("IMPL", space, "", "", 0)
        for each in kernels:
            if each.operator.startswith(f"{space}::"):
                does = refuse if each.raises else torch.library.fallthrough_kernel
                library.impl(each.operator.partition("::")[2], each.key, does)
        # When the last reference goes, torch puts the kernels back. This one belongs to nobody, so nobody can drop it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    # A kernel that torch.library.get_kernel handed out before does not go through the table.
    torch._C._SafeKernelFunction.call_boxed = refuse  # type: ignore[method-assign]


def python_kernels(operators: Sequence[str]) -> tuple[Any, ...]:
    """The same operators written in Python: torch's decompositions, and its reference implementations."""
    names, found = set(operators), list[Any]()
    for table in _decompositions():
        for operator, function in table.items():
            if getattr(operator, "name", lambda: "")() in names:
                found.append(function)
    short = {each.partition("::")[2].partition(".")[0] for each in names}
    modules = [sys.modules[each] for each in DECOMPOSED if each in sys.modules]
    found += [getattr(module, each) for module in modules for each in short if hasattr(module, each)]
    return tuple(found)


def _decompositions() -> Iterator[dict[Any, Callable[..., Any]]]:
    """Torch's tables from operators to Python functions, where that part of torch is loaded."""
    module = sys.modules.get("torch._decomp")
    if module is not None:
        yield from module.global_decomposition_table.values()
