"""Where the boxes of a graph stand: leaves left, root right, one column for each depth; constants beside their use.

    root --arrange--> columns of places, few crossings --heights--> the y of each place

The steps are those of K. Sugiyama, S. Tagawa and M. Toda, Methods for visual understanding of hierarchical system
structures (IEEE Trans. SMC 11, 1981): layers, bends where an arrow passes a column, barycentre sweeps. Everything
is a loop, because a graph may be deeper than Python's stack.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import TypeAlias

from course.errors import CourseError
from course.lessons.graph import Node

CROSSING_SWEEPS = 12
STRAIGHTENING_SWEEPS = 40
MAX_PLACES = 5_000  # boxes and bends; no one can read such a picture, and a larger one takes seconds


class CannotDraw(CourseError):
    """Something that is no graph, or a graph that is too large for a picture."""


@dataclass(frozen=True)
class Bend:
    """The point at which all arrows from `source` to later columns pass through `column`."""

    source: Node
    column: int


Place: TypeAlias = Node | Bend


@dataclass(frozen=True)
class Arrangement:
    """Places by column and from top to bottom, and each place's neighbours in the next column on either side."""

    columns: list[list[Place]]
    left: dict[Place, list[Place]] = field(default_factory=dict)
    right: dict[Place, list[Place]] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """The nodes column by column and from top to bottom: an order in which they can be computed."""
        return [place for column in self.columns for place in column if isinstance(place, Node)]

    def column_of(self) -> dict[Node, int]:
        """The column in which each node stands."""
        return {
            place: number for number, column in enumerate(self.columns) for place in column if isinstance(place, Node)
        }


def arrange(root: Node) -> Arrangement:
    """The graph of `root` in columns. Raises CannotDraw for what is no Node and for more than 5,000 places."""
    depth = depths(root)
    first_use, last_use = _uses(depth)
    for node in depth:
        if not node.inputs and not node.name and node is not root:
            depth[node] = first_use[node] - 1  # a constant stands beside its use
    places = sum(max(1, last_use[node] - column) for node, column in depth.items())
    if places > MAX_PLACES:
        raise CannotDraw(
            f"a picture holds at most {MAX_PLACES:,} boxes and bends, got {places:,}: draw a part of the graph"
        )
    return _uncross(_connect(depth, last_use))


def depths(root: Node) -> dict[Node, int]:
    """The longest way from a leaf to each node, in arrows; nodes in the order in which a walk from `root` meets them.

    Sorted by their depth, nodes can be computed one after the other. Raises CannotDraw for what is no Node.
    """
    if not isinstance(root, Node):
        raise CannotDraw(f"a graph must be given by its root, a course.lessons.graph.Node, got {type(root).__name__}")
    inputs: dict[Node, tuple[Node, ...]] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in inputs:
            inputs[node] = node.inputs
            waiting.extend(reversed(node.inputs))
    depth: dict[Node, int] = {}
    for node in TopologicalSorter(inputs).static_order():
        depth[node] = max((depth[each] + 1 for each in inputs[node]), default=0)
    return {node: depth[node] for node in inputs}


def _uses(depth: Mapping[Node, int]) -> tuple[dict[Node, int], dict[Node, int]]:
    """The least and the greatest depth of the nodes that are computed from each node."""
    first: dict[Node, int] = {}
    last: dict[Node, int] = dict(depth)
    for node, column in depth.items():
        for each in node.inputs:
            first[each] = min(first.get(each, column), column)
            last[each] = max(last[each], column)
    return first, last


def _connect(depth: Mapping[Node, int], last_use: Mapping[Node, int]) -> Arrangement:
    """Nodes and bends in their columns, each linked to its neighbours."""
    arrangement = Arrangement([[] for _ in range(max(depth.values()) + 1)])
    for node, column in depth.items():
        arrangement.columns[column].append(node)
        for between in range(column + 1, last_use[node]):
            bend = Bend(node, between)
            arrangement.columns[between].append(bend)
            _link(arrangement, _place(node, between - 1, depth), bend)
    for node, column in depth.items():
        for each in node.inputs:
            _link(arrangement, _place(each, column - 1, depth), node)
    return arrangement


