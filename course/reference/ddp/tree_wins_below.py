"""Few long messages or many short ones: where the two ways of an all-reduce take the same time.

ring   2 (P - 1) messages of n / P bytes      2 (P - 1) (latency + n / (P bandwidth))
trees  2 c messages of n bytes                2 c (latency + n / bandwidth)             c = ceil(log2 P)
"""

from __future__ import annotations


def tree_wins_below(ranks: int, latency: float, bandwidth: float) -> float:
    """Bytes below which two trees take less time than the ring; 0.0 where they never do.

    Per link latency + bytes / bandwidth, the alpha-beta model: R. Hockney, "The communication challenge for MPP: Intel
    Paragon and Meiko CS-2", Parallel Computing 20(3), 1994. Raises ValueError for no rank, a latency below 0 and a
    bandwidth that is not above 0.
    """
    if ranks < 1 or latency < 0 or bandwidth <= 0:
        raise ValueError(
            "ranks must be at least 1, latency at least 0 and bandwidth above 0, "
            f"got {ranks} ranks, {latency} s and {bandwidth} bytes/s"
        )
    if ranks == 1:
        return 0.0  # neither sends anything
    rounds = (ranks - 1).bit_length()
    fewer = ranks - 1 - rounds  # latencies that the trees save, in each direction
    longer = rounds - (ranks - 1) / ranks  # times n / bandwidth that they take more; above 0
    return fewer * latency * bandwidth / longer
