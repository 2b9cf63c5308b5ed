"""Storages: the pieces of memory behind tensors.

Several tensors may share one storage (a view, a transpose, `detach`), and a small view keeps the whole of it
alive. So memory is counted by storage, each once, with all of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from course.errors import BadArgument

Note = Literal["", "counted before", "ignored"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One tensor that an instrument saw.

    op     the operation that saved or made it; "" where that is not known
    bytes  what it adds to the total: all bytes of its storage, or 0 where `note` says why not
    """

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    note: Note = ""


def unwrapped(tensor: Tensor) -> Tensor:
    """The dense tensor inside what `torch.func` wraps around it, which owns no storage; of a vmap, all rows."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def weakly(tensor: Tensor) -> StorageWeakRef:
    """A weak reference to the storage of a dense tensor; equal for tensors that share it.

    While the reference lives, no new storage is taken for the old one, even if it lies at the same address.
    """
    return StorageWeakRef(unwrapped(tensor).untyped_storage())  # type: ignore[no-untyped-call]


def address(tensor: Tensor) -> int:
    """Where the storage of a dense tensor lies: equal for tensors that share it, as long as one of them, or a weak
    reference to it, is there.
    """
    return int(unwrapped(tensor).untyped_storage()._cdata)


def not_counted(ignore: Iterable[Tensor]) -> set[StorageWeakRef]:
    """The storages of tensors that are not to count. Raises BadArgument for anything else, such as a module."""
    found = list(ignore) if isinstance(ignore, Iterable) else [ignore]
    for each in found:
        if not isinstance(each, Tensor):
            raise BadArgument(f"ignore must hold tensors, such as model.parameters(), got {type(each).__name__}")
    return {weakly(each) for each in found}


def storage_bytes(tensor: Tensor) -> int:
    """The size of the storage behind a tensor: not less than the tensor's own bytes."""
    return tensor.untyped_storage().nbytes()


def bytes_now(at: int) -> int | None:
    """The size of a storage to which there is a weak reference: None where it was freed, 0 where it was emptied by
    `resize_`.
    """
    storage = torch.UntypedStorage._new_with_weak_ptr(at)
    return None if storage is None else int(storage.nbytes())
