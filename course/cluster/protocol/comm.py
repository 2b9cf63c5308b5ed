"""What a rank can say to the others, whatever carries it: torch.distributed's verbs, as methods.

    def all_reduce_by_hand(comm: Comm, x: Tensor) -> None:      the same function on simulated ranks,
        ...                                                     gloo, NCCL and brokered ranks

words
    rank        one process (or thread) of a run, numbered from 0; also its number
    group       some of the ranks. A communicator speaks to one group, and its ranks count from 0 in it
    collective  a verb that every rank of a group must call, in the same order, with tensors of one dtype and shape
                (all_to_all: the same for each pair; torch allows more in some places)
    eager       `send` returns as soon as the data is copied, whether or not anybody receives it

`torch.distributed.send` and MPI's promise no such thing: two ranks that both send first may wait for each other there.
With torch alone use isend and irecv, or batch_isend_irecv. `Simulated(send="rendezvous")` shows who needs eager sends.

Unlike torch.distributed, whose `src` and `dst` are ranks of the whole run (`group_src` and `group_dst`: of the group),
a group is a communicator of its own here, as in MPI: code written for `comm` runs on `comm.subgroup([0, 2])` unchanged.

Every transport has the same communicator, which checks arguments and makes a Call of them; a port carries it:

    comm.all_reduce(x)  --checked-->  Call, [x], [x]  --port.perform, port.begin-->  x is overwritten
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, overload

import torch
from torch import Tensor

from course.cluster.calls import (
    REDUCING,
    Call,
    Kind,
    Op,
    Tensors,
    check_group,
    check_op,
    check_peer,
    check_place,
    check_tag,
    check_tensors,
    offers_groups,
)
from course.cluster.protocol import objects
from course.cluster.protocol.work import Pending, Work
from course.errors import BadArgument

__all__ = ["Comm", "P2POp", "Port", "Work"]


class Port(Protocol):
    """What a transport offers one rank. `gives` are read and `takes` are written; they may be the same tensors."""

    @property
    def device(self) -> torch.device:
        """Where tensors must lie."""

    @property
    def needs_data(self) -> bool:
        """Whether tensors must have data; else those without are counted, and nothing is written to them."""

    def perform(self, call: Call, gives: Tensors, takes: Tensors) -> int:
        """Make a call and wait for it. Returns the sender, as a rank of the group, where the call is a receive."""

    def begin(self, call: Call, gives: Tensors, takes: Tensors) -> Pending:
        """Make a call that is waited for later."""

    def compute(self, seconds: float, label: str) -> None:
        """The rank computes."""


class P2POp(NamedTuple):
    """One message of a batch. op: `comm.isend` or `comm.irecv`; peer: the rank to which, or from which."""

    op: Callable[..., Work]
    tensor: Tensor
    peer: int | None
    tag: int = 0


Batch: TypeAlias = Sequence[P2POp]


class Comm:
    """One rank's way to the others. In every verb `src` and `dst` are ranks of this communicator's group.

    Tensors may have any strides. Those that take part in one call must have the same dtype and shape on every rank;
    another kind is told to all, never converted. Values are combined in their own dtype, in an order that the transport
    chooses. Raises BadArgument on what makes no sense by itself; what does not fit the others' calls ends the run.
    """

    P2POp = P2POp  # so that `dist.P2POp(dist.isend, x, 1)` becomes `comm.P2POp(comm.isend, x, 1)`

    def __init__(
        self,
        port: Port,
        group: tuple[int, ...],
        me: int,
        verbs: Collection[str] | None = None,
        *,
        made: Counter[tuple[int, ...]] | None = None,
    ) -> None:
        """For a transport. group: ranks of the whole run, `me` is one of them; verbs: that are offered, None: all.

        made  how many groups this rank has made of which ranks, this one not counted; None: this is its first
        """
        self._port, self._group, self._me, self._verbs = port, group, me, verbs
        self._rank = group.index(me)
        self._contexts = Counter() if made is None else made
        self._context = self._contexts[group]
        self._contexts[group] += 1
        self._known: dict[object, Call] = {}

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    @property
    def rank(self) -> int:
        """The own number in this group, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks the group has: torch's world size, for the group of all."""
        return len(self._group)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The group's members, as ranks of the whole run."""
        return self._group

    @property
    def device(self) -> torch.device:
        """Where tensors must lie to be sent."""
        return self._port.device

    # --- from one rank to another ---

    # A tag is a number of the program's own: messages of different tags do not wait for one another. torch has it too,
    # with gloo; torch's NCCL ignores it and takes messages in their order, so that code for both must keep that order.

    def send(self, tensor: Tensor, dst: int, *, tag: int = 0) -> None:
        """Send a copy of `tensor` to `dst`; returns at once (eager), but see `Simulated(send="rendezvous")`."""
        gives = _one(tensor)
        self._port.perform(self._made("send", gives, (), peer=self._peer("dst", dst), tag=tag), gives, ())

    def recv(self, tensor: Tensor, src: int | None = None, *, tag: int = 0) -> int:
        """Wait for the next message from `src` with this tag, write it into `tensor`, and return its sender.

        Messages of one sender and tag come in the order in which they were sent. With None for `src` it is a message of
        anybody that was sent already (simulated and brokered ranks draw whose, by the seed), else the first one sent.
        """
        takes = _one(tensor)
        return self._port.perform(self._made("recv", (), takes, peer=self._source(src), tag=tag), (), takes)

    def isend(self, tensor: Tensor, dst: int, *, tag: int = 0) -> Work:
        """`send`, which reads `tensor` at some time before `wait` returns."""
        return self._begun("send", _one(tensor), (), peer=self._peer("dst", dst), tag=tag)

    def irecv(self, tensor: Tensor, src: int | None = None, *, tag: int = 0) -> Work:
        """`recv`, which writes `tensor` at some time before `wait` returns."""
        return self._begun("recv", (), _one(tensor), peer=self._source(src), tag=tag)

    def batch_isend_irecv(self, ops: Batch) -> list[Work]:
        """Begin several messages: `[comm.P2POp(comm.isend, x, 1), comm.P2POp(comm.irecv, y, 1)]`.

        As `isend` and `irecv` one after the other, which wait for nobody either. Messages of the same two ranks and tag
        keep the order of the list.
        """
        known = (self.isend, self.irecv)
        listed = ops if isinstance(ops, Sequence) else [ops]
        strange = [op for op in listed if not isinstance(op, P2POp) or op.op not in known]
        if strange or not ops:
            came = str(getattr(strange[0], "op", strange[0]))[:100] if strange else "none"
            raise BadArgument(
                "ops must be a list of messages of this communicator, comm.P2POp(comm.isend, tensor, dst) or "
                f"comm.P2POp(comm.irecv, tensor, src), got {came}"
            )
        return [op.op(op.tensor, op.peer, tag=op.tag) for op in ops]

    # --- collectives ---

    @overload
    def broadcast(self, tensor: Tensor, src: int, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def broadcast(self, tensor: Tensor, src: int, *, async_op: Literal[True]) -> Work: ...
    def broadcast(self, tensor: Tensor, src: int, *, async_op: bool = False) -> Work | None:
        """Every rank's `tensor` becomes that of `src`."""
        root = check_peer("src", src, self._group)
        takes = _one(tensor)
        return self._call("broadcast", takes if root == self._me else (), takes, peer=root, async_op=async_op)

    @overload
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: Literal[True]) -> Work: ...
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: bool = False) -> Work | None:
        """Every rank's `tensor` becomes the sum (mean, max, min, product) of all ranks' tensors.

        op is also torch.distributed's: "avg", "prod" or a ReduceOp. A mean is the sum, divided by the number of ranks
        afterwards: in float16 it may overflow where an average of divided values would not. Tensors of whole numbers
        have none, and complex ones neither maximum nor minimum. Of booleans max is any, min and product are all. Where
        one rank has nan, maximum and minimum are nan (torch.distributed with gloo may lose it).
        """
        both = _one(tensor)
        return self._call("all_reduce", both, both, op=op, async_op=async_op)

    @overload
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: Literal[False] = False) -> None: ...
    @overload
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: Literal[True]) -> Work: ...
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: bool = False) -> Work | None:
        """`tensor` of `dst` becomes the sum of all ranks' tensors; the others keep theirs."""
        root = check_peer("dst", dst, self._group)
        gives = _one(tensor)
        return self._call("reduce", gives, gives if root == self._me else (), peer=root, op=op, async_op=async_op)

    @overload
    def all_gather(self, tensors: Sequence[Tensor], tensor: Tensor, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather(self, tensors: Sequence[Tensor], tensor: Tensor, *, async_op: Literal[True]) -> Work: ...
    def all_gather(self, tensors: Tensors, tensor: Tensor, *, async_op: bool = False) -> Work | None:
        """`tensors[r]` becomes rank r's `tensor`, on every rank."""
        takes = check_tensors("tensors", tensors, self.size)
        _check_pieces("tensors", takes[0], "tensor", tensor)
        return self._call("all_gather", _one(tensor), takes, async_op=async_op)

    @overload
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: Literal[True]) -> Work: ...
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: bool = False) -> Work | None:
        """`all_gather` into one tensor: `output` is (size * n, ...) where `tensor` is (n, ...), in the order of ranks.

        The same verb as `all_gather` in ledgers. Until torch 2.12 torch.distributed named it all_gather_into_tensor; it
        also takes an output of shape (size, n, ...) there.
        """
        pieces = _pieces("output", output, "tensor", tensor, self.size)
        return self._call("all_gather", _one(tensor), pieces, async_op=async_op, whole=output)

    @overload
    def reduce_scatter(
        self, tensor: Tensor, tensors: Sequence[Tensor], op: Op = "sum", *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def reduce_scatter(
        self, tensor: Tensor, tensors: Sequence[Tensor], op: Op = "sum", *, async_op: Literal[True]
    ) -> Work: ...
    def reduce_scatter(
        self, tensor: Tensor, tensors: Tensors, op: Op = "sum", *, async_op: bool = False
    ) -> Work | None:
        """`tensor` of rank r becomes the sum of all ranks' `tensors[r]`."""
        gives = check_tensors("tensors", tensors, self.size)
        _check_pieces("tensors", gives[0], "tensor", tensor)
        return self._call("reduce_scatter", gives, _one(tensor), op=op, async_op=async_op)

    @overload
    def reduce_scatter_single(
        self, output: Tensor, tensor: Tensor, op: Op = "sum", *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def reduce_scatter_single(
        self, output: Tensor, tensor: Tensor, op: Op = "sum", *, async_op: Literal[True]
    ) -> Work: ...
    def reduce_scatter_single(
        self, output: Tensor, tensor: Tensor, op: Op = "sum", *, async_op: bool = False
    ) -> Work | None:
        """`reduce_scatter` from one tensor: `output` is (n, ...) where `tensor` is (size * n, ...).

        Until torch 2.12 torch.distributed named it reduce_scatter_tensor.
        """
        pieces = _pieces("tensor", tensor, "output", output, self.size)
        return self._call("reduce_scatter", pieces, _one(output), op=op, async_op=async_op)

    @overload
    def all_to_all(
        self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def all_to_all(self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], *, async_op: Literal[True]) -> Work: ...
    def all_to_all(self, outputs: Tensors, tensors: Tensors, *, async_op: bool = False) -> Work | None:
        """`outputs[s]` of rank r becomes `tensors[r]` of rank s. Sizes may differ from pair to pair, also be 0."""
        gives = check_tensors("tensors", tensors, self.size, alike=False)
        takes = check_tensors("outputs", outputs, self.size, alike=False)
        _check_pieces("outputs", takes[self.rank], "tensors[rank]", gives[self.rank])
        return self._call("all_to_all", gives, takes, async_op=async_op)

    @overload
    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        *,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        *,
        async_op: Literal[True],
    ) -> Work: ...
    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """`all_to_all` of the rows of one tensor: `tensor` is cut along dim 0 into a piece for each rank, and `output`
        becomes the pieces that come, in the order of ranks.

        input_split_sizes   rows of each piece of `tensor`; None or []: equal ones
        output_split_sizes  rows that come from each rank, into `output`

        The same verb as `all_to_all` in ledgers.
        """
        gives = _rows("tensor", tensor, "input_split_sizes", input_split_sizes, self.size)
        takes = _rows("output", output, "output_split_sizes", output_split_sizes, self.size)
        _check_pieces("output's pieces", takes[self.rank], "the own piece of tensor", gives[self.rank])
        return self._call("all_to_all", gives, takes, async_op=async_op, whole=output)

    @overload
    def gather(
        self, tensor: Tensor, tensors: Tensors | None = None, dst: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def gather(
        self, tensor: Tensor, tensors: Tensors | None = None, dst: int = 0, *, async_op: Literal[True]
    ) -> Work: ...
    def gather(
        self, tensor: Tensor, tensors: Tensors | None = None, dst: int = 0, *, async_op: bool = False
    ) -> Work | None:
        """`tensors[r]` of `dst` becomes rank r's `tensor`; `tensors` of the others is ignored."""
        root = check_peer("dst", dst, self._group)
        takes = self._list_of_root("tensors", tensors, tensor, root)
        return self._call("gather", _one(tensor), takes, peer=root, async_op=async_op)

    @overload
    def scatter(
        self, tensor: Tensor, tensors: Tensors | None = None, src: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def scatter(
        self, tensor: Tensor, tensors: Tensors | None = None, src: int = 0, *, async_op: Literal[True]
    ) -> Work: ...
    def scatter(
        self, tensor: Tensor, tensors: Tensors | None = None, src: int = 0, *, async_op: bool = False
    ) -> Work | None:
        """Rank r's `tensor` becomes `tensors[r]` of `src`; `tensors` of the others is ignored."""
        root = check_peer("src", src, self._group)
        gives = self._list_of_root("tensors", tensors, tensor, root)
        return self._call("scatter", gives, _one(tensor), peer=root, async_op=async_op)

    @overload
    def barrier(self, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def barrier(self, *, async_op: Literal[True]) -> Work: ...
    def barrier(self, *, async_op: bool = False) -> Work | None:
        """Returns when every rank of the group has called it; with `async_op` its `wait` does."""
        return self._call("barrier", (), (), async_op=async_op)

    # --- objects ---

    # As torch.distributed's: an object travels pickled, as bytes, after a first collective in which its length does. So
    # lists must have room for one object of each rank, and what comes is a copy, on every transport.

    def all_gather_object(self, object_list: list[Any], obj: Any) -> None:
        """`object_list[r]` becomes a copy of rank r's `obj`, on every rank."""
        objects.check_list("object_list", object_list, self.size)
        own, come, sizes = self._with_room(obj)
        self.all_gather(come, own)
        object_list[:] = [objects.unpickled(data[:size]) for data, size in zip(come, sizes, strict=True)]

    def gather_object(self, obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0) -> None:
        """`object_gather_list[r]` of `dst` becomes a copy of rank r's `obj`; that of the others is ignored."""
        is_root = check_peer("dst", dst, self._group) == self._me
        if is_root:
            objects.check_list("object_gather_list", object_gather_list, self.size)
        own, come, sizes = self._with_room(obj)
        self.gather(own, come, dst)
        if is_root and object_gather_list is not None:
            object_gather_list[:] = [objects.unpickled(data[:size]) for data, size in zip(come, sizes, strict=True)]

    def _with_room(self, obj: Any) -> tuple[Tensor, list[Tensor], list[int]]:
        """The object's bytes, room for those of every rank, all of the largest's size, and each rank's own size."""
        own = objects.pickled(obj)
        sizes = torch.empty(self.size, dtype=torch.int64, device=self.device)
        self.all_gather_single(sizes, torch.tensor([len(own)], device=self.device))
        largest = int(sizes.max())
        come = [torch.empty(largest, dtype=torch.uint8, device=self.device) for _ in range(self.size)]
        return objects.padded(own, largest, self.device), come, sizes.tolist()

    def broadcast_object_list(self, object_list: list[Any], src: int = 0) -> None:
        """Every rank's `object_list` becomes a copy of that of `src`; all must be of one length."""
        is_root = check_peer("src", src, self._group) == self._me
        objects.check_list("object_list", object_list)
        own = [objects.pickled(each) for each in object_list] if is_root else []
        sizes = torch.empty(len(object_list), dtype=torch.int64, device=self.device)
        if is_root:
            sizes.copy_(torch.tensor([len(each) for each in own]))
        self.broadcast(sizes, src)
        data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device=self.device)
        if is_root:
            data.copy_(torch.cat(own))
        self.broadcast(data, src)
        if not is_root:
            object_list[:] = [objects.unpickled(each) for each in torch.split(data, sizes.tolist())]

    def scatter_object_list(
        self, scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int = 0
    ) -> None:
        """`scatter_object_output_list[0]` of rank r becomes a copy of `scatter_object_input_list[r]` of `src`.

        The input list of the others is ignored.
        """
        is_root = check_peer("src", src, self._group) == self._me
        objects.check_list("scatter_object_output_list", scatter_object_output_list)
        own: list[Tensor] = []
        if is_root:
            objects.check_list("scatter_object_input_list", scatter_object_input_list, self.size)
            own = [objects.pickled(each) for each in scatter_object_input_list or ()]
        sizes = torch.tensor([len(each) for each in own] or [0] * self.size, device=self.device)
        self.broadcast(sizes, src)
        largest, size = int(sizes.max()), int(sizes[self.rank])
        data = torch.empty(largest, dtype=torch.uint8, device=self.device)
        self.scatter(data, [objects.padded(each, largest, self.device) for each in own], src)
        scatter_object_output_list[0] = objects.unpickled(data[:size])

    # --- groups and the clock ---

    def subgroup(self, ranks: Sequence[int]) -> Comm:
        """The communicator of some ranks of this group, in rising order; only they may call this.

        Every call makes another group, whose messages and collectives never meet those of one with the same ranks: all
        members must make their groups of the same ranks in the same order, and once, before the loop that uses them.
        Nothing is sent to make one; `torch.distributed.new_group` differs there, which every rank of the run must call
        (unless use_local_synchronization is given).
        """
        if not offers_groups(self._verbs):
            raise BadArgument("no groups may be made here: call what comm offers on comm itself")
        chosen = check_group(ranks, range(self.size))
        if self.rank not in chosen:
            raise BadArgument(f"only its members may make a group, but rank {self.rank} is none of {list(chosen)}")
        members = tuple(self._group[rank] for rank in chosen)
        return Comm(self._port, members, self._me, self._verbs, made=self._contexts)

    def mesh(self, **sizes: int) -> Mapping[str, Comm]:
        """One communicator for each axis of a mesh: `comm.mesh(dp=2, tp=4)["tp"]` is that of the four ranks that differ
        from this one in `tp` alone. The last axis runs fastest: ranks 0 to 3 share dp = 0. The product of the sizes
        must be the size of this group. As `torch.distributed.init_device_mesh`.
        """
        if any(type(size) is not int or size < 1 for size in sizes.values()) or math.prod(sizes.values()) != self.size:
            raise BadArgument(
                f"the sizes of a mesh must be >= 1 and their product {self.size}, whole numbers all, got {sizes}"
            )
        axes: dict[str, Comm] = {}
        stride = self.size
        for name, size in sizes.items():
            whole, stride = stride, stride // size  # of one step along the axis before, and along this one
            first = self.rank - self.rank % whole + self.rank % stride
            axes[name] = self.subgroup(range(first, first + whole, stride))
        return axes

    def compute(self, seconds: float, label: str = "") -> None:
        """Say that the rank computes for so long: its clock on simulated ranks moves on, others only write it down."""
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise BadArgument(f"seconds must be finite and at least 0, a number of Python's, got {seconds!r}")
        if not isinstance(label, str):
            raise BadArgument(f"a label must be a text, got {label!r}")
        self._port.compute(float(seconds), label)

    # --- making calls ---

    def _call(
        self,
        verb: str,
        gives: Tensors,
        takes: Tensors,
        *,
        peer: int | None = None,
        op: Op | None = None,
        async_op: bool = False,
        whole: Tensor | None = None,
    ) -> Work | None:
        """whole: the tensor whose pieces `takes` are, where it is one."""
        if async_op:
            return self._begun(verb, gives, takes, peer=peer, op=op, whole=whole)
        self._port.perform(self._made(verb, gives, takes, peer=peer, op=op), gives, takes)
        return None

    def _begun(
        self,
        verb: str,
        gives: Tensors,
        takes: Tensors,
        *,
        peer: int | None,
        op: Op | None = None,
        tag: int = 0,
        whole: Tensor | None = None,
    ) -> Work:
        call = self._made(verb, gives, takes, peer=peer, op=op, tag=tag)
        return Work(self._port.begin(call, gives, takes), call, (takes or gives) if whole is None else (whole,))

    def _made(
        self, verb: str, gives: Tensors, takes: Tensors, *, peer: int | None, op: Op | None = None, tag: int = 0
    ) -> Call:
        if self._verbs is not None and verb not in self._verbs:
            raise BadArgument(f"{verb} must not be used here, only {', '.join(self._verbs)}: write it with these")
        name = check_op(op, gives[0].dtype) if verb in REDUCING else ""
        if tag or type(tag) is not int:
            check_tag(tag)
        tensors = gives if takes is gives else (*gives, *takes)
        alike = [(each.dtype, each.shape, each.device, each.layout, type(each)) for each in tensors]
        key = (verb, peer, name, tag, len(gives), *alike)
        if key not in self._known:  # what is looked at below is the same for calls of the same key
            given = tuple(map(Kind.of, gives))
            taken = given if takes is gives else tuple(map(Kind.of, takes))
            kinds = given if takes is gives else (*given, *taken)
            check_place(tensors, kinds, self._port.device, needs_data=self._port.needs_data)
            self._known[key] = Call(verb, self._me, self._group, peer, name, given, taken, self._context, tag)
        return self._known[key]  # equal calls are one object: Python's collector has less to look through

    def _peer(self, name: str, peer: int) -> int:
        return check_peer(name, peer, self._group, other_than=self._rank)

    def _source(self, src: int | None) -> int | None:
        return None if src is None else self._peer("src", src)

    def _list_of_root(self, name: str, tensors: Tensors | None, tensor: Tensor, root: int) -> Tensors:
        """Those of the root; what another rank gives is not looked at."""
        if root != self._me:
            return ()
        found = check_tensors(name, tensors, self.size)
        _check_pieces(name, found[0], "tensor", tensor)
        return found


def _one(tensor: Tensor) -> Tensors:
    return check_tensors("tensor", tensor)


def _check_pieces(many: str, piece: Tensor, one: str, tensor: Tensor) -> None:
    (whole,) = check_tensors(one, tensor)
    if Kind.of(piece) != Kind.of(whole):
        raise BadArgument(f"each of {many} must be like {one}, {Kind.of(whole)}, got {Kind.of(piece)}")


def _pieces(whole_name: str, whole: Tensor, piece_name: str, piece: Tensor, count: int) -> Tensors:
    """Views of `whole`, one for each rank. Raises BadArgument where it is not `count` times `piece` along dim 0."""
    (whole,), (piece,) = check_tensors(whole_name, whole), check_tensors(piece_name, piece)
    if not piece.dim() or whole.dtype != piece.dtype or whole.shape != (count * piece.shape[0], *piece.shape[1:]):
        raise BadArgument(
            f"{whole_name} must hold {count} tensors like {piece_name} along dim 0, got {Kind.of(whole)} and "
            f"{Kind.of(piece)}"
        )
    return whole.reshape(count, *piece.shape).unbind()  # a view, whatever the strides: one dim is split in two


def _rows(name: str, tensor: Tensor, sizes_name: str, sizes: Sequence[int] | None, count: int) -> Tensors:
    """Views of `tensor`, one for each rank: so many rows of it, or equally many. Raises BadArgument."""
    (tensor,) = check_tensors(name, tensor)
    if not tensor.dim():
        raise BadArgument(f"{name} must have a dim 0 whose rows are sent, got {Kind.of(tensor)}")
    rows = len(tensor)
    if not sizes:
        if rows % count:
            raise BadArgument(f"{name} must have rows for {count} equal pieces, or {sizes_name}, got {rows} rows")
        sizes = [rows // count] * count
    if len(sizes) != count or any(type(each) is not int or each < 0 for each in sizes) or sum(sizes) != rows:
        raise BadArgument(
            f"{sizes_name} must be {count} whole numbers, one for each rank of the group, that make the {rows} rows of "
            f"{name}, got {list(sizes)}"
        )
    return torch.split(tensor, list(sizes))
