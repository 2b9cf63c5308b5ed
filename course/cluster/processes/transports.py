"""Ranks that are processes of this machine, started from a notebook cell, over gloo or NCCL.

    server of processes (torch is loaded once)  --fork-->  rank 0 .. P-1: rank_main
    launcher (the caller's thread)  <--messages--  ranks;  prints what they print;  ends them

The notebook's own process is never forked: after a backward or an operation on two threads, its children would wait for
threads that they do not have, and CUDA cannot be forked at all. The standard library's forkserver is a fresh process
that has imported torch and done nothing else; it starts with the first run (two seconds) and ends with the notebook.

Functions and their inputs go there as bytes, also where they were defined in a notebook's cell: cloudpickle sends
functions and classes of `__main__` by value, with the globals and variables that they use. What cannot be sent is named
before any process starts.
"""

from __future__ import annotations

import inspect
import linecache
import os
import random
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
import numpy as np
import torch

from course.cluster.processes.launch import Launch
from course.cluster.processes.rank_main import Assignment
from course.cluster.protocol.transport import Program, Run, check_processes
from course.errors import BadArgument
from course.failing import message_of

SPARE_SECONDS = 60.0  # torch's own time limits come after the launcher's, which says more


@dataclass(frozen=True)
class Gloo:
    """Processes on the processor, with one torch thread each.

    Random states (torch's, Python's, NumPy's) are copies of the caller's: all ranks draw the same numbers until they
    seed with their rank. The time limit of a run, by default none, counts from when all ranks are ready. In the
    function, torch.distributed's default group is initialised too: DDP and FSDP2 work, a script's own
    `init_process_group` is accepted, and the variables that torchrun sets are there.
    """

    def run(self, program: Program) -> Run:
        """See Transport. Raises BadArgument for too many ranks, a function or inputs that cannot be sent to another."""
        return _run(program, "gloo")


@dataclass(frozen=True)
class Nccl:
    """Processes with one GPU each, on which their tensors are made; what they return is moved to the processor.

    `wait` makes later work of the GPU wait and returns at once, so that times in the ledger are those at which calls
    were queued, not those at which data moved.
    """

    def run(self, program: Program) -> Run:
        """See Transport. Raises BadArgument where there are fewer GPUs than ranks, or as Gloo."""
        count = torch.cuda.device_count()
        if count < program.ranks:
            raise BadArgument(
                f'transport "nccl" needs one GPU for each of {program.ranks} ranks, but this machine has {count}; '
                'use transport="gloo"'
            )
        return _run(program, "nccl")


def _run(program: Program, backend: Literal["gloo", "nccl"]) -> Run:
    check_processes(program)
    packed = _packed(program)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        assignments = [
            Assignment(
                size=program.ranks,
                backend=backend,
                folder=folder,
                port=port,
                seconds=None if program.seconds is None else program.seconds + SPARE_SECONDS,
                verbs=program.verbs,
                random_states=(torch.get_rng_state(), random.getstate(), np.random.get_state()),
                environment=dict(os.environ),
                sources=_sources(),
                program=each,
            )
            for each in packed
        ]
        return Launch(assignments, program.seconds).run()


def _sources() -> dict[str, list[str]]:
    """The lines of a notebook's cells, which lie in no file, so that a failure can quote the line."""
    cells = [name for name in linecache.cache if not os.path.exists(name)]
    return {name: lines for name in cells if (lines := linecache.getlines(name))}


def _packed(program: Program) -> list[bytes]:
    """For each rank: the pickled function and inputs. Raises BadArgument."""
    reason = _refused(program.function)
    if reason:
        what = _culprit(program.function)
        raise BadArgument(
            f"the function must be sent to other processes, but {what} cannot be: {reason}; "
            "make it inside of the function"
        )
    for rank, inputs in enumerate(program.inputs):
        for place, each in enumerate(inputs):
            if reason := _refused(each):
                raise BadArgument(
                    f"inputs must be sent to other processes, but inputs[{rank}][{place}], "
                    f"of type {type(each).__name__}, cannot be: {reason}"
                )
    return [cloudpickle.dumps((program.function, tuple(inputs))) for inputs in program.inputs]


def _refused(what: object) -> str:
    """Why it cannot be pickled; "" where it can."""
    try:
        cloudpickle.dumps(what)
    except Exception as error:  # whatever the thing's own __reduce__ raises
        return message_of(error)
    return ""


def _culprit(function: Callable[..., Any]) -> str:
    """The variable of the function that cannot be sent, if it can be told."""
    try:
        used = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return "it"
    names: Mapping[str, Any] = {**used.globals, **used.nonlocals}
    return next((f"`{name}`, which it uses," for name, value in names.items() if _refused(value)), "it")
