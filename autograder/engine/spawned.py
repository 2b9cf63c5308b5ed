"""What a process that judges runs first. It imports nothing itself: all that it needs is then imported quickly."""

from __future__ import annotations

import pickle
from collections.abc import Collection
from multiprocessing.connection import Connection

from autograder.start import quick_imports


def serve(line: Connection, work: bytes, cores: Collection[int]) -> None:
    """worker.serve, with the pickled work. To read that is to import what it needs."""
    with quick_imports():
        from autograder.engine import worker

        unpacked = pickle.loads(work)
    worker.serve(line, unpacked, cores)
