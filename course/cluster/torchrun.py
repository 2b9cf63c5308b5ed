"""Ranks that torchrun starts, on one machine or several: the same Comm, in a script of its own.

    torchrun --standalone --nproc-per-node 4 -m course.cluster.pi

torchrun starts the processes, tells each its rank in environment variables, and ends all when one fails. Nobody counts
bytes or sees a deadlock here: a run that is stuck ends at torch's own time limit.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Literal, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from course.cluster.processes.messages import CallLog
from course.cluster.processes.port import DistributedPort
from course.cluster.processes.rank_main import loopback
from course.cluster.protocol.comm import Comm
from course.errors import BadArgument

SECONDS = 1800.0  # torch's own limit for gloo


@contextlib.contextmanager
def comm_of_torchrun(backend: Literal["gloo", "nccl"] = "gloo", *, seconds: float = SECONDS) -> Iterator[Comm]:
    """The communicator of a process that torchrun has started. The process ends where the `with` ends.

    It ends with status 0 when all ranks have come so far, and with 1 where the rank raises, without Python's or
    torch's farewell: `destroy_process_group` after DDP hung or aborted often in torch 2.13 on gloo.

    backend  "nccl": one GPU for each rank, on which new tensors are made
    seconds  that one call may take

    Raises BadArgument where torchrun did not start the process.
    """
    if "LOCAL_RANK" not in os.environ:
        raise BadArgument(
            f"this script must be started by torchrun, got {os.path.basename(sys.argv[0])} alone; "
            "start it with: torchrun --standalone --nproc-per-node 4 SCRIPT"
        )
    try:
        comm = _connected(backend, seconds)
        yield comm
        comm.barrier()
        if comm.device.type == "cuda":
            torch.cuda.synchronize()
    except BaseException:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _connected(backend: Literal["gloo", "nccl"], seconds: float) -> Comm:
    torch.set_num_threads(1)
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:  # one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    store, rank, size = next(rendezvous("env://"))
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    port = DistributedPort(store, rank, size, CallLog(), device=device, seconds=seconds)
    return Comm(port, tuple(range(size)), rank)


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
