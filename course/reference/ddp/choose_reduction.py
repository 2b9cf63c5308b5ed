"""The size of buckets and the algorithm by which a step is shortest: all pairs are worked out.

Two levels: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def choose_reduction(
    layers: Sequence[tuple[float, int]], cluster: Mapping[str, Any], caps: Sequence[int]
) -> tuple[int, str]:
    """(cap, algorithm) whose step is shortest, of the caps and "ring", "tree" and "two levels"."""
    nodes, per_node = int(cluster["nodes"]), int(cluster["per_node"])
    ranks = nodes * per_node

    def message(size: float, link: str) -> float:
        latency, bandwidth = cluster[link]
        return float(latency + size / bandwidth)

    def reduction(algorithm: str, size: int) -> float:
        if algorithm == "ring":
            return 2 * (ranks - 1) * message(size / ranks, "between" if nodes > 1 else "inside")
        if algorithm == "tree":
            far, near = math.ceil(math.log2(nodes)), math.ceil(math.log2(per_node))
            return 2 * (far * message(size, "between") + near * message(size, "inside"))
        near_parts = 2 * (per_node - 1) * message(size / per_node, "inside")
        return near_parts + 2 * (nodes - 1) * message(size / nodes, "between")

    def step(cap: int, algorithm: str) -> float:
        now = over = 0.0
        size = 0
        for seconds, more in reversed(layers):
            if size + more > cap:  # the bucket is closed, complete since the layer before
                over = max(over, now) + reduction(algorithm, size)
                size = 0
            now, size = now + seconds, size + more
        return max(over, now) + reduction(algorithm, size)

    pairs = [(cap, algorithm) for cap in caps for algorithm in ("ring", "tree", "two levels")]
    return min(pairs, key=lambda pair: step(*pair))
