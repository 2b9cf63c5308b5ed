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
BEST = "return min(pairs, key=lambda pair: step(*pair))"
BEFORE, LAST = (
    "over = max(over, now) + reduction(algorithm, size)",
    "return max(over, now) + reduction(algorithm, size)",
)
FULL = "if size + more > cap:  # the bucket is closed, complete since the layer before"
RING = 'return 2 * (ranks - 1) * message(size / ranks, "between" if nodes > 1 else "inside")'
HEIGHTS = "far, near = math.ceil(math.log2(nodes)), math.ceil(math.log2(per_node))"
TREE = 'return 2 * (far * message(size, "between") + near * message(size, "inside"))'
INSIDE = 'near_parts = 2 * (per_node - 1) * message(size / per_node, "inside")'
LEVELS = 'return near_parts + 2 * (nodes - 1) * message(size / nodes, "between")'


def choosing(caps: str = "caps", algorithms: str = '("ring", "tree", "two levels")') -> Answer:
    """Fewer pairs."""
    return edit((PAIRS, f"for cap in {caps} for algorithm in {algorithms}]"))


def for_one(size: str) -> Answer:
    """The algorithm that is best for one bucket of this size, and then the cap."""
    quickest = 'min(("ring", "tree", "two levels"), key=lambda each: reduction(each, whole))'
    return edit(
        ("pairs = ", f"whole = {size}\n    best = {quickest}\n    pairs = "),
        (PAIRS, "for cap in caps for algorithm in [best]]"),
    )


