"""Right and wrong ways to write `choose_reduction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.ddp.choose_reduction import choose_reduction

Layers = Sequence[tuple[float, int]]


def longest_ways(layers: Layers, cluster: Mapping[str, Any], caps: Sequence[int]) -> tuple[int, str]:
    """A step is as long as the longest way: backward up to a bucket, then all reductions from this one on."""
    n, m = cluster["nodes"], cluster["per_node"]
    (near, fast), (far, slow) = cluster["inside"], cluster["between"]
    slowest = (far, slow) if n > 1 else (near, fast)
    levels, within = np.ceil(np.log2([n, m]))
    p = n * m
    alpha_beta = {
        "ring": (2 * (p - 1) * slowest[0], 2 * (1 - 1 / p) / slowest[1]),
        "tree": (2 * (levels * far + within * near), 2 * (levels / slow + within / fast)),
        "two levels": (
            2 * ((m - 1) * near + (n - 1) * far),
            2 * ((1 - 1 / m) / fast + (1 - 1 / n) / slow),
        ),
    }
    best: list[tuple[float, int, str]] = []
    for cap in caps:
        ready, sizes = _buckets(layers, cap)
        for name, (alpha, beta) in alpha_beta.items():
            left = np.cumsum((alpha + beta * sizes)[::-1])[::-1]
            best.append((float((ready + left).max()), cap, name))
    return min(best)[1:]


def _buckets(layers: Layers, cap: int) -> tuple[Any, Any]:
    """When each bucket is complete, and its bytes."""
    done = [*accumulate(seconds for seconds, _ in reversed(layers))]
    ready: list[float] = []
    sizes: list[int] = []
    for at, (_, size) in zip(done, reversed(layers), strict=True):
        if sizes and sizes[-1] + size <= cap:
            ready[-1], sizes[-1] = at, sizes[-1] + size
        else:
            ready.append(at)
            sizes.append(size)
    return np.array(ready), np.array(sizes)


def played(layers: Layers, cluster: Mapping[str, Any], caps: Sequence[int]) -> tuple[int, str]:
    """Message after message is added up."""
    n, m = cluster["nodes"], cluster["per_node"]
    far, near = "between", "inside"

    def steps(algorithm: str, size: float) -> list[tuple[str, float]]:
        if algorithm == "ring":
            return [(far if n > 1 else near, size / (n * m))] * (2 * n * m - 2)
        if algorithm == "tree":
            return [(far, size)] * (2 * _rounds(n)) + [(near, size)] * (2 * _rounds(m))
        return [(near, size / m)] * (2 * m - 2) + [(far, size / n)] * (2 * n - 2)

    def seconds(cap: int, algorithm: str) -> float:
        clock = network = 0.0
        todo, bucket = [*layers], 0
        while todo:
            took, size = todo.pop()
            clock += took
            bucket += size
            if not todo or bucket + todo[-1][1] > cap:
                network = max(network, clock)
                for link, part in steps(algorithm, bucket):
                    network += cluster[link][0] + part / cluster[link][1]
                bucket = 0
        return network

    choices = {(cap, name): seconds(cap, name) for name in ("two levels", "tree", "ring") for cap in caps}
    return min(choices, key=lambda choice: choices[choice])


def _rounds(ranks: int) -> int:
    """How often a number that doubles must do so to reach `ranks`."""
    return 0 if ranks == 1 else 1 + _rounds((ranks + 1) // 2)


RIGHT = (right(longest_ways, independent="NumPy's running sums, and the longest way"), right(played))

edit = partial(edited, choose_reduction)
PAIRS = 'for cap in caps for algorithm in ("ring", "tree", "two levels")]'


def choosing(caps: str = "caps", algorithms: str = '("ring", "tree", "two levels")') -> Answer:
    """Fewer pairs."""
    return edit((PAIRS, f"for cap in {caps} for algorithm in {algorithms}]"))


WRONG = (
    wrong(
        "one_algorithm_for_all",
        "You always take the same algorithm. On many ranks with small gradients latencies decide, and a tree has few; "
        "where nodes are fast inside, two levels pay; where they are not, the ring sends least.",
        choosing(algorithms='("ring",)'),
        choosing(algorithms='("tree",)'),
        choosing(algorithms='("two levels",)'),
    ),
    wrong(
        "one_size_for_all",
        "You always take the smallest buckets, or the largest, which communicate least. Large ones begin late, small "
        "ones pay many latencies: which costs more depends on the cluster, and on how long backward takes.",
        choosing(caps="[max(caps)]"),
        choosing(caps="[min(caps)]"),
        edit(
            ("over = max(over, now) + reduction", "over = over + reduction"),
            ("return max(over, now) +", "return over +"),
        ),
    ),
    wrong(
        "no_queue",
        "Your reductions travel all at once. There is one network: each waits for the one before it.",
        edit(
            (
                "over = max(over, now) + reduction(algorithm, size)",
                "over = max(over, now + reduction(algorithm, size))",
            ),
            (
                "return max(over, now) + reduction(algorithm, size)",
                "return max(over, now + reduction(algorithm, size))",
            ),
        ),
    ),
    wrong(
        "no_latency",
        "You count bytes alone. Each message has a latency, too, and a ring of many ranks has many messages.",
        edit(("float(latency + size / bandwidth)", "float(size / bandwidth)")),
    ),
    wrong(
        "latency_alone",
        "You count messages alone. Large gradients take time by their bytes, and a tree sends all of them again and "
        "again.",
        edit(("float(latency + size / bandwidth)", "float(latency)")),
    ),
    wrong(
        "fast_ring",
        "You let the ring travel at the speed inside a node. In every step some messages go from one node to the next, "
        "and the others wait for them.",
        edit(('"between" if nodes > 1 else "inside"', '"inside"')),
    ),
    wrong(
        "whole_gradients_in_the_ring",
        "In a ring each message holds one of P parts, not all of the bucket.",
        edit(("message(size / ranks,", "message(size,")),
    ),
    wrong(
        "a_link_for_each_rank",
        "The ranks of a node have one link to the others together. What they send at the same time adds up.",
        edit(("message(size / nodes,", "message(size / ranks,")),
        by_chance=True,
    ),
    wrong(
        "whole_gradients_inside",
        "Inside a node you send the whole bucket in every message. Each holds one of as many parts as a node has "
        "ranks.",
        edit(('message(size / per_node, "inside")', 'message(size, "inside")')),
        by_chance=True,
    ),
    wrong(
        "two_levels_of_whole_gradients",
        "Between nodes you send the whole bucket in every message. Each rank has a part of it, and a ring of nodes "
        "sends one of as many parts as there are nodes.",
        edit(("message(size / nodes,", "message(size,")),
    ),
)
