"""What a rank says when it calls a verb: plain data, without the tensors' values.

    comm.recv(x, src=1)     -->  Call(verb="recv", rank=0, group=(0, 1), peer=1, takes=(Kind(float32, (4,)),))

Every transport makes its calls from here, so that all refuse the same arguments with the same words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ReduceOp

from course.errors import BadArgument

OPS = ("sum", "mean", "max", "min", "product")
Op: TypeAlias = Literal["sum", "mean", "max", "min", "product", "avg", "prod"] | ReduceOp | ReduceOp.RedOpType
TORCH_OPS = {
    "sum": ReduceOp.SUM,
    "mean": ReduceOp.AVG,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
    "product": ReduceOp.PRODUCT,
}
OTHER_NAMES = {"avg": "mean", "prod": "product"}
NAMES_OF_TORCH = {op: name for name, op in TORCH_OPS.items()}
POINT_TO_POINT = ("send", "recv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("reduce", "all_reduce", "reduce_scatter")
VERBS = (*POINT_TO_POINT, *ROOTED, "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
PEERS = {"send": "dst", "reduce": "dst", "gather": "dst", "recv": "src", "broadcast": "src", "scatter": "src"}
# What every transport can reduce; tensors of any dtype can be moved.
REDUCIBLE = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
    *(torch.complex64, torch.complex128),
)

MAX_NUMBER = 2**31 - 1  # of a tag, which gloo sends as an int, and of a context

Tensors: TypeAlias = Sequence[Tensor]
Communicator: TypeAlias = tuple[tuple[int, ...], int]  # ranks, and which of their groups


class Kind(NamedTuple):
    """Dtype and shape of one tensor. has_data: not on the meta device, and no FakeTensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    has_data: bool = True

    @classmethod
    def of(cls, tensor: Tensor) -> Kind:
        """That of a tensor."""
        return cls(tensor.dtype, tuple(tensor.shape), not (tensor.is_meta or isinstance(tensor, FakeTensor)))

    @property
    def bytes(self) -> int:
        """What a tensor of this kind sends."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()

    def __str__(self) -> str:
        data = "" if self.has_data else " without data"
        return f"{str(self.dtype).removeprefix('torch.')} of shape {self.shape}{data}"


class Call(NamedTuple):
    """One call of one rank.

    rank, group, peer   ranks of the whole run; peer is the other side, or the root (None: any sender, or none)
    op                  how values are combined; "" where they are not
    gives, takes        the tensors that are read, and those that are written
    context             which group of these ranks it is, from 0 in the order in which they are made (MPI's word)
    tag                 of a message: a receive takes those of its own tag alone
    """

    verb: str
    rank: int
    group: tuple[int, ...]
    peer: int | None = None
    op: str = ""
    gives: tuple[Kind, ...] = ()
    takes: tuple[Kind, ...] = ()
    context: int = 0
    tag: int = 0

    def __str__(self) -> str:
        """`recv(src=1)`, `send(dst=0, tag=7)`, `all_reduce`: what the rank wrote."""
        name, tag = PEERS.get(self.verb), f", tag={self.tag}" if self.tag else ""
        return f"{self.verb}({name}={'any' if self.peer is None else self.peer}{tag})" if name else self.verb

    @property
    def communicator(self) -> Communicator:
        """Where it meets others' calls."""
        return self.group, self.context

    @property
    def bytes(self) -> int:
        """Those of the tensors that it gives."""
        return sum(kind.bytes for kind in self.gives)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Its tensors: what it gives, else what it takes."""
        return self.gives or self.takes

    @property
    def named(self) -> int:
        """The rank that it names, the other side or the root; not of a receive from anybody."""
        assert self.peer is not None
        return self.peer

    @property
    def has_data(self) -> bool:
        """Whether its tensors have data; else there is nothing to send or to compute, only to count."""
        return not self.kinds or self.kinds[0].has_data

    def details(self) -> str:
        """`, shape (4,)` of its first tensor; nothing for a barrier."""
        return f", shape {self.kinds[0].shape}" if self.kinds else ""


def offers_groups(verbs: Collection[str] | None) -> bool:
    """Whether ranks may make groups of some of them: not where only some verbs are offered, for calls of different
    groups do not wait for each other.
    """
    return verbs is None or set(VERBS) <= set(verbs)


def check_group(ranks: Sequence[int], within: Sequence[int]) -> tuple[int, ...]:
    """The ranks of a new group as a tuple. Raises BadArgument unless they are some of `within`, each once, in order."""
    found = tuple(ranks) if isinstance(ranks, Iterable) else ()
    known = all(type(each) is int and each in within for each in found)
    if not found or not known or list(found) != sorted(set(found)):
        came = list(found) if isinstance(ranks, Iterable) else ranks
        raise BadArgument(f"a group must hold ranks of {list(within)}, each once and in rising order, got {came!r}")
    return found


def check_peer(name: str, peer: object, group: tuple[int, ...], *, other_than: int | None = None) -> int:
    """The rank of the whole run that `peer`, a rank of the group, names. Raises BadArgument where it names none.

    other_than  a rank of the group that it may not be: nobody sends to themselves
    """
    size = len(group)
    if type(peer) is not int or not 0 <= peer < size:
        raise BadArgument(f"{name} must be a rank from 0 to {size - 1}, got {peer!r}")
    if peer == other_than:
        raise BadArgument(f"{name} must be another rank, got rank {peer} itself; copy the tensor instead")
    return group[peer]


def check_tag(tag: object) -> int:
    """The tag of a message. Raises BadArgument where it is none."""
    if type(tag) is not int or not 0 <= tag <= MAX_NUMBER:
        raise BadArgument(f"tag must be a whole number from 0 to {MAX_NUMBER}, got {tag!r}")
    return tag


def check_op(op: object, dtype: torch.dtype) -> str:
    """Its name in OPS, also that of "avg", "prod" or a torch.distributed.ReduceOp.

    Raises BadArgument where there is none, or where values of this dtype cannot be combined so.
    """
    name = OTHER_NAMES.get(op, op) if isinstance(op, str) else _name_of(op)
    if name not in OPS:
        raise BadArgument(f"op must be one of {', '.join(OPS)}, or torch.distributed's of these, got {op!r}")
    if dtype not in REDUCIBLE:
        names = ", ".join(str(each).removeprefix("torch.") for each in REDUCIBLE)
        raise BadArgument(f"tensors to be combined must have a dtype of {names}, got {dtype}; convert them first")
    if dtype == torch.bool and name in ("sum", "mean"):
        raise BadArgument(
            f"tensors of {dtype} must be combined by max (any), min or product (all), got {name}; convert them to count"
        )
    if name == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise BadArgument(
            f"a mean must be of floating point tensors, got {dtype}; take the sum, and divide it yourself"
        )
    if name in ("max", "min") and dtype.is_complex:
        raise BadArgument(f"a {name} must be of tensors whose values have an order, got {dtype}")
    return name


def _name_of(op: object) -> str:
    """That of one of torch.distributed's ops; "" of anything else."""
    kind = getattr(op, "op", op)  # a RedOpType, or a ReduceOp that holds one
    return NAMES_OF_TORCH.get(kind, "") if isinstance(kind, ReduceOp.RedOpType) else ""


def check_place(tensors: Sequence[Tensor], kinds: Sequence[Kind], device: torch.device, *, needs_data: bool) -> None:
    """Raises BadArgument where a tensor lies on another kind of device, or is not dense.

    needs_data  whether tensors without data are refused, too
    """
    if not all(kind.has_data for kind in kinds):
        if needs_data:
            raise BadArgument(
                'tensors must have data to be sent or received here; only simulated ranks (transport="simulated") '
                "count what tensors of the meta device and FakeTensors would cost"
            )
        if any(kind.has_data for kind in kinds):
            raise BadArgument("the tensors of one call must all have data, or none of them, got some of each kind")
        return
    for each in tensors:
        if each.device.type != device.type:
            raise BadArgument(f"tensors must lie on {device} to be sent or received, got one on {each.device}")
        if each.layout != torch.strided:
            raise BadArgument(f"tensors must be dense to be sent or received, got one of layout {each.layout}")


def check_tensors(name: str, tensors: object, count: int | None = None, *, alike: bool = True) -> tuple[Tensor, ...]:
    """The tensors as a tuple. Raises BadArgument.

    count  how many they must be; None: one tensor, which is no list
    alike  whether all must be of one dtype and shape
    """
    if count is None:
        if isinstance(tensors, Tensor):
            return (tensors,)
        raise BadArgument(f"{name} must be a tensor, got {type(tensors).__name__}")
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence) or len(tensors) != count:
        came = f"{len(tensors)}" if isinstance(tensors, Sequence) else f"a {type(tensors).__name__}"
        raise BadArgument(f"{name} must be a list of {count} tensors, one for each rank of the group, got {came}")
    for each in tensors:
        if not isinstance(each, Tensor):
            raise BadArgument(f"each of {name} must be a tensor, got {type(each).__name__}")
    kinds = list(map(Kind.of, tensors)) if alike else []
    for kind in kinds:
        if kind != kinds[0]:
            raise BadArgument(f"{name} must be of one dtype and shape, got {kinds[0]} and {kind}")
    return tuple(tensors)


