"""The collectives of torch.distributed, called with what a Call says.

    call, gives, takes  --contiguous copies-->  gloo or NCCL  --begun-->  Begun: wait, then write into `takes`
                        --in place, where the rank waits at once-->

In place a rank hands over its tensors themselves, else copies as bytes, which gloo can move of any dtype. Ranks of one
call need not do the same: what goes over the wire are bytes.

Groups are made here and not with `dist.new_group`: with use_local_synchronization it names a group by its ranks and by
how many groups the process has already (torch 2.13, `_hash_ranks_to_str`), so that two ranks of which one has made
another group before would wait for each other for ever; without, all ranks of the run must call it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, Store
from torch.autograd.graph import increment_version
from torch.distributed import distributed_c10d as c10d

from course.cluster.calls import TORCH_OPS, Call, Tensors
from course.cluster.protocol.matching import divided, reduced

# A mean is a sum that is divided here, as on every transport. torch documents AVG for NCCL alone, which divides before
# it adds, and so does not overflow in float16 where ours does.
OPS = TORCH_OPS | {"mean": dist.ReduceOp.SUM}
# The dtypes of tensors that gloo moves as they are.
MOVABLE = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
    }
)
WHOLE = {torch.float64: torch.int64, torch.float32: torch.int32}  # of as many bits
WIDE = {whole: wide for wide, whole in WHOLE.items()}


class Begun(NamedTuple):
    """A collective on its way; `finish` writes what came, once `work` is done."""

    work: Any
    finish: Callable[[], None]


def connected(store: Store, name: str, rank: int, size: int, *, device: torch.device, seconds: float) -> Any:
    """The backend of a new group of `size` processes, of which this is `rank`; all must call with the same name.

    seconds  that a call may take
    """
    store, timeout = PrefixStore(f"course/{name}", store), timedelta(seconds=seconds)
    if device.type != "cuda":
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def begin(backend: Any, call: Call, gives: Tensors, takes: Tensors, *, in_place: bool) -> Begun:
    """Begin a collective: `gives` have been copied when it returns, unless it works in place.

    in_place  whether it may read and write the tensors themselves: its rank waits for it at once
    """
    tensors = gives if takes is gives else (*gives, *takes)
    in_place = in_place and all(each.is_cpu and is_plain(each) for each in tensors)
    return _BEGIN[call.verb](backend, call, gives, takes, in_place)


def is_plain(tensor: Tensor) -> bool:
    """Whether its memory holds its elements in their order, and nothing else."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def copied(tensor: Tensor) -> Tensor:
    """A contiguous copy."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def room(tensor: Tensor) -> Tensor:
    """Where the bytes of such a tensor can be written, uint8 of shape (bytes,)."""
    return torch.empty(tensor.nbytes, dtype=torch.uint8, device=tensor.device)


def unpack(data: Tensor, into: Tensor) -> None:
    """Write what has come into a tensor, whatever its strides, where it has not come into the tensor itself."""
    if data.data_ptr() == into.data_ptr():
        increment_version(into)  # as a copy would: so autograd knows, where it has saved the tensor
    else:
        into.detach().copy_(_seen_as(data, into))


def _seen_as(data: Tensor, other: Tensor) -> Tensor:
    """Data, as a tensor of the dtype and shape of another where it is bytes."""
    if data.dtype == other.dtype:
        return data.view(other.shape)
    aligned = data.clone() if data.storage_offset() % other.itemsize else data
    return aligned.view(other.dtype).view(other.shape)


def _bytes(tensor: Tensor) -> Tensor:
    """Of a contiguous tensor: its memory, uint8 of shape (bytes,)."""
    return tensor.view(-1).view(torch.uint8)


def _flat(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Its elements or its bytes in a row."""
    row = (tensor.detach() if is_plain(tensor) else copied(tensor)).view(-1)
    return row if row.dtype == dtype else row.view(torch.uint8)


