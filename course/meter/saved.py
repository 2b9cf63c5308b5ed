"""What autograd saves for backward: every tensor that an op hands to it, in bytes.

forward: op --tensor--> pack hook: one row --a detached alias--> graph
backward:                                   graph --the alias--> op
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from course.meter.storage import Note, Row, not_counted, storage_bytes, weakly

APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


class SavedBytes:
    """What was saved so far: one row per saved tensor, each storage counted once.

    rows   in the order of saving. A tensor that two ops save has two rows, the second with 0 bytes
    total  bytes of all storages counted
    """

    def __init__(self, ignore: Iterable[Tensor] = ()) -> None:
        self.rows: list[Row] = []
        self._ignored = not_counted(ignore)
        self._counted: set[StorageWeakRef] = set()

    @property
    def total(self) -> int:
        """Bytes of all storages counted."""
        return sum(row.bytes for row in self.rows)

    def by_op(self) -> dict[str, int]:
        """Bytes by the name of the op that saved them first."""
        sums: dict[str, int] = {}
        for row in self.rows:
            sums[row.op] = sums.get(row.op, 0) + row.bytes
        return sums

    def add(self, op: str, tensor: Tensor) -> None:
        """One more saved tensor."""
        storage = weakly(tensor)
        note: Note = ""
        if storage in self._ignored:
            note = "ignored"
        elif storage in self._counted:
            note = "counted before"
        self._counted.add(storage)
        size = 0 if note else storage_bytes(tensor)
        self.rows.append(Row(op=op, shape=tuple(tensor.shape), dtype=tensor.dtype, bytes=size, note=note))


@contextmanager
def saved_bytes(ignore: Iterable[Tensor] = ()) -> Iterator[SavedBytes]:
    """Counts what autograd saves for backward in the body of the `with`.

    ignore  tensors whose storages do not count, such as `model.parameters()` or the input: they are the caller's
            anyway. Views of them (a transposed weight) are ignored too.

    An op is named by the call that a reader would see: `mul`, `linear`, `cross_entropy`, or the class of an
    `autograd.Function`; what `torch.compile` made is one op, `CompiledFunction`. What an op saves twice, as views of
    one storage, counts once.

    It does not see what a Function keeps in another way: an attribute (`ctx.x = x`), a closure, a global
    (`kept_bytes` does). It does not see what the body packs under hooks of its own, as `torch.utils.checkpoint`
    does, nor other threads. `torch.func.grad` refuses to run under hooks. It counts what was saved, not what is still
    alive. Dense tensors only.
    Source: torch.autograd.graph.saved_tensors_hooks.
    """
    meter = SavedBytes(ignore)
    names = _OpNames()

    def pack(tensor: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            meter.add(names.current or _function_class(sys._getframe(1)), tensor)
            return tensor.detach()  # the output itself would hold its own graph: a cycle that is never freed

    with names, saved_tensors_hooks(pack, _unchanged):
        yield meter


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


class _OpNames(TorchFunctionMode):
    """Knows the name of the torch function that is running: the outermost one, as the reader wrote it."""

    current = ""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():  # traced with the graph, the lines below would cut it into an op each
            return func(*args, **(kwargs or {}))
        before = self.current
        name = getattr(func, "__name__", "")
        self.current = before or name.removeprefix("__").removesuffix("__")
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.current = before


def _function_class(frame: FrameType) -> str:
    """The name of the `autograd.Function` whose `apply` is saving, or "": no torch function runs then."""
    return str(frame.f_locals["cls"].__name__) if frame.f_code is APPLY else ""
