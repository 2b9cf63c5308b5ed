"""What a process that is a rank does, from its start to its end.

own session, output to a pipe  -->  function, inputs  -->  gloo  -->  ready ... go  -->  function(comm)
    -->  returned  -->  the launcher says that all have  -->  flush, end

It never tears gloo down: `destroy_process_group` after DDP hung in 4 to 8 of 20 runs of torch 2.13. It ends without
Python's own farewell, when nobody needs it any more.
"""

from __future__ import annotations

import ctypes
import linecache
import os
import random
import re
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TextIO

import cloudpickle
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore
from torch.distributed.constants import default_pg_timeout
from torch.utils._pytree import tree_map_only

from course.cluster.processes.messages import Command, LauncherLog, RankFailure
from course.cluster.processes.port import DistributedPort
from course.cluster.processes.torch_own import TorchCalls, environment
from course.cluster.protocol.comm import Comm
from course.cluster.protocol.failures import raised
from course.failing import lines_of, message_of, type_of

CPU = torch.device("cpu")
LOST = re.compile(r"gloo|nccl|connection|peer|socket|broken pipe|timed out", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What the launcher sends a rank, pickled.

    backend       "gloo" or "nccl"
    folder        where the ranks find each other; port: that scripts are told, on which nobody listens
    seconds       that a call of torch.distributed may take; None: torch's own limit
    verbs         that the communicator offers; None: all
    random_states of the caller: torch's generator, Python's, NumPy's
    environment   the caller's, which may have changed since the server of the processes was started
    sources       lines of code that lies in no file, by name: cells of a notebook
    program       function and inputs, pickled
    """

    size: int
    backend: str
    folder: str
    port: int
    seconds: float | None
    verbs: Collection[str] | None
    random_states: tuple[Tensor, Any, Any]
    environment: dict[str, str]
    sources: dict[str, list[str]]
    program: bytes


def main(rank: int, pipe: Connection, calls: Connection, output: Connection) -> NoReturn:
    """Run a rank. pipe, calls: to the launcher, see messages; output: takes what is printed."""
    os.setsid()  # so that the launcher can end it with all that it starts
    _speak_into(output)
    torch.set_num_threads(1)
    log = LauncherLog(pipe, calls)
    given: Assignment = cloudpickle.loads(pipe.recv_bytes())
    commands = _Commands(pipe, log, given.folder)
    threading.Thread(target=commands.listen, name="commands of the launcher", daemon=True).start()
    try:
        commands.port = port = _connected(rank, given, log)
        torchs = TorchCalls(rank, given.size, given.backend)
        function, inputs = _unpacked(given.program, port.device)
        log.tell("ready")
        commands.go.wait()
        _begin_random_as(*given.random_states)
        _call(rank, function, Comm(port, tuple(range(given.size)), rank, given.verbs), inputs, log, torchs)
    except BaseException as error:
        _flush()
        log.tell("failed", _failure(rank, error))
    commands.end.wait()
    _flush()
    os._exit(0)


def _begin_random_as(ours: Tensor, python: Any, array: Any) -> None:
    torch.set_rng_state(ours)
    random.setstate(python)
    np.random.set_state(array)


def _call(
    rank: int,
    function: Callable[..., Any],
    comm: Comm,
    inputs: Sequence[Any],
    log: LauncherLog,
    torchs: TorchCalls,
) -> None:
    value = function(comm, *inputs)
    if comm.device != CPU:
        value = tree_map_only(Tensor, lambda tensor: tensor.cpu(), value)
    _flush()
    log.tell("torch's", torchs.made())
    try:
        data = cloudpickle.dumps(value)
    except Exception as error:
        told = f"rank {rank} returned something that cannot be sent to the caller: {message_of(error)}"
        log.tell("failed", RankFailure(told, type_of(error), (), False))
    else:
        log.tell("returned", data)


def _unpacked(program: bytes, device: torch.device) -> tuple[Callable[..., Any], Sequence[Any]]:
    function, inputs = cloudpickle.loads(program)
    if device != CPU:
        inputs = tree_map_only(Tensor, lambda tensor: tensor.to(device), inputs)
    return function, inputs


def _connected(rank: int, given: Assignment, log: LauncherLog) -> DistributedPort:
    os.environ.clear()
    os.environ.update(given.environment)
    os.environ.update(environment(rank, given.size, given.port))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback()
    for name, lines in given.sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    device = CPU
    if given.backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    store = FileStore(os.path.join(given.folder, "store"), given.size)
    dist.init_process_group(given.backend, store=store, rank=rank, world_size=given.size)
    seconds = default_pg_timeout.total_seconds() if given.seconds is None else given.seconds
    return DistributedPort(store, rank, given.size, log, device=device, seconds=seconds)


def loopback() -> str:
    """The name of the network interface that never leaves the machine: lo on Linux, lo0 on macOS."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def _failure(rank: int, error: BaseException) -> RankFailure:
    told = raised(rank, error)
    is_lost = isinstance(error, (RuntimeError, OSError)) and LOST.search(message_of(error)) is not None
    return RankFailure(str(told), told.type, told.where, is_lost)


def _speak_into(output: Connection) -> None:
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    sys.stdout, sys.stderr = (_lines_to(descriptor) for descriptor in (1, 2))


def _lines_to(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # what C++ has printed
    except Exception:  # the rank's own code may have closed them, or put something else there
        traceback.print_exc()


class _Commands:
    """Hears the launcher, in a thread of its own: the rank may be stuck, and the launcher may die."""

    def __init__(self, pipe: Connection, log: LauncherLog, folder: str) -> None:
        self.port: DistributedPort | None = None
        self.go, self.end = threading.Event(), threading.Event()
        self._pipe, self._log, self._folder = pipe, log, folder
        self._rank_thread = threading.get_ident()

    def listen(self) -> None:
        """Until the launcher is gone; then the rank ends, with all that it started."""
        try:
            while True:
                self._obey(self._pipe.recv())
        except (EOFError, OSError):
            shutil.rmtree(self._folder, ignore_errors=True)
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _obey(self, command: Command) -> None:
        match command.what:
            case "go":
                self.go.set()
            case "sender" if self.port is not None:
                self.port.heard_sender(command.number, command.src)
            case "where":
                self._log.tell("line", lines_of(sys._current_frames().get(self._rank_thread)))
            case "end":
                self.end.set()
