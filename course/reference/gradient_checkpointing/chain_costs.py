"""What a chain with checkpoints costs, before it runs.

sizes, cuts --segment by segment--> evaluations: n + (length - 1) of each but the last
                                    peak: the largest of checkpoints so far + the segment's other inputs
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def chain_costs(sizes: Sequence[int], cuts: Sequence[int]) -> tuple[int, int]:
    """(evaluations, peak in bytes) of forward and backward of a chain that keeps the inputs at `cuts`.

    sizes  bytes of each layer's input
    cuts   where segments begin: 0, then increasing, below n
    Raises ValueError for other cuts. Source of the plan: Chen et al. (arXiv 1604.06174), section 4.
    """
    n = len(sizes)
    if not cuts or cuts[0] != 0:
        raise ValueError(f"cuts must begin with 0, got {cuts}")
    segments = [*pairwise([*cuts, n])]
    if any(start >= end for start, end in segments):
        raise ValueError(f"cuts must increase and stay below n = {n}, got {cuts}")
    evaluations, checkpoints, peak = n, 0, 0
    for start, end in segments:
        checkpoints += sizes[start]
        peak = max(peak, checkpoints + sum(sizes[start + 1 : end]))
        if end < n:  # the last segment keeps its inputs
            evaluations += end - start - 1
    return evaluations, peak
