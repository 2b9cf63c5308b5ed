"""The stage, the units and whether to prefetch: all choices are worked out, and the fastest that fits is taken.

stage 3, with prefetch     network  |-gather 0-|-gather 1-|     |-gather 2-|
                           compute             |--- unit 0 ---| |--- unit 1 ---|--- unit 2 ---|

Stages: Rajbhandari et al. (arXiv 1910.02054), section 5. Prefetch: Zhao et al. (arXiv 2304.11277), section 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any


def choose_sharding(
    layers: Sequence[tuple[float, int]], cluster: Mapping[str, Any], sizes: Sequence[int]
) -> tuple[int, int, bool]:
    """(stage, layers in a unit, prefetch) whose step is shortest among those that fit."""
    ranks, often = cluster["ranks"], cluster["micro_batches"]
    latency, bandwidth = cluster["link"]
    n = sum(count for _, count in layers)

    def units(size: int) -> list[tuple[float, int]]:
        parts = [layers[start : start + size] for start in range(0, len(layers), size)]
        return [(sum(each for each, _ in part), sum(count for _, count in part)) for part in parts]

    def turn(count: int) -> float:
        return float((ranks - 1) * (latency + 2 * count / ranks / bandwidth))

    def held(stage: int, size: int, ahead: bool) -> float:
        largest = max(count for _, count in units(size))
        if stage == 1:
            return float(4 * n + 12 * n / ranks)
        gradients = 2 * largest
        if stage == 2:
            return float(2 * n + 14 * n / ranks + gradients)
        return float(16 * n / ranks + gradients + (4 if ahead else 2) * largest)

    def micro_batch(stage: int, size: int, ahead: bool, reduces: bool) -> float:
        begin = end = over = 0.0
        own = units(size)
        for times, (seconds, count) in [*product([1], own), *product([2], reversed(own))]:
            there = (begin if ahead else end) + turn(count) if stage == 3 else end
            begin = max(end, there)
            end = begin + times * seconds
            if times == 2 and reduces:
                over = max(over, end) + turn(count)
        return max(end, over)

    def step(stage: int, size: int, ahead: bool) -> float:
        last = micro_batch(stage, size, ahead, True)
        others = (often - 1) * micro_batch(stage, size, ahead, stage > 1)
        gathers = sum(turn(count) for _, count in units(size)) if stage < 3 else 0.0
        return float(others + last + gathers)

    choices = [*product((1, 2, 3), sizes, (False, True))]
    return min(choices, key=lambda each: (held(*each) > cluster["limit"], step(*each)))
