"""What the busiest rank sends in an all-reduce, in bytes of x.

ring   2 turns of P - 1 messages of x / P           2 (P - 1) / P, below 2
trees  the root tells one rank more in each round    ceil(log2 P)

P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
and Distributed Computing 69(2), 2009.
"""

from __future__ import annotations


def most_sent(ranks: int) -> tuple[float, float]:
    """(around a ring, by two trees). Raises ValueError for no rank."""
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}")
    rounds = (ranks - 1).bit_length()
    return 2 * (ranks - 1) / ranks, float(rounds)
