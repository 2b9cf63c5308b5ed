"""The collectives of torch.distributed, called with what a Call says.

    call, gives, takes  --contiguous copies-->  gloo or NCCL  --begun-->  Begun: wait, then write into `takes`

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
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import distributed_c10d as c10d

from course.cluster.calls import TORCH_OPS, Call, Kind, Tensors
from course.cluster.protocol.matching import divided, reduced

# A mean is a sum that is divided here, as on every transport. torch documents AVG for NCCL alone, which divides before
# it adds, and so does not overflow in float16 where ours does.
OPS = TORCH_OPS | {"mean": dist.ReduceOp.SUM}


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


def begin(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    """Begin a collective: `gives` have been copied when it returns."""
    return _BEGIN[call.verb](backend, call, gives, takes)


def packed(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: a contiguous copy, uint8 of shape (bytes,). Any dtype can be moved so."""
    return _copied(tensor).view(-1).view(torch.uint8)


def room(kind: Kind, device: torch.device) -> Tensor:
    """Where the bytes of a tensor of this kind can be written."""
    return torch.empty(kind.bytes, dtype=torch.uint8, device=device)


def unpack(data: Tensor, into: Tensor) -> None:
    """Write bytes into a tensor, whatever its strides."""
    into.detach().copy_(_seen_as(data, into))


def _seen_as(data: Tensor, other: Tensor) -> Tensor:
    """Bytes as a tensor of the dtype and shape of another."""
    aligned = data.clone() if data.storage_offset() % other.dtype.itemsize else data
    return aligned.view(other.dtype).view(other.shape)


def _copied(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor.detach(), memory_format=torch.contiguous_format).copy_(tensor.detach())


def _barrier(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    return Begun(backend.barrier(c10d.BarrierOptions()), lambda: None)


def _broadcast(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    options = _rooted(c10d.BroadcastOptions(), call)
    data = packed(takes[0])
    return Begun(backend.broadcast([data], options), lambda: unpack(data, takes[0]))


def _all_reduce(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    if _is_complex_product(call):
        return _gathered_product(backend, call, gives, takes)
    options = _reducing(c10d.AllreduceOptions(), call)
    whole = _copied(gives[0])
    return Begun(backend.allreduce([_as_real(whole)], options), lambda: _combined(call, whole, takes))


def _reduce(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    if _is_complex_product(call):
        return _gathered_product(backend, call, gives, takes)
    options = _rooted(_reducing(c10d.ReduceOptions(), call), call)
    whole = _copied(gives[0])
    return Begun(backend.reduce([_as_real(whole)], options), lambda: _combined(call, whole, takes))


def _reduce_scatter(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    """gloo's own is an all_reduce of every piece (pytorch/pytorch#149869): there a rank gets its pieces, and adds."""
    if gives[0].device.type == "cpu" or _is_complex_product(call):
        sent = torch.cat([packed(each) for each in gives])
        come = torch.empty_like(sent)
        work = backend.alltoall_base(come, sent, [], [], c10d.AllToAllOptions())
        return Begun(work, lambda: _reduce_rows(call, come, takes[0]))
    options = _reducing(c10d.ReduceScatterOptions(), call)
    own = _copied(gives[0])
    work = backend.reduce_scatter([_as_real(own)], [[_as_real(_copied(each)) for each in gives]], options)
    return Begun(work, lambda: _combined(call, own, takes))


def _all_gather(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    come = [room(kind, gives[0].device) for kind in call.takes]
    return Begun(backend.allgather([come], [packed(gives[0])]), lambda: _unpack_all(come, takes))


def _gather(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    options = _rooted(c10d.GatherOptions(), call)
    come = [room(kind, gives[0].device) for kind in call.takes]
    work = backend.gather([come] if takes else [], [packed(gives[0])], options)
    return Begun(work, lambda: _unpack_all(come, takes))


def _scatter(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    options = _rooted(c10d.ScatterOptions(), call)
    own = room(call.takes[0], takes[0].device)
    work = backend.scatter([own], [[packed(each) for each in gives]] if gives else [], options)
    return Begun(work, lambda: unpack(own, takes[0]))


def _all_to_all(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    given, taken = [each.bytes for each in call.gives], [each.bytes for each in call.takes]
    sent = torch.cat([packed(each) for each in gives])
    come = torch.empty(sum(taken), dtype=torch.uint8, device=sent.device)
    work = backend.alltoall_base(come, sent, taken, given, c10d.AllToAllOptions())
    return Begun(work, lambda: _unpack_all(torch.split(come, taken), takes))


def _unpack_all(come: Tensors, takes: Tensors) -> None:
    for data, tensor in zip(come, takes, strict=True):
        unpack(data, tensor)


def _reduce_rows(call: Call, come: Tensor, into: Tensor) -> None:
    rows = come.view(len(call.group), call.takes[0].bytes)
    into.detach().copy_(reduced(call.op, [_seen_as(row, into) for row in rows]))


def _combined(call: Call, whole: Tensor, takes: Tensors) -> None:
    for tensor in takes:
        tensor.detach().copy_(divided(whole, len(call.group)) if call.op == "mean" else whole)


def _as_real(tensor: Tensor) -> Tensor:
    """The same memory as numbers that gloo and NCCL can add: they know no complex ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _is_complex_product(call: Call) -> bool:
    return call.op == "product" and call.kinds[0].dtype.is_complex


def _gathered_product(backend: Any, call: Call, gives: Tensors, takes: Tensors) -> Begun:
    """Everybody gets all tensors and multiplies: the parts of a complex product are not products of parts."""
    own = packed(gives[0])
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


_BEGIN: dict[str, Callable[[Any, Call, Tensors, Tensors], Begun]] = {
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
