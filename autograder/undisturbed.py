"""What slows judging and proving down, switched off meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits

IN_MEMORY = "/dev/shm"


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """One thread, and no search for reference cycles meanwhile.

    Small tensors on many threads are slow: 0.4 s became 22 s on a busy machine with two cores. NumPy's threads wait by
    spinning: beside other processes 0.01 s of work took 5 s of CPU, at which a right answer is ended. The search goes
    through all that torch has imported, and the graphs of the references, which have no cycles, would start it again
    and again.
    """
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.disable()
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


@contextlib.contextmanager
def files_in_memory() -> Iterator[None]:
    """Temporary files lie in memory meanwhile, where there is a place for that and TMPDIR names no other.

    Probes write thousands, each in a folder that is removed: on a disk they take two to four times as long.
    """
    before = tempfile.tempdir
    if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK):
        tempfile.tempdir = IN_MEMORY
    try:
        yield
    finally:
        tempfile.tempdir = before