def check_form(call: Call, size: int) -> None:
    """Raises BadArgument unless a call that came from elsewhere is one that a communicator of `size` ranks makes."""
    group, peer, verb = check_group(call.group, range(size)), call.peer, call.verb
    if verb not in VERBS or call.rank not in group:
        raise BadArgument("a call must be of a verb that we know, by a member of its group")
    if verb in PEERS and not (peer is None and verb == "recv"):
        other_than = group.index(call.rank) if verb in POINT_TO_POINT else None
        check_peer(PEERS[verb], group.index(peer) if peer in group else None, group, other_than=other_than)
    elif peer is not None:
        raise BadArgument(f"{verb} must not name a rank")
    if check_tag(call.tag) and verb not in POINT_TO_POINT:
        raise BadArgument(f"{verb} must not have a tag")
    if not 0 <= call.context <= MAX_NUMBER:
        raise BadArgument("the group of a call must be one that could be made")
    if (len(call.gives), len(call.takes)) != _counts(verb, len(group), is_root=peer == call.rank):
        raise BadArgument(f"{verb} must come with other numbers of tensors than {len(call.gives)}, {len(call.takes)}")
    if verb != "all_to_all" and len({*call.gives, *call.takes}) > 1:
        raise BadArgument(f"the tensors of {verb} must be of one dtype and shape")
    if verb in REDUCING:
        if check_op(call.op, call.gives[0].dtype) != call.op:
            raise BadArgument(f"an op must have its own name, got {call.op!r}")
    elif call.op:
        raise BadArgument(f"{verb} must not name an op")


def _counts(verb: str, size: int, *, is_root: bool) -> tuple[int, int]:
    """How many tensors a rank gives and takes."""
    root = int(is_root)
    return {
        "send": (1, 0),
        "recv": (0, 1),
        "broadcast": (root, 1),
        "reduce": (1, root),
        "gather": (1, root * size),
        "scatter": (root * size, 1),
        "all_reduce": (1, 1),
        "all_gather": (1, size),
        "reduce_scatter": (size, 1),
        "all_to_all": (size, size),
        "barrier": (0, 0),
    }[verb]
