"""Chunks go round a ring, and every rank keeps a copy of each that passes.

    P = 4, chunk 0:   rank 0 --c0--> rank 1 --c0--> rank 2 --c0--> rank 3, which sends it no further

P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
and Distributed Computing 69(2), 2009.
"""

from __future__ import annotations

from torch import Tensor

from course.cluster import Comm


def ring_all_gather(comm: Comm, chunk: Tensor) -> Tensor:
    """All ranks' chunks, each (m, ...), in the order of ranks, (P * m, ...): P - 1 messages of one chunk each."""
    rank, size = comm.rank, comm.size
    whole = chunk.new_empty(size * len(chunk), *chunk.shape[1:])
    parts = whole.chunk(size)  # views: what is written into them stands in `whole`
    parts[rank].copy_(chunk)
    for step in range(size - 1):
        comm.send(parts[(rank - step) % size], (rank + 1) % size)
        comm.recv(parts[(rank - step - 1) % size], (rank - 1) % size)
    return whole
