"""Seconds of a step by bucket size and algorithm, and as they seem to somebody who has misread the exercise.

    question --times--> {(cap, algorithm): seconds} --SLIPS[...]--> {(cap, algorithm): seconds, as it seems}

The questions of `choose_reduction` are drawn until each slip has chosen badly in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

ALGORITHMS = RING, TREE, LEVELS = "ring", "tree", "two levels"
FAR, NEAR = "between", "inside"
Question: TypeAlias = dict[str, Any]  # "layers", "cluster", "caps"
Times: TypeAlias = dict[tuple[int, str], float]  # of a step, by cap and algorithm
Rounds: TypeAlias = list[
    tuple[float, float, str]
]  # messages one after another, buckets in all of them, over which links
Table: TypeAlias = dict[str, Rounds]
Slip: TypeAlias = Callable[[Question, Times], Times]
ALIKE = 1.0001  # times whose order is a matter of rounding


def rounds(nodes: int, per_node: int) -> Table:
    """What each algorithm sends."""
    ranks = nodes * per_node
    return {
        RING: [_turns(ranks, FAR if nodes > 1 else NEAR)],
        TREE: [_whole(2 * _depth(nodes), FAR), _whole(2 * _depth(per_node), NEAR)],
        LEVELS: [_turns(per_node, NEAR), _turns(nodes, FAR)],
    }


def _turns(parts: int, link: str, of: float = 2) -> tuple[float, float, str]:
    """Turns of a ring, but for the last message of each."""
    return of * (parts - 1), of * (parts - 1) / parts, link


def _whole(messages: float, link: str) -> tuple[float, float, str]:
    return messages, messages, link


def _depth(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _queue(buckets: Sequence[tuple[float, float]]) -> float:
    """When the last reduction is over, of buckets (complete, seconds)."""
    free = 0.0
    for complete, seconds in buckets:
        free = max(complete, free) + seconds
    return free


def times(
    question: Question,
    table: Callable[[int, int], Table] = rounds,
    *,
    too_large: Callable[[int, int, int], bool] = lambda waiting, more, cap: waiting + more > cap,
    end: Callable[[Sequence[tuple[float, float]]], float] = _queue,
) -> Times:
    """Seconds of the step for every choice."""
    cluster, found = question["cluster"], {}
    costs = {name: _cost(each, cluster) for name, each in table(cluster["nodes"], cluster["per_node"]).items()}
    for cap in question["caps"]:
        buckets = _buckets(question["layers"], cap, too_large)
        for name, (latency, per_byte) in costs.items():
            found[cap, name] = end([(complete, latency + size * per_byte) for complete, size in buckets])
    return found


def _cost(sent: Rounds, cluster: dict[str, Any]) -> tuple[float, float]:
    """Latencies, and seconds for a byte."""
    latencies = sum(messages * cluster[link][0] for messages, _, link in sent)
    return latencies, sum(share / cluster[link][1] for _, share, link in sent)


def _buckets(
    layers: Sequence[Sequence[float]], cap: int, too_large: Callable[[int, int, int], bool]
) -> list[tuple[float, int]]:
    """When each bucket is complete, and its bytes."""
    found: list[tuple[float, int]] = []
    now = 0.0
    for seconds, size in reversed(layers):
        now += seconds
        joins = found and not too_large(found[-1][1], int(size), cap)
        found[-1 if joins else len(found) :] = [(now, int(size) + (found[-1][1] if joins else 0))]
    return found


# what goes wrong: as the reader of the exercise sees it


def _read(**other: Callable[[int, int], Rounds]) -> Slip:
    """An algorithm that sends something else."""

    def table(nodes: int, per_node: int) -> Table:
        return rounds(nodes, per_node) | {name.replace("_", " "): each(nodes, per_node) for name, each in other.items()}

    return lambda question, took: times(question, table)


def _links(latency: float, per_byte: float) -> Slip:
    def slip(question: Question, took: Times) -> Times:
        cluster = dict(question["cluster"])
        for link in (NEAR, FAR):
            cluster[link] = [latency * cluster[link][0], cluster[link][1] / max(per_byte, 1e-30)]
        return times({**question, "cluster": cluster})

    return slip


def _seen_as(change: Callable[[list[Any]], list[Any]]) -> Slip:
    """Other layers."""
    return lambda question, took: times({**question, "layers": change(question["layers"])})


def _one_layer_late(layers: list[Any]) -> list[Any]:
    """As if a bucket were complete when the layer after its last one has been passed."""
    later = [seconds for seconds, _ in layers]
    moved = [0.0, *later[:-2], sum(later[-2:])]
    return [[seconds, size] for seconds, (_, size) in zip(moved, layers, strict=True)]


def _only(keep: Callable[[Question, Times], Callable[[int, str], bool]]) -> Slip:
    """Some of the choices are never looked at."""

    def slip(question: Question, took: Times) -> Times:
        kept = keep(question, took)
        return {pair: seconds for pair, seconds in took.items() if kept(*pair)}

    return slip


def _always(algorithm: str) -> Slip:
    return _only(lambda question, took: lambda _, name: name == algorithm)


def _without(place: int, *, in_order: bool) -> Slip:
    def keep(question: Question, took: Times) -> Callable[[int, str], bool]:
        left_out = (sorted(question["caps"]) if in_order else question["caps"])[place]
        return lambda cap, _: cap != left_out

    return _only(keep)


def _algorithm_first(size: Callable[[Question], int]) -> Slip:
    """The algorithm that reduces so many bytes best, and then the cap."""

    def keep(question: Question, took: Times) -> Callable[[int, str], bool]:
        cluster, n = question["cluster"], size(question)
        costs = {name: _cost(each, cluster) for name, each in rounds(cluster["nodes"], cluster["per_node"]).items()}
        best = min(costs, key=lambda name: costs[name][0] + n * costs[name][1])
        return lambda _, name: name == best

    return _only(keep)


def _size_first(algorithm: str) -> Slip:
    def keep(question: Question, took: Times) -> Callable[[int, str], bool]:
        best = min(question["caps"], key=lambda cap: took[cap, algorithm])
        return lambda cap, _: cap == best

    return _only(keep)


def _bytes(question: Question) -> int:
    return sum(size for _, size in question["layers"])


SLIPS: dict[str, Slip] = {
    "the ring ends P steps later": _read(ring=lambda n, m: [(2 * n * m, 2, FAR)]),
    "one turn of the ring": _read(ring=lambda n, m: [_turns(n * m, FAR, 1)]),
    "one latency in the ring": _read(ring=lambda n, m: [(1, _turns(n * m, FAR)[1], FAR)]),
    "a ring at the speed inside": _read(ring=lambda n, m: [_turns(n * m, NEAR)]),
    "whole buckets in the ring": _read(ring=lambda n, m: [_whole(2 * (n * m - 1), FAR)]),
    "the tree ends in the nodes": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR)]),
    "a tree of all ranks": _read(tree=lambda n, m: [_whole(2 * _depth(n * m), FAR)]),
    "a tree too low": _read(
        tree=lambda n, m: [_whole(2 * int(math.log2(n)), FAR), _whole(2 * int(math.log2(m)), NEAR)]
    ),
    "a tree rounded": _read(
        tree=lambda n, m: [_whole(2 * round(math.log2(each)), at) for each, at in ((n, FAR), (m, NEAR))]
    ),
    "a tree rounded between": _read(
        tree=lambda n, m: [_whole(2 * round(math.log2(n)), FAR), _whole(2 * _depth(m), NEAR)]
    ),
    "a tree rounded inside": _read(
        tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * round(math.log2(m)), NEAR)]
    ),
    "inside what is left of all": _read(
        tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * (_depth(n * m) - _depth(n)), NEAR)]
    ),
    "a tree too high": _read(tree=lambda n, m: [_whole(2 * n.bit_length(), FAR), _whole(2 * m.bit_length(), NEAR)]),
    "a tree too low inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * int(math.log2(m)), NEAR)]),
    "a tree too high inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * m.bit_length(), NEAR)]),
    "one message more inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * _depth(m) + 2, NEAR)]),
    "one after another inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * m - 2, NEAR)]),
    "one way inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(_depth(m), NEAR)]),
    "a tree not rounded": _read(
        tree=lambda n, m: [_whole(2 * math.log2(each), at) for each, at in ((n, FAR), (m, NEAR))]
    ),
    "a tree not rounded between": _read(tree=lambda n, m: [_whole(2 * math.log2(n), FAR), _whole(2 * _depth(m), NEAR)]),
    "a tree not rounded inside": _read(tree=lambda n, m: [_whole(2 * _depth(n), FAR), _whole(2 * math.log2(m), NEAR)]),
    "as many messages inside as ranks": _read(two_levels=lambda n, m: [(2 * m, 2, NEAR), _turns(n, FAR)]),
    "the tree one way": _read(tree=lambda n, m: [_whole(_depth(n), FAR), _whole(_depth(m), NEAR)]),
    "one after another up the tree": _read(tree=lambda n, m: [_whole(2 * n - 2, FAR), _whole(2 * m - 2, NEAR)]),
    "parts in the tree": _read(
        tree=lambda n, m: [(2 * _depth(n), 2 * _depth(n) / n, FAR), (2 * _depth(m), 2 * _depth(m) / m, NEAR)]
    ),
    "a link for each rank": _read(two_levels=lambda n, m: [_turns(m, NEAR), (2 * n - 2, 2 * (n - 1) / n / m, FAR)]),
    "whole buckets inside": _read(two_levels=lambda n, m: [_whole(2 * m - 2, NEAR), _turns(n, FAR)]),
    "whole buckets between": _read(two_levels=lambda n, m: [_turns(m, NEAR), _whole(2 * n - 2, FAR)]),
    "whole parts between": _read(two_levels=lambda n, m: [_turns(m, NEAR), (2 * n - 2, 2 * (n - 1) / m, FAR)]),
    "no gather inside": _read(two_levels=lambda n, m: [_turns(m, NEAR, 1), _turns(n, FAR)]),
    "one turn between": _read(two_levels=lambda n, m: [_turns(m, NEAR), _turns(n, FAR, 1)]),
    "latencies for each rank": _read(
        two_levels=lambda n, m: [_turns(m, NEAR), (2 * (n - 1) * m, 2 * (n - 1) / n, FAR)]
    ),
    "nothing inside": _read(two_levels=lambda n, m: [_turns(n, FAR)]),
    "no latency": _links(0.0, 1.0),
    "latencies alone": _links(1.0, 0.0),
    "layer 0 first": _seen_as(lambda layers: layers[::-1]),
    "a layer late": _seen_as(_one_layer_late),
    "less than the cap": lambda question, took: times(question, too_large=lambda old, new, cap: old + new >= cap),
    "more than the cap": lambda question, took: times(question, too_large=lambda old, new, cap: old > cap),
    "no queue": lambda question, took: times(question, end=lambda buckets: max(map(sum, buckets))),
    "the longer of both": lambda question, took: times(
        question, end=lambda buckets: max(buckets[-1][0], sum(seconds for _, seconds in buckets))
    ),
    "the last waits for all": lambda question, took: times(
        question, end=lambda buckets: max(buckets[-1][0], sum(each for _, each in buckets[:-1])) + buckets[-1][1]
    ),
    "the last one forgotten": lambda question, took: times(
        question, end=lambda buckets: max(buckets[-1][0], _queue(buckets[:-1]))
    ),
    **{f"always the {name}": _always(name) for name in ALGORITHMS},
    **{f"the size for the {name}": _size_first(name) for name in ALGORITHMS},
    "the algorithm for all bytes": _algorithm_first(_bytes),
    "the algorithm for the smallest": _algorithm_first(lambda question: min(question["caps"])),
    "the first cap left out": _without(0, in_order=False),
    "the last cap left out": _without(-1, in_order=False),
    "the smallest cap left out": _without(0, in_order=True),
    "the largest cap left out": _without(-1, in_order=True),
    "always the smallest cap": _only(lambda question, took: lambda cap, _: cap == min(question["caps"])),
    "always the largest cap": _only(lambda question, took: lambda cap, _: cap == max(question["caps"])),
}


def choices(question: Question, took: Times, slip: Slip) -> set[tuple[int, str]]:
    """What seems best to who makes this slip: several may seem so."""
    seems = slip(question, took)
    least = min(seems.values())
    return {pair for pair, seconds in seems.items() if seconds <= ALIKE * least}


def misled(question: Question, took: Times, slip: Slip) -> tuple[float, float]:
    """How many times the best that takes which seems best to who makes this slip, at least and at most."""
    chosen = [took[pair] for pair in choices(question, took, slip)]
    return min(chosen) / min(took.values()), max(chosen) / min(took.values())
