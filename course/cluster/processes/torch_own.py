"""torch.distributed's own ways on a rank: what its scripts expect to find, and what its collectives have sent.

    environment(...)       RANK, WORLD_SIZE, MASTER_ADDR ... as torchrun sets them
    TorchCalls(...)        the script's own init_process_group is accepted: the group is there already
    TorchCalls.made()      DDP's all_reduce, FSDP's all_gather, dist.send ...: calls for the ledger

torch's flight recorder writes down each collective of gloo and NCCL (torch.distributed's TORCH_FR_BUFFER_SIZE), but
not who the root is, and no message of gloo's. A root is therefore taken to be the first rank of the group, which is
where DDP broadcasts from; messages are counted where `isend` is called, as `send` and batch_isend_irecv do, too.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from course.cluster.calls import POINT_TO_POINT, ROOTED, VERBS, Call, Kind
from course.errors import BadArgument

RECORDED, HOLDS = 20_000, "TORCH_FR_BUFFER_SIZE"  # collectives of one rank that the recorder holds; of more, the last
DTYPES = {
    **{"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16},
    **{"Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8},
    **{"Bool": torch.bool, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128},
}
NAMES = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter", "all_to_allv": "all_to_all"}


_recorder: Any = torch._C._distributed_c10d


class TorchCall(NamedTuple):
    """A call of torch.distributed itself. at: when it was made, by time.monotonic."""

    call: Call
    at: float


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun tells a script on one machine."""
    told: dict[str, object] = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_RANK": 0,
    }
    return {name: str(value) for name, value in told.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        HOLDS: os.environ.get(HOLDS, str(RECORDED)),
    }


class TorchCalls:
    """Of one process, whose default group is there: torch's functions are replaced where scripts find them.

    `destroy_process_group` does nothing: torch 2.13 often hangs there after DDP on gloo, and the process ends anyway.
    """

    def __init__(self, rank: int, size: int, backend: str) -> None:
        self._rank, self._size, self._backend = rank, size, backend
        self._sent: list[TorchCall] = []
        self._isend: Callable[..., Any] = c10d.isend
        replaced = {
            "init_process_group": self._init_process_group,
            "destroy_process_group": _destroy_process_group,
            "isend": self._counted_isend,
        }
        for name, function in replaced.items():
            for module in (c10d, dist):
                setattr(module, name, function)

    def made(self) -> tuple[list[TorchCall], int]:
        """The calls that this rank has made, and about how many there were before, which the recorder holds no more."""
        world = c10d._world  # its group_ranks also hold a number, for the groups that this rank is none of
        if not any(map(_numbered, world.pg_names)):
            return self._sent, 0
        groups = {name: tuple(world.pg_group_ranks[group]) for group, name in world.pg_names.items()}
        since = time.time() - time.monotonic()
        found, first = list[TorchCall](), {name: _numbered(group) + 1 for group, name in world.pg_names.items()}
        entries = json.loads(_recorder._dump_fr_trace_json()).get("entries", [])
        for entry in entries:
            group = entry["process_group"][0]
            if group in groups:  # the others are of our own communicators
                first[group] = min(first[group], entry["collective_seq_id"])
                if (call := self._call(entry, groups[group])) is not None:
                    found.append(TorchCall(call, entry["time_created_ns"] / 1e9 - since))
        is_full = len(entries) >= int(os.environ[HOLDS])
        return [*found, *self._sent], sum(each - 1 for each in first.values()) if is_full else 0

    def _call(self, entry: dict[str, Any], group: tuple[int, ...]) -> Call | None:
        """None for what sends nothing that we could count."""
        name = entry["profiling_name"].partition(":")[2].removesuffix("_coalesced")
        verb = NAMES.get(name, name)
        if verb not in VERBS or verb in POINT_TO_POINT:
            return None
        kinds = _kinds(entry, "input") or _kinds(entry, "output")
        size, root = len(group), group[0] if verb in ROOTED else None
        if verb == "barrier" or not kinds:
            return Call("barrier", self._rank, group)
        dtype, elements = kinds[0].dtype, sum(math.prod(kind.shape) for kind in kinds)
        if verb in ("all_to_all", "reduce_scatter", "scatter") and entry["input_sizes"]:
            return Call(verb, self._rank, group, root, "", (Kind(dtype, (elements // size,)),) * size)
        return Call(verb, self._rank, group, root, "", (Kind(dtype, (elements,)),))

    # --- in place of torch's ---

    def _init_process_group(
        self,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        world_size: int = -1,
        rank: int = -1,
        *arguments: object,
        **options: object,
    ) -> None:
        """The default group is there already; what the script asks for must be that."""
        ours = {"world_size": (world_size, self._size), "rank": (rank, self._rank)}
        for name, (asked, have) in ours.items():
            if asked not in (-1, have):
                raise BadArgument(
                    f"init_process_group must ask for the group of this run, whose {name} is {have}, got {asked}; "
                    "leave it out"
                )
        if backend is not None and self._backend not in re.split(r"[:,]", backend.lower()):
            raise BadArgument(
                f"init_process_group must ask for the backend of this run, {self._backend}, got {backend}; run it with "
                f'transport="{backend}", or ask for {self._backend}'
            )
        if timeout is not None:
            c10d._set_pg_timeout(timeout)

    def _counted_isend(
        self,
        tensor: Tensor,
        dst: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_dst: int | None = None,
    ) -> Any:
        at, work = time.monotonic(), self._isend(tensor, dst, group, tag, group_dst)
        if work is not None:  # None: this rank is none of the group's
            ranks = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
            peer = ranks[group_dst] if group_dst is not None else dst
            self._sent.append(TorchCall(Call("send", self._rank, ranks, peer, "", (Kind.of(tensor),), (), 0, tag), at))
        return work


def _numbered(group: Any) -> int:
    """How many calls of a group this process has made."""
    return int(group._get_sequence_number_for_group())


def _destroy_process_group(group: Any = None) -> None:
    """Nothing."""


def _kinds(entry: dict[str, Any], side: str) -> list[Kind]:
    """The tensors of one side."""
    names, sizes = entry[f"{side}_dtypes"], entry[f"{side}_sizes"]
    return [Kind(DTYPES[name], tuple(size)) for name, size in zip(names, sizes, strict=False) if name in DTYPES]