def _place(node: Node, column: int, depth: Mapping[Node, int]) -> Place:
    """What stands for `node` in this column: its box, or the bend of its arrows."""
    return node if depth[node] == column else Bend(node, column)


def _link(arrangement: Arrangement, left: Place, right: Place) -> None:
    arrangement.right.setdefault(left, []).append(right)
    arrangement.left.setdefault(right, []).append(left)


def _uncross(start: Arrangement) -> Arrangement:
    """The same columns in another order: the best of some sweeps from left to right and back."""
    best, fewest = start.columns, _crossings(start)
    columns = start.columns
    for sweep in range(CROSSING_SWEEPS):
        if fewest == 0:
            break
        columns = _sweep(columns, start.left if sweep % 2 == 0 else start.right, backwards=sweep % 2 == 1)
        count = _crossings(Arrangement(columns, start.left, start.right))
        if count < fewest:
            best, fewest = columns, count
    return Arrangement(best, start.left, start.right)


def _sweep(
    columns: list[list[Place]], neighbours: Mapping[Place, list[Place]], *, backwards: bool
) -> list[list[Place]]:
    """Each column sorted by the mean position of each place's neighbours in the column before it."""
    result: list[list[Place]] = []
    before: dict[Place, float] = {}
    for column in reversed(columns) if backwards else columns:
        middle = {
            place: _mean([before[each] for each in neighbours.get(place, ())], otherwise=position)
            for position, place in enumerate(column)
        }
        result.append(sorted(column, key=middle.__getitem__))
        before = {place: float(position) for position, place in enumerate(result[-1])}
    return result[::-1] if backwards else result


def _mean(numbers: list[float], *, otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _crossings(arrangement: Arrangement) -> int:
    """How many pairs of links cross: the inversions of right ends, links being sorted by their left ends."""
    count = 0
    for column, following in pairwise(arrangement.columns):
        position = {place: number for number, place in enumerate(following)}
        ends: list[int] = []
        for place in column:
            targets = [position[each] for each in arrangement.right.get(place, ())]
            count += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return count


def heights(arrangement: Arrangement, *, box: float, bend: float, gap: float) -> dict[Place, float]:
    """The y of each place's middle, in pixels from the top of the highest box: near its neighbours, no overlap.

    box, bend   height of a box and of the lane that an arrow gets past a column
    gap         smallest distance between two of them
    """

    def size(place: Place) -> float:
        return box if isinstance(place, Node) else bend

    y: dict[Place, float] = {}
    for column in arrangement.columns:
        y.update(_stack(column, [0.0] * len(column), size, gap))
    for sweep in range(STRAIGHTENING_SWEEPS):
        for column in arrangement.columns if sweep % 2 else reversed(arrangement.columns):
            wanted = [_pull(place, arrangement, y) for place in column]
            y.update(_stack(column, wanted, size, gap))
    top = min(middle - size(place) / 2 for place, middle in y.items())
    return {place: round(middle - top, 1) for place, middle in y.items()}


def _pull(place: Place, arrangement: Arrangement, y: Mapping[Place, float]) -> float:
    """Where a place would like to be: the mean of its neighbours, bends among those of a bend counting tenfold."""
    neighbours = arrangement.left.get(place, []) + arrangement.right.get(place, [])
    if isinstance(place, Bend):
        neighbours += 9 * [each for each in neighbours if isinstance(each, Bend)]
    return _mean([y[each] for each in neighbours], otherwise=y[place])


def _stack(column: list[Place], wanted: list[float], size: Callable[[Place], float], gap: float) -> dict[Place, float]:
    """The places at the heights they want, as far as their order and the gaps allow (least squares).

    Without each place's own distance from the first one, the heights must only not fall: neighbours that
    contradict that are merged to their mean (the pool-adjacent-violators algorithm).
    """
    offsets = [0.0]
    for above, below in pairwise(column):
        offsets.append(offsets[-1] + (size(above) + size(below)) / 2 + gap)
    pools: list[tuple[float, int]] = []
    for height, offset in zip(wanted, offsets, strict=True):
        total, count = height - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            total, count = total + pools[-1][0], count + pools[-1][1]
            pools.pop()
        pools.append((total, count))
    level = [total / count for total, count in pools for _ in range(count)]
    return {place: start + offset for place, start, offset in zip(column, level, offsets, strict=True)}
