"""What the exercises on graphs share: graphs as plain data, and nodes that stop an endless walk.

{"leaves": leaves(rng, 1), "program": ladder(30)} --watched(inputs, calls)--> nodes
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from course.errors import CourseError, WrongOutput
from course.lessons.graph import Node, run_program
from course.performing.exercise import Inputs

READS_ALLOWED = 100  # of `inputs`, per node of the graph; visiting nodes takes a few, walking paths up to 3^30


class TooManyCalls(CourseError):
    """An answer asked the graph again and again: it walks every path, or in circles."""


def leaves(rng: torch.Generator, count: int) -> list[Any]:
    """Values of `count` leaves, floats between 0.5 and 2."""
    return list((torch.rand(count, generator=rng, dtype=torch.float64) * 1.5 + 0.5).tolist())


UNEVEN: list[Any] = [
    *(["*", 0, 1], ["relu", 2], ["relu", 3], ["*", 2, 4]),  # node 2 is used near the root, left, and far from it
    *(["relu", 5], ["relu", 6], ["+", 7, 5]),  # node 5 too, its near use is on the right
    *(["*", 8, 8], ["-", 9, 1], ["*", 10, 0]),
]
ALIKE: list[Any] = [["*", 0, 1], ["*", 0, 1], ["*", 2, 3], ["-", 4, 0]]  # nodes 2 and 3 hold the same


def ladder(rungs: int) -> list[list[Any]]:
    """A program over one leaf. Each rung adds the last node to itself, and then once more: the value triples, and so
    does the number of paths. The near use stands in turns left and right of the far one.
    """
    program: list[list[Any]] = []
    last = 0
    for rung in range(rungs):
        step = len(program) + 1
        program += [["+", last, last], ["+", step, last] if rung % 2 else ["+", last, step]]
        last = step + 1
    return program


LONG = 220  # rungs of unequal length: who visits a node for each longer path reads inputs 110 times on average
LADDERS = {"a long ladder, the short way on the left": True, "a long ladder, the short way on the right": False}


def uneven_ladder(*, near_first: bool) -> list[list[Any]]:
    """A program over one leaf. Each rung adds the last node to its relu; the near use is the left or the right one."""
    lasts = range(0, 2 * LONG, 2)
    return [row for last in lasts for row in (["relu", last], ["+", *sorted((last, last + 1), reverse=not near_first)])]


@functools.cache
def chain(length: int) -> list[list[Any]]:
    """A program over two leaves: `length - 1` operations in a row. The deep input is the left one and the right one in
    turns, so that a loop along one side does not help. Every hundredth adds a node further back to the last one, in
    turns left and right of it: what is right in a mere row is not enough.
    """
    rows = [["+", last, 1] if last % 2 else ["*", 0, last] for last in range(1, length)]
    for last in range(100, length, 100):
        rows[last - 1] = ["+", *(last, last - 3)[:: 1 if last % 200 else -1]]
    return rows


def rows(inputs: Inputs) -> list[list[Any]]:
    """The program of a case. A long one is stored as `{"chain": 2000}`: thousands of rows would be copied, compared
    and sent each time that the case is.
    """
    program = inputs["program"]
    return chain(program["chain"]) if isinstance(program, dict) else list(program)


@dataclass(slots=True)
class Reads:
    """How often `inputs` may still be read, and Python's recursion limit at its highest when a node was read or
    looked up.

    It stands beside the class of the nodes: writing to a class at every read would slow all of its attributes.
    """

    left: int
    highest_limit: int = 0

    def look(self) -> None:
        """Notes the recursion limit where it is higher than before."""
        if (limit := sys.getrecursionlimit()) > self.highest_limit:
            self.highest_limit = limit


class Watched(Node):
    """A node that counts, together with all others of its class, how often inputs are read.

    `watched` makes a subclass for each run and gives it `reads`; when none are left, the next one raises TooManyCalls.
    """

    reads: ClassVar[Reads]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes it was computed from, in order."""
        reads = self.reads
        if reads.left == 0:
            raise TooManyCalls(
                f"`inputs` was read more than {READS_ALLOWED} times per node of the graph: a loop that never ends, or "
                "every path is walked"
            )
        reads.left -= 1
        reads.look()
        return self._inputs

    @inputs.setter
    def inputs(self, nodes: tuple[Node, ...]) -> None:
        self._inputs = nodes

    def __hash__(self) -> int:
        """Of the object, as ever. Who has collected all inputs still asks sets and dicts for nodes on his way."""
        self.reads.look()
        return object.__hash__(self)


@contextmanager
def watched(inputs: Inputs, calls: int, kind: type[Watched] = Watched) -> Iterator[list[Node]]:
    """The nodes of a case's graph, of a subclass of `kind`, while an answer is called `calls` times.

    Raises WrongOutput afterwards where a graph deeper than Python's stack was walked under a raised limit. In small
    graphs a raised limit changes nothing, and costs no points.
    """
    program = rows(inputs)
    deep = isinstance(inputs["program"], dict)
    reads = Reads(READS_ALLOWED * (len(inputs["leaves"]) + len(program)) * calls)
    limit = sys.getrecursionlimit()
    make = type("Node", (kind,), {"reads": reads})
    with _no_collection():
        yield (
            _chained(inputs["leaves"], program, make) if deep else _alike(run_program(inputs["leaves"], program, make))
        )
    if deep and max(reads.highest_limit, sys.getrecursionlimit()) > limit:
        raise WrongOutput("Python's recursion limit must stay as it was; keep a stack of your own in a list")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of nodes would make Python look for garbage among all objects of the process: more work than theirs."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _alike(nodes: list[Node]) -> list[Node]:
    """All of one name, which tells no node apart either."""
    for node in nodes:
        node.name = "node"
    return nodes


def _chained(values: list[float], program: list[list[Any]], make: type[Watched]) -> list[Node]:
    """What `run_program` makes of a program of sums and products, in half the time: a proof builds thousands."""
    nodes: list[Node] = [make(value) for value in values]
    for op, left, right in program:
        a, b = nodes[left], nodes[right]
        if op == "+":
            nodes.append(make(a.value + b.value, op, (a, b), "", 0.0, (1.0, 1.0)))
        else:
            nodes.append(make(a.value * b.value, op, (a, b), "", 0.0, (b.value, a.value)))
    return nodes
