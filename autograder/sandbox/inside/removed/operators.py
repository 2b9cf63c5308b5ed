"""Kernels of torch's dispatcher that raise, or that no longer record.

    F.silu, nn.SiLU, torch._C._nn.silu, torch.ops.aten.silu --dispatcher--> kernel of aten::silu: raises
    aten::_grad_sum_to_size --TorchScript's table--> known to nobody
    any operator --Autograd key: falls through--> kernel of the CPU: a value, and no graph

All of Python, C++, TorchScript and every thread go through the one table that is changed here; what TorchScript has in
one of its own goes from there. Under the Autograd key stand the formulas of reverse and of forward mode, so without
those kernels nothing in the process is differentiated.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograder.sandbox.inside.removed.refusal import refusal
from course.performing.removals import AUTOCAST, AUTOGRAD, CASTS, SWITCHES, all_operators, scripted_operators

BACKENDS = ("CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU", "QuantizedCPU", "CUDA", "ZeroTensor")
KEYS = (*BACKENDS, "Autograd", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel in the dispatcher's table: to be replaced by one that raises, or by none."""

    operator: str
    key: str
    raises: bool


def kernels_of(name: str, operators: Sequence[str]) -> tuple[Kernel, ...]:
    """The kernels to replace: all of the family's operators, and for autograd those that record graphs."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    dispatched = [each for each in operators if each not in scripted_operators()]
    raising = [Kernel(operator=each, key=key, raises=True) for each in dispatched for key in KEYS if has(each, key)]
    own = (*(_recording(set(operators)) if name in AUTOGRAD else ()), *(_casting() if name in AUTOCAST else ()))
    return (*raising, *own)


def _recording(besides: set[str]) -> Iterator[Kernel]:
    """The Autograd kernel of every operator but those that write into `out`, which refuse to record anyway."""
    for each in all_operators():
        other = each.startswith("aten::") and not each.endswith("out") and each not in besides
        if other and torch._C._dispatch_has_kernel_for_dispatch_key(each, "Autograd"):
            yield Kernel(operator=each, key="Autograd", raises=False)


def _casting() -> Iterator[Kernel]:
    """Autocast's own kernels, which can be called by their key, whatever the switches say."""
    for each in all_operators():
        for key in CASTS:
            if torch._C._dispatch_has_kernel_for_dispatch_key(each, key):
                yield Kernel(operator=each, key=key, raises=True)


def override(kernels: Sequence[Kernel], name: str) -> None:
    """Replaces them for the rest of the process; about 15 microseconds each."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise refusal(name)

    for switch in SWITCHES if name in AUTOCAST else ():
        setattr(torch, switch, refuse)
        setattr(torch._C, switch, refuse)
    if not kernels:
        return

    for space in {each.operator.partition("::")[0] for each in kernels}:
        library = torch._C._dispatch_library("IMPL", space, "", "", 0)
        for each in kernels:
            if each.operator.startswith(f"{space}::"):
                does = refuse if each.raises else torch.library.fallthrough_kernel
                library.impl(each.operator.partition("::")[2], each.key, does)
        # When the last reference goes, torch puts the kernels back. This one belongs to nobody, so nobody can drop it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    if name in AUTOGRAD:  # TorchScript has formulas of its own, which need no graph that was recorded
        torch._C._jit_differentiate = refuse  # type: ignore[attr-defined]
    # A kernel that torch.library.get_kernel handed out before does not go through the table.
    torch._C._SafeKernelFunction.call_boxed = refuse  # type: ignore[method-assign]


def scripts_of(operators: Sequence[str]) -> tuple[Any, ...]:
    """The schemas of those that TorchScript alone knows."""
    found = tuple(scripted_operators()[each] for each in operators if each in scripted_operators())
    if found:
        _forgetting()  # once, for all processes that are forked from this one
    return found


def forget(schemas: Sequence[Any]) -> None:
    """Takes operators out of TorchScript's table for the rest of the process; 30 microseconds each."""
    for each in schemas:
        held = ctypes.c_void_p.from_address(id(each) + object.__basicsize__)  # where pybind11 keeps what it wraps
        _forgetting()(held)


@functools.cache
def _forgetting() -> Any:
    """torch::jit::deregisterOperator, which Python has no name for."""
    function = ctypes.CDLL(torch._C.__file__)["_ZN5torch3jit18deregisterOperatorERKN3c1014FunctionSchemaE"]
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    return function
