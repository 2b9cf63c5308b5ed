"""Two ways to add gradients: all workers send theirs to one server, or pass them around a ring.

workers, numbers --a run of tensors without data--> Ledger --> bytes through the busiest rank, and seconds

The server is one more rank, as in M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI
2014, with a single server: it receives every gradient, and sends the new weights back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from course.cluster import Comm, Ledger, Link, Simulated, fully_connected, run_ranks

WORKERS = (1, 2, 4, 8, 16, 32, 64)
NUMBERS = 124_000_000  # of GPT-2 small
LINK = Link()  # 10 microseconds, 10 GB/s


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Of a step: bytes that the busiest rank sends and receives together, and when the last rank ends, in seconds."""

    busiest: int
    seconds: float


def server(workers: int, numbers: int = NUMBERS) -> Ledger:
    """The account of a step with a server, which is rank 0 beside the workers."""
    return _run(partial(_with_server, numbers=numbers), workers + 1)


def ring(workers: int, numbers: int = NUMBERS) -> Ledger:
    """That of a step without one."""
    return _run(partial(_around, numbers=numbers), workers)


def traffic(ledger: Ledger) -> Traffic:
    """What a run cost."""
    through = [
        sum(size for pair, size in ledger.sent.items() if rank in pair and pair[0] != pair[1])
        for rank in range(ledger.size)
    ]
    return Traffic(busiest=max(through), seconds=ledger.makespan)


def _run(program, ranks: int) -> Ledger:  # type: ignore[no-untyped-def]
    return run_ranks(program, ranks, transport=Simulated(topology=fully_connected(ranks, LINK))).ledger


def _with_server(comm: Comm, numbers: int) -> None:
    gradient = torch.empty(numbers, device="meta")
    if comm.rank:
        comm.send(gradient, 0)
        comm.recv(gradient, 0)
        return
    for worker in range(1, comm.size):
        comm.recv(gradient, worker)
    for worker in range(1, comm.size):
        comm.send(gradient, worker)


def _around(comm: Comm, numbers: int) -> None:
    comm.all_reduce(torch.empty(numbers, device="meta"))
