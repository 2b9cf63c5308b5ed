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
With torch alone use isend and irecv, or batch_isend_irecv.

Unlike torch.distributed, whose `src` and `dst` are ranks of the whole run (`group_src` and `group_dst`: of the group),
a group is a communicator of its own here, as in MPI: code written for `comm` runs on `comm.subgroup([0, 2])` unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, overload

import torch
from torch import Tensor

from course.cluster.calls import Op


class Work(Protocol):
    """A verb that was begun with `async_op=True`, `isend` or `irecv`.

    Until `wait` has returned, what is sent must not be changed and what is received must not be read. A collective or
    receive that a rank began and never waits for is told as left over.
    """

    def wait(self) -> None:
        """Returns when the tensors of this rank may be used again. A second call returns at once."""

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""


class Comm(Protocol):
    """One rank's way to the others. In every verb `src` and `dst` are ranks of this communicator's group.

    Tensors may have any strides. Those that take part in one call must have the same dtype and shape on every rank;
    another kind is told to all, never converted. Values are combined in their own dtype, in an order that the transport
    chooses. Raises BadArgument on what makes no sense by itself; what does not fit the others' calls ends the run.
    """

    @property
    def rank(self) -> int:
        """The own number in this group, from 0."""

    @property
    def size(self) -> int:
        """How many ranks the group has: torch's world size, for the group of all."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The group's members, as ranks of the whole run."""

    @property
    def device(self) -> torch.device:
        """Where tensors must lie to be sent."""

    # --- from one rank to another ---

    def send(self, tensor: Tensor, dst: int) -> None:
        """Send a copy of `tensor` to `dst`; returns at once (eager)."""

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        """Wait for the next message from `src`, write it into `tensor`, and return its sender.

        Messages of one sender come in the order in which they were sent. With None for `src` it is a message of
        anybody that was sent already (simulated and brokered ranks draw whose, by the seed), else the first one sent.
        """

    def isend(self, tensor: Tensor, dst: int) -> Work:
        """`send`, which reads `tensor` at some time before `wait` returns."""

    def irecv(self, tensor: Tensor, src: int | None = None) -> Work:
        """`recv`, which writes `tensor` at some time before `wait` returns."""

    # --- collectives: every rank of the group calls ---

    @overload
    def broadcast(self, tensor: Tensor, src: int, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def broadcast(self, tensor: Tensor, src: int, *, async_op: Literal[True]) -> Work: ...
    def broadcast(self, tensor: Tensor, src: int, *, async_op: bool = False) -> Work | None:
        """Every rank's `tensor` becomes that of `src`."""

    @overload
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: Literal[True]) -> Work: ...
    def all_reduce(self, tensor: Tensor, op: Op = "sum", *, async_op: bool = False) -> Work | None:
        """Every rank's `tensor` becomes the sum (mean, max, min, product) of all ranks' tensors.

        A mean is the sum, divided by the number of ranks afterwards: in float16 it may overflow where an average of
        divided values would not. Tensors of whole numbers have none.
        """

    @overload
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: Literal[False] = False) -> None: ...
    @overload
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: Literal[True]) -> Work: ...
    def reduce(self, tensor: Tensor, dst: int, op: Op = "sum", *, async_op: bool = False) -> Work | None:
        """`tensor` of `dst` becomes the sum of all ranks' tensors; the others keep theirs."""

    @overload
    def all_gather(self, tensors: Sequence[Tensor], tensor: Tensor, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather(self, tensors: Sequence[Tensor], tensor: Tensor, *, async_op: Literal[True]) -> Work: ...
    def all_gather(self, tensors: Sequence[Tensor], tensor: Tensor, *, async_op: bool = False) -> Work | None:
        """`tensors[r]` becomes rank r's `tensor`, on every rank."""

    @overload
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: Literal[True]) -> Work: ...
    def all_gather_single(self, output: Tensor, tensor: Tensor, *, async_op: bool = False) -> Work | None:
        """`all_gather` into one tensor: `output` is (size * n, ...) where `tensor` is (n, ...), in the order of ranks.

        The same verb as `all_gather` in ledgers. Until torch 2.12 torch.distributed named it all_gather_into_tensor; it
        also takes an output of shape (size, n, ...) there.
        """

    @overload
    def reduce_scatter(
        self, tensor: Tensor, tensors: Sequence[Tensor], op: Op = "sum", *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def reduce_scatter(
        self, tensor: Tensor, tensors: Sequence[Tensor], op: Op = "sum", *, async_op: Literal[True]
    ) -> Work: ...
    def reduce_scatter(
        self, tensor: Tensor, tensors: Sequence[Tensor], op: Op = "sum", *, async_op: bool = False
    ) -> Work | None:
        """`tensor` of rank r becomes the sum of all ranks' `tensors[r]`."""

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

    @overload
    def all_to_all(
        self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def all_to_all(self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], *, async_op: Literal[True]) -> Work: ...
    def all_to_all(
        self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], *, async_op: bool = False
    ) -> Work | None:
        """`outputs[s]` of rank r becomes `tensors[r]` of rank s. Sizes may differ from pair to pair, also be 0."""

    def gather(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, dst: int = 0) -> None:
        """`tensors[r]` of `dst` becomes rank r's `tensor`; the others give None for `tensors`."""

    def scatter(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> None:
        """Rank r's `tensor` becomes `tensors[r]` of `src`; the others give None for `tensors`."""

    def barrier(self) -> None:
        """Returns when every rank of the group has called it."""

    # --- groups ---

    def subgroup(self, ranks: Sequence[int]) -> Comm:
        """The communicator of some ranks of this group, in rising order; only they may call this.

        The same ranks get the same group, and nothing is sent to make it; `torch.distributed.new_group` differs there,
        which every rank of the run must call (unless use_local_synchronization is given).
        """

    def mesh(self, **sizes: int) -> Mapping[str, Comm]:
        """One communicator for each axis of a mesh: `comm.mesh(dp=2, tp=4)["tp"]` is that of the four ranks that differ
        from this one in `tp` alone. The last axis runs fastest: ranks 0 to 3 share dp = 0. The product of the sizes
        must be the size of this group. As `torch.distributed.init_device_mesh`.
        """

    # --- the virtual clock ---

    def compute(self, seconds: float, label: str = "") -> None:
        """Say that the rank computes for so long: its clock on simulated ranks moves on, others only write it down."""
