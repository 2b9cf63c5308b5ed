"""A sum over all ranks in two turns round a ring: chunks that are added to at every stop, and then passed on.

    x, padded to P chunks --reduce-scatter--> chunk r + 1 is complete on rank r --all-gather--> all are, everywhere

A chunk is added up once and copied afterwards, so that all ranks hold the same bits. Rank r begins with chunk r, so
that what it holds complete after P - 1 steps is what it sends first in the second turn.
P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
and Distributed Computing 69(2), 2009.
"""

from __future__ import annotations

from torch import Tensor

from course.cluster import Comm


def ring_all_reduce(comm: Comm, x: Tensor) -> Tensor:
    """The sum over all ranks of x, of any shape: 2 (P - 1) messages of ceil(n / P) elements each."""
    rank, size, n = comm.rank, comm.size, x.numel()
    after, before = (rank + 1) % size, (rank - 1) % size
    m = -(-n // size)
    padded = x.new_zeros(size * m)
    padded[:n] = x.flatten()
    chunks = padded.view(size, m)
    for step in range(size - 1):
        came = chunks[0].clone()
        comm.send(chunks[(rank - step) % size], after)
        comm.recv(came, before)
        chunks[(rank - step - 1) % size] += came
    for step in range(size - 1):
        comm.send(chunks[(rank + 1 - step) % size], after)
        comm.recv(chunks[(rank - step) % size], before)
    return padded[:n].view(x.shape)