def _movable(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in MOVABLE else _bytes(tensor)


def _given(tensor: Tensor, in_place: bool) -> Tensor:
    """What is sent of a tensor: itself, or a copy."""
    return _movable(tensor.detach()) if in_place else _bytes(copied(tensor))


def _taken(tensor: Tensor, in_place: bool) -> Tensor:
    """Where a tensor is received."""
    return _movable(tensor.detach()) if in_place else room(tensor)


def _row(tensors: Tensors) -> Tensor | None:
    """The memory of plain tensors of one kind that lie one after the other in it; None where they do not."""
    first = _movable(tensors[0].detach())
    memory, at = first.untyped_storage().data_ptr(), first.data_ptr()
    for place, each in enumerate(tensors):
        if each.data_ptr() != at + place * first.nbytes or each.untyped_storage().data_ptr() != memory:
            return None
    return first.as_strided((len(tensors) * first.numel(),), (1,))


def _barrier(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    return Begun(backend.barrier(c10d.BarrierOptions()), lambda: None)


def _broadcast(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    options = _rooted(c10d.BroadcastOptions(), call)
    data = _given(takes[0], in_place)
    return Begun(backend.broadcast([data], options), lambda: unpack(data, takes[0]))


def _all_reduce(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    if _is_complex_product(call):
        return _gathered_product(backend, call, gives, takes)
    options = _reducing(c10d.AllreduceOptions(), call)
    whole = _combinable(call, gives[0].detach() if in_place else copied(gives[0]))
    return Begun(backend.allreduce([_as_real(whole)], options), lambda: _combined(call, whole, takes))


def _reduce(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    """gloo's own also writes into the tensors of those who are not the root."""
    if _is_complex_product(call):
        return _gathered_product(backend, call, gives, takes)
    options = _rooted(_reducing(c10d.ReduceOptions(), call), call)
    whole = _combinable(call, gives[0].detach() if in_place and takes else copied(gives[0]))
    return Begun(backend.reduce([_as_real(whole)], options), lambda: _combined(call, whole, takes))


def _reduce_scatter(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    """gloo's own is an all_reduce of every piece (pytorch/pytorch#149869): there a rank gets its pieces, and adds."""
    if gives[0].device.type == "cpu" or _is_complex_product(call):
        row = _row(gives) if in_place else None
        sent = _movable(torch.stack([each.detach() for each in gives])) if row is None else row
        come = torch.empty_like(sent)
        work = backend.alltoall_base(come, sent, [], [], c10d.AllToAllOptions())
        return Begun(work, lambda: _reduce_rows(call, come, takes[0]))
    options = _reducing(c10d.ReduceScatterOptions(), call)
    pieces = [_combinable(call, copied(each)) for each in gives]
    own = pieces[0].clone()
    work = backend.reduce_scatter([_as_real(own)], [[_as_real(each) for each in pieces]], options)
    return Begun(work, lambda: _combined(call, own, takes))


def _all_gather(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    row = _row(takes) if in_place else None
    if row is not None:
        work = backend._allgather_base(row, _given(gives[0], in_place).view(-1), AllgatherOptions())
        return Begun(work, lambda: increment_version(takes))
    come = [_taken(each, in_place) for each in takes]
    return Begun(backend.allgather([come], [_given(gives[0], in_place)]), lambda: _unpack_all(come, takes))


def _gather(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    options = _rooted(c10d.GatherOptions(), call)
    come = [_taken(each, in_place) for each in takes]
    work = backend.gather([come] if takes else [], [_given(gives[0], in_place)], options)
    return Begun(work, lambda: _unpack_all(come, takes))


def _scatter(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    options = _rooted(c10d.ScatterOptions(), call)
    own = _taken(takes[0], in_place)
    work = backend.scatter([own], [[_given(each, in_place) for each in gives]] if gives else [], options)
    return Begun(work, lambda: unpack(own, takes[0]))


def _all_to_all(backend: Any, call: Call, gives: Tensors, takes: Tensors, in_place: bool) -> Begun:
    dtypes = {kind.dtype for kind in (*call.gives, *call.takes)}
    is_one = len(dtypes) == 1 and dtypes <= MOVABLE
    dtype = dtypes.pop() if is_one else torch.uint8
    given, taken = ([each.nbytes // dtype.itemsize for each in tensors] for tensors in (gives, takes))
    sent = _in_a_row(gives) if in_place and is_one else torch.cat([_flat(each, dtype) for each in gives])
    come = torch.empty(sum(taken), dtype=dtype, device=sent.device)
    work = backend.alltoall_base(come, sent, taken, given, c10d.AllToAllOptions())
    return Begun(work, lambda: _unpack_row(come, takes) if is_one else _unpack_all(torch.split(come, taken), takes))


def _unpack_all(come: Tensors, takes: Tensors) -> None:
    for data, tensor in zip(come, takes, strict=True):
        unpack(data, tensor)


# Small tensors of one dtype are copied all at once: one by one takes four times as long.
def _in_a_row(tensors: Tensors) -> Tensor:
    """A copy of the elements of plain tensors."""
    detached = [each.detach() for each in tensors]
    return torch._utils._flatten_dense_tensors(detached)  # type: ignore[no-any-return, no-untyped-call]


def _unpack_row(come: Tensor, takes: Tensors) -> None:
    pieces = torch._utils._unflatten_dense_tensors(come, takes)  # type: ignore[no-untyped-call]
    torch._foreach_copy_([each.detach() for each in takes], pieces)


def _reduce_rows(call: Call, come: Tensor, into: Tensor) -> None:
    values = come if come.dtype == into.dtype else come.view(into.dtype)
    rows = values.view(len(call.group), *into.shape).unbind()
    into.detach().copy_(reduced(call.op, rows, in_first=True))


def _combined(call: Call, whole: Tensor, takes: Tensors) -> None:
    if call.op == "mean":
        divided(whole, len(call.group))
    if whole.dtype != call.kinds[0].dtype:
        whole = _in_order(whole).view(WIDE[whole.dtype]).to(call.kinds[0].dtype)
    for tensor in takes:
        unpack(whole, tensor)


def _combinable(call: Call, tensor: Tensor) -> Tensor:
    """What gloo and NCCL combine in place of a tensor: itself, unless it is floating and they may lose a nan of it.

    For a maximum or minimum it is whole numbers in the same order, among which nan is the largest or the smallest.
    """
    if call.op not in ("max", "min") or not tensor.is_floating_point():
        return tensor
    wide = tensor if tensor.dtype in WHOLE else tensor.to(torch.float32)
    whole = _in_order(wide.view(WHOLE[wide.dtype]))
    limits = torch.iinfo(whole.dtype)
    return whole.masked_fill_(wide.isnan(), limits.max if call.op == "max" else limits.min)


def _in_order(bits: Tensor) -> Tensor:
    """The bits of floating numbers as whole numbers that are in the same order, and back: a copy.

    Bits of negative numbers are a sign and a size, so that as whole numbers they grow where the numbers fall.
    """
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def _as_real(tensor: Tensor) -> Tensor:
    """The same memory as numbers that gloo and NCCL can add: they know no complex ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _is_complex_product(call: Call) -> bool:
    return call.op == "product" and call.kinds[0].dtype.is_complex


def _gathered_product(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    """Everybody gets all tensors and multiplies: the parts of a complex product are not products of parts."""
    own = _bytes(copied(gives[0]))
    come = [torch.empty_like(own) for _ in call.group]

    def finish() -> None:
        for tensor in takes:
            tensor.detach().copy_(reduced(call.op, [_seen_as(data, tensor) for data in come]))

    return Begun(backend.allgather([come], [own]), finish)


def _reducing(options: Any, call: Call) -> Any:
    options.reduceOp = OPS[call.op]
    return options


def _rooted(options: Any, call: Call) -> Any:
    options.rootRank = call.group.index(-1 if call.peer is None else call.peer)
    return options


_BEGIN: dict[str, Callable[[Any, Call, Tensors, Tensors, bool], Begun]] = {
    "barrier": _barrier,
    "broadcast": _broadcast,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
}