def size_for(algorithm: str) -> Answer:
    """The cap that is best with this algorithm, and then the algorithm."""
    first = f"cap = min(caps, key=lambda each: step(each, {algorithm!r}))"
    return edit((BEST, f"{first}\n    {BEST.replace('pairs', '[pair for pair in pairs if pair[0] == cap]')}"))


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
        "always_the_smallest",
        "You always take the smallest buckets. They begin early, but each pays its latencies: on many ranks with small "
        "gradients one large bucket is quicker, though it begins last.",
        choosing(caps="[min(caps)]"),
    ),
    wrong(
        "always_the_largest",
        "You always take the largest buckets, perhaps because of how you add up: where reductions begin after "
        "backward, or make it wait, or where they alone are counted, nothing is quicker than one bucket. A bucket "
        "travels while backward goes on with the next layers: only what is left when it ends makes the step longer.",
        choosing(caps="[max(caps)]"),
        edit((BEFORE, BEFORE.replace("max(over, now)", "over")), (LAST, LAST.replace("max(over, now)", "over"))),
        edit((BEFORE, BEFORE.replace("max(over, now)", "over")), (LAST, LAST.replace("max(over, now)", "now + over"))),
        edit((BEFORE, "now = " + BEFORE)),
    ),
    wrong(
        "the_longer_of_both",
        "You take the longer of backward and all reductions together. The network is idle until the first bucket is "
        "complete, and the last one is reduced when backward is over.",
        edit(
            (BEFORE, BEFORE.replace("max(over, now)", "over")),
            (LAST, "return max(now, over + reduction(algorithm, size))"),
        ),
        edit((BEFORE, BEFORE.replace("max(over, now)", "over"))),
    ),
    wrong(
        "last_bucket_forgotten",
        "You do not reduce the bucket that is open when backward ends. It is complete with the first layer, and no one "
        "can hide it.",
        edit((LAST, "return max(over, now)")),
    ),
    wrong(
        "no_queue",
        "Your reductions travel all at once. There is one network: each waits for the one before it.",
        edit(
            (BEFORE, "over = max(over, now + reduction(algorithm, size))"),
            (LAST, "return max(over, now + reduction(algorithm, size))"),
        ),
    ),
    wrong(
        "caps_left_out",
        "You do not try all caps: the first or the last of the list, or the smallest or the largest of them, is never "
        "chosen. Each may be the best, and they stand in no order.",
        choosing(caps="caps[1:]"),
        choosing(caps="caps[:-1]"),
        choosing(caps="sorted(caps)[1:]"),
        choosing(caps="sorted(caps)[:-1]"),
    ),
    wrong(
        "algorithm_first",
        "You choose the algorithm for one bucket, and then the size of the buckets. What is best for all bytes at once "
        "need not be best for an eighth of them: compare all pairs by the time of the step.",
        for_one("sum(size for _, size in layers)"),
        for_one("min(caps)"),
    ),
    wrong(
        "size_first",
        "You choose the size of the buckets for one algorithm, and then the algorithm for that size. Another algorithm "
        "may have another best size: compare all pairs.",
        size_for("ring"),
        size_for("tree"),
        size_for("two levels"),
    ),
    wrong(
        "first_layer_first",
        "You go through the layers from the first one on. Backward begins with the last one, and so do the buckets.",
        edit(("in reversed(layers)", "in layers")),
    ),
    wrong(
        "full_at_the_cap",
        "You close a bucket that would have just `cap` bytes. A layer joins if both have at most `cap` bytes together.",
        edit((FULL, FULL.replace(">", ">="))),
    ),
    wrong(
        "closed_when_it_is_too_large",
        "You close a bucket only when it has more than `cap` bytes. A layer that does not fit begins a new one.",
        edit((FULL, "if size > cap:")),
    ),
    wrong(
        "complete_a_layer_late",
        "Your bucket is complete only when backward has passed the first layer of the next one. It is complete with "
        "its own last layer.",
        edit((FULL, "now += seconds\n            " + FULL), ("now, size = now + seconds, size + more", "size += more")),
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
        "messages_of_the_ring",
        "A ring has 2 (P - 1) messages, one after another and each with its own latency: P - 1 that add, and P - 1 "
        "that pass on what is complete.",
        edit((RING, RING.replace("2 * (ranks - 1)", "(ranks - 1)"))),
        edit((RING, RING.replace("(ranks - 1)", "ranks"))),
        edit((RING, RING.replace("2 * (ranks - 1) * message(size", "message(2 * (ranks - 1) * size"))),
    ),
    wrong(
        "height_of_the_tree",
        "The height of the tree is not right. Among k nodes there are ceil(log2 k) messages one after another, as the "
        "number of ranks that know doubles with each; and as many as that inside, for `per_node` ranks.",
        edit((HEIGHTS, "far, near = int(math.log2(nodes)), int(math.log2(per_node))")),
        edit((HEIGHTS, "far, near = round(math.log2(nodes)), round(math.log2(per_node))")),
        edit((HEIGHTS, "far, near = nodes.bit_length(), per_node.bit_length()")),
        edit((HEIGHTS, "far, near = nodes - 1, per_node - 1")),
        edit((HEIGHTS, "far, near = (nodes - 1).bit_length(), per_node.bit_length()")),
        edit((HEIGHTS, "far, near = math.ceil(math.log2(nodes)), int(math.log2(per_node))")),
        edit((HEIGHTS, "far, near = math.ceil(math.log2(nodes)), per_node - 1")),
        edit((HEIGHTS, "far, near = math.log2(nodes), math.log2(per_node)")),
        edit((HEIGHTS, "far, near = math.log2(nodes), math.ceil(math.log2(per_node))")),
        edit((HEIGHTS, "far, near = math.ceil(math.log2(nodes)), math.log2(per_node)")),
        edit((HEIGHTS, "far, near = round(math.log2(nodes)), math.ceil(math.log2(per_node))")),
        edit((HEIGHTS, "far, near = math.ceil(math.log2(nodes)), round(math.log2(per_node))")),
        edit((HEIGHTS, "far = math.ceil(math.log2(nodes)); near = math.ceil(math.log2(ranks)) - far")),
        by_chance=True,  # some miss by so little that only close calls show it on every seed
    ),
    wrong(
        "tree_of_nodes_alone",
        "Your tree ends in the nodes. Inside, too, messages take time: ceil(log2 per_node) of them on each way.",
        edit((TREE, TREE.replace(' + near * message(size, "inside")', ""))),
    ),
    wrong(
        "tree_one_way",
        "In a tree the sums go to one rank, and then the result comes back: as many messages again.",
        edit((TREE, TREE.replace("2 * ", ""))),
        edit((TREE, 'return 2 * far * message(size, "between") + near * message(size, "inside")')),
    ),
    wrong(
        "parts_in_the_tree",
        "A tree sends whole buckets. Nobody there has a part that is complete.",
        edit((TREE, 'return 2 * (far * message(size / nodes, "between") + near * message(size / per_node, "inside"))')),
    ),
    wrong(
        "a_link_for_each_rank",
        "The ranks of a node have one link to the others together. What they send at the same time adds up.",
        edit(("message(size / nodes,", "message(size / ranks,")),
    ),
    wrong(
        "latencies_for_each_rank",
        "You let the ranks of a node send one after another. They send at the same time: the bytes add up on their "
        "link, and the latency is one.",
        edit((LEVELS, 'return near_parts + 2 * (nodes - 1) * per_node * message(size / ranks, "between")')),
    ),
    wrong(
        "whole_gradients_inside",
        "Inside a node you send the whole bucket in every message. Each holds one of as many parts as a node has "
        "ranks.",
        edit(('message(size / per_node, "inside")', 'message(size, "inside")')),
    ),
    wrong(
        "two_levels_of_whole_gradients",
        "Between nodes you send the whole bucket in every message, or all of a rank's part. Each rank has a part of "
        "the bucket, and a ring of nodes sends one of as many pieces of it as there are nodes.",
        edit(("message(size / nodes,", "message(size,")),
        edit(("message(size / nodes,", "message(size / per_node,")),
    ),
    wrong(
        "half_of_two_levels",
        "Something is missing from your two levels: in each node a reduce-scatter before, and an all-gather after; and "
        "between nodes an all-reduce, which goes round twice.",
        edit((INSIDE, INSIDE.replace("2 * ", ""))),
        edit((LEVELS, LEVELS.replace("2 * ", ""))),
        edit((LEVELS, LEVELS.replace("near_parts + ", ""))),
    ),
)
