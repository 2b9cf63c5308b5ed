"""Kernels of torch's dispatcher that raise, or that no longer record.

    F.silu, nn.SiLU, torch._C._nn.silu, torch.ops.aten.silu --dispatcher--> kernel of aten::silu: raises
    any operator --Autograd key: falls through--> kernel of the CPU: a value, and no graph

All of Python, C++, TorchScript and every thread go through the one table that is changed here. Under the Autograd key
stand the formulas of reverse and of forward mode, so without those kernels nothing in the process is differentiated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograder.sandbox.inside.removed.refusal import refusal
from course.performing.removals import AUTOCAST, AUTOGRAD, SWITCHES, all_operators

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
    raising = [Kernel(operator=each, key=key, raises=True) for each in operators for key in KEYS if has(each, key)]
    return (*raising, *(_recording(set(operators)) if name in AUTOGRAD else ()))


def _recording(besides: set[str]) -> Iterator[Kernel]:
    """The Autograd kernel of every operator but those that write into `out`, which refuse to record anyway."""
    for each in all_operators():
        other = each.startswith("aten::") and not each.endswith("out") and each not in besides
        if other and torch._C._dispatch_has_kernel_for_dispatch_key(each, "Autograd"):
            yield Kernel(operator=each, key="Autograd", raises=False)


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
