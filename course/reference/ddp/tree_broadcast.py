"""In every round all who have x send it, so that the number of those who have it doubles.

    P = 6 from rank 0:   0 -> 1   |   0 -> 2   1 -> 3   |   0 -> 4   1 -> 5        from rank s: everything s further on

The tree is a binomial one. R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
operations in MPICH", Int. J. High Performance Computing Applications 19(1), 2005, section 4.2, take it for short
messages.
"""

from __future__ import annotations

from torch import Tensor

from course.cluster import Comm


def tree_broadcast(comm: Comm, x: Tensor, source: int) -> None:
    """x of `source` into x of all ranks, in place: P - 1 messages in ceil(log2 P) rounds."""
    size = comm.size
    place = (comm.rank - source) % size  # in the tree, whose root is the source
    have = 1  # how many have x: those whose places are below
    while have < size:
        if place < have and place + have < size:
            comm.send(x, (comm.rank + have) % size)
        elif have <= place < 2 * have:
            comm.recv(x, (comm.rank - have) % size)
        have *= 2
