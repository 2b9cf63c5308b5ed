"""Chunks go round a ring and are added to at every stop.

    P = 4, chunk 0:   rank 1 --x1--> rank 2 --x1+x2--> rank 3 --x1+x2+x3--> rank 0, which adds x0 and keeps it

P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
and Distributed Computing 69(2), 2009.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.cluster import Comm


def ring_reduce_scatter(comm: Comm, x: Tensor) -> Tensor:
    """Chunk comm.rank, (m, ...), of the sum over all ranks of x, (P * m, ...): P - 1 messages of one chunk each."""
    rank, size = comm.rank, comm.size
    chunks = list(x.clone().chunk(size))
    came = torch.empty_like(chunks[rank])
    for step in range(size - 1):
        comm.send(chunks[(rank - 1 - step) % size], (rank + 1) % size)
        comm.recv(came, (rank - 1) % size)
        chunks[(rank - 2 - step) % size] += came
    return chunks[rank]
