"""The time of a backward pass whose buckets are reduced beside it.

backward   |--2--|--1--|--0--|
network          |-- 2 --|-- 1 --|-- 0 --|      each begins when its bucket is complete and the one before is over
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def step_seconds(
    backward: Sequence[float],
    sizes: Sequence[int],
    buckets: Sequence[Sequence[int]],
    *,
    ranks: int,
    latency: float,
    bandwidth: float,
) -> tuple[float, float]:
    """Seconds until backward and all reductions are over, and the bytes that each rank sends."""
    done = [*accumulate(reversed(backward))][::-1]  # when backward has been through each layer
    over, sent = 0.0, 0.0
    for bucket in buckets:
        message = sum(sizes[layer] for layer in bucket) / ranks
        complete = max(done[layer] for layer in bucket)
        over = max(over, complete) + 2 * (ranks - 1) * (latency + message / bandwidth)
        sent += 2 * (ranks - 1) * message
    return max(over, done[0]), sent
