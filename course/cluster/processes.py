"""Ranks that are processes of this machine, started from a notebook cell, over gloo or NCCL.

    server of processes (torch is loaded once)  --fork-->  rank 0 .. P-1: rank_main
    launcher (the caller's thread)  <--reports--  ranks;  prints what they print;  ends them

The notebook's own process is never forked: after a backward or an operation on two threads, its children would wait for
threads that they do not have, and CUDA cannot be forked at all. The standard library's forkserver is a fresh process
that has imported torch and done nothing else; it starts with the first run (two seconds) and ends with the notebook.
"""

from __future__ import annotations

import linecache
import os
import random
import tempfile
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from course.cluster.job import Job, Run
from course.cluster.launch import Launch
from course.cluster.packing import packed_jobs
from course.cluster.rank_main import Assignment
from course.errors import BadArgument

SPARE_SECONDS = 60.0  # torch's own time limits come after the launcher's, which says more


@dataclass(frozen=True)
class Gloo:
    """Processes on the processor, with one torch thread each.

    Random states (torch's, Python's, NumPy's) are copies of the caller's: all ranks draw the same numbers until they
    seed with their rank. The time limit of a run counts from when all ranks are ready. In the function,
    torch.distributed's default group is initialised too: DDP and FSDP2 work.
    """

    def run(self, job: Job) -> Run:
        """See Transport. Raises BadArgument where the function or its inputs cannot be sent to another process."""
        return _run(job, "gloo")


@dataclass(frozen=True)
class Nccl:
    """Processes with one GPU each, on which their tensors are made; what they return is moved to the processor.

    `wait` makes later work of the GPU wait and returns at once, so that times in the ledger are those at which calls
    were queued, not those at which data moved.
    """

    def run(self, job: Job) -> Run:
        """See Transport. Raises BadArgument where there are fewer GPUs than ranks, or as Gloo."""
        count = torch.cuda.device_count()
        if count < job.ranks:
            raise BadArgument(
                f'transport "nccl" needs one GPU for each of {job.ranks} ranks, but this machine has {count}; '
                'use transport="gloo"'
            )
        return _run(job, "nccl")


def _run(job: Job, backend: Literal["gloo", "nccl"]) -> Run:
    jobs = packed_jobs(job)
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        assignments = [
            Assignment(
                size=job.ranks,
                backend=backend,
                folder=folder,
                seconds=job.seconds + SPARE_SECONDS,
                verbs=job.verbs,
                random_states=(torch.get_rng_state(), random.getstate(), np.random.get_state()),
                environment=dict(os.environ),
                sources=_sources(),
                job=each,
            )
            for each in jobs
        ]
        return Launch(assignments, job.seconds).run()


def _sources() -> dict[str, list[str]]:
    """The lines of a notebook's cells, which lie in no file, so that a failure can quote the line."""
    cells = [name for name in linecache.cache if not os.path.exists(name)]
    return {name: lines for name in cells if (lines := linecache.getlines(name))}
