"""`topological_order(root)`: the nodes of a graph, inputs before users.

Any such order is right, so none is compared with the reference's: the statements below are checked on the order
itself, as numbers of nodes in the order in which they were built.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercises.computational_graphs.graphs import (
    ALIKE,
    LADDERS,
    UNEVEN,
    ladder,
    leaves,
    rows,
    uneven_ladder,
    watched,
)
from course.lessons.graph import Node
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    observe,
)
from course.performing.forms import put

SMALL = ("tree", "diamond", "unequal paths", "one input twice", "one leaf", "part of a graph")
SHARED: list[Any] = [
    *(["+", 0, 1], ["*", 2, 0], ["+", 1, 3], ["*", 4, 2], ["+", 3, 5], ["*", 6, 1]),
    *(["+", 7, 4], ["*", 2, 8], ["+", 9, 6], ["*", 0, 10]),
]
USED_TWICE: list[Any] = [  # node 3 uses node 2 twice, node 4 once
    *(["+", 0, 1], ["*", 2, 2], ["*", 2, 1], ["relu", 4], ["relu", 5]),
]
LONGEST = 100_000  # nodes that are read of an order
WATCHED = 100  # nodes of which is asked whether they are as they were
STRANGER = -1  # stands for an object that is no node of the graph


def cases(rng: torch.Generator) -> list[Case]:
    """A graph of each kind that breaks some order, 30 diamonds, 2,000 nodes in a chain with ways beside it, ladders."""

    def case(name: str, count: int, program: Any, root: int = -1, calls: int = 1) -> Case:
        values = leaves(rng, count)
        return Case(name=name, inputs={"leaves": values, "program": program, "root": root, "calls": calls})

    once: dict[str, Any] = {"root": -1, "calls": 1}
    diamond = [["*", 0, 1], ["relu", 2], ["exp", 2], ["+", 3, 4]]
    unequal = [["*", 0, 1], ["relu", 2], ["exp", 3], ["+", 2, 4]]  # node 2: one step from the root, and three
    return [
        case("tree", 4, [["*", 0, 1], ["*", 2, 3], ["+", 4, 5]]),
        case("diamond", 2, diamond),
        case("unequal paths", 2, unequal),
        case("one input twice", 1, [["*", 0, 0], ["+", 1, 1]]),
        case("one leaf", 1, []),
        case("part of a graph", 4, [["*", 0, 1], ["*", 2, 3], ["exp", 4], ["*", 6, 5]], root=6),
        case("the same graph again", 2, diamond, calls=2),
        case("ladder of 30 diamonds", 1, ladder(30)),
        Case(name="chain of 2,000", inputs={"leaves": [1.0, *leaves(rng, 1)], "program": {"chain": 2_000}, **once}),
        *(case(name, 1, uneven_ladder(near_first=near_first)) for name, near_first in LADDERS.items()),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Builds the graph, calls `answer(root)` once or twice, and reads the number of each node in the last order.

    It also counts the nodes on which something is not as it was, of large graphs among the first ones.
    """
    with watched(inputs, inputs["calls"]) as nodes:
        first = nodes[:WATCHED]
        for node in first:
            node.grad = 1.0  # as a backward pass leaves it, so that a mark in its place cannot be taken back
        before = [dict(vars(node)) for node in first]
        for _ in range(inputs["calls"]):
            order = _numbers(answer(nodes[inputs["root"]]), nodes)
        changed = sum(vars(node) != was for node, was in zip(first, before, strict=True))
    return observe({"order": torch.tensor(order, dtype=torch.int64), "changed": changed})


def _numbers(result: object, nodes: list[Node]) -> list[int]:
    """The number of each node of an order. Raises WrongOutput on what is none: an iterator can be read only once."""
    if not isinstance(result, (list, tuple)):
        raise WrongOutput(
            f"must return a list of nodes, got {type(result).__name__}; is a `return` or list(...) missing?"
        )
    number = {id(node): index for index, node in enumerate(nodes)}
    return [number.get(id(each), STRANGER) for each in result[:LONGEST]]


# --- statements on an order ------------------------------------------------------------------------


def _order(values: Values) -> list[int]:
    order = values["order"]
    if not isinstance(order, Tensor):
        raise TypeError("an order must be a tensor of node numbers")
    return [int(each) for each in order.flatten().tolist()]


def _name(inputs: Inputs, node: int) -> str:
    """`node 4 (*)`, or `node 0 (a leaf)`."""
    row = node - len(inputs["leaves"])
    return f"node {node} ({rows(inputs)[row][0] if row >= 0 else 'a leaf'})"


def _complete(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Exactly the nodes that the root depends on, however often."""
    order, needed = set(_order(got)), set(_order(expected))
    if STRANGER in order:
        return (
            "the list holds an object that is no node of this graph; a list in a default argument still holds those "
            "of earlier calls"
        )
    for node in sorted(needed - order):
        root = node == max(needed)  # nodes are numbered inputs first
        return f"{'the root, ' if root else ''}{_name(inputs, node)} is missing"
    for node in sorted(order - needed):
        return f"{_name(inputs, node)} is in the list, but the root does not depend on it"
    return None


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """No node stands there twice."""
    node, times = max(Counter(_order(got)).items(), key=lambda pair: pair[1], default=(STRANGER, 1))
    return None if times == 1 else f"{_name(inputs, node)} stands there {times} times"


def _inputs_first(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Before each node stand all of its inputs."""
    return _too_early(inputs, _order(got))


def _too_early(inputs: Inputs, order: list[int]) -> str | None:
    """The first node that stands before one of its inputs."""
    before: set[int] = set()
    needed: list[list[int]] = [[] for _ in inputs["leaves"]] + [row[1:] for row in rows(inputs)]
    for node in order:
        for each in needed[node]:
            if each not in before:
                return f"{_name(inputs, node)} stands before its input, {_name(inputs, each)}"
        before.add(node)
    return None


def _one_direction(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Read forward or read backward, inputs stand before users."""
    order = _order(got)
    forward, backward = _too_early(inputs, order), _too_early(inputs, order[::-1])
    return f"read forward, {forward}; read backward, {backward}" if forward and backward else None


def _complete_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    return _complete(inputs, got, expected) or _once(inputs, got, expected)


def _right(inputs: Inputs, got: Values, expected: Values) -> str | None:
    return _complete_once(inputs, got, expected) or _inputs_first(inputs, got, expected)


EXERCISE = Exercise(
    id="computational_graphs.topological_order",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "every_node_is_there",
            "All nodes that the root depends on belong in the list: the root itself, the leaves too, "
            "and nothing else. Nodes are told apart as objects: two may have the same value.",
            holds=_complete,
            cases=SMALL,
        ),
        Property(
            "no_node_twice",
            "A node with two users is reached twice, and so is one that stands twice among the inputs of the "
            "same node (x * x): it may wait twice on your stack. Ask once more whether it is done "
            "when its turn comes.",
            holds=_once,
            cases=SMALL,
            needs=("every_node_is_there",),
        ),
        Property(
            "same_graph_again",
            "A second call on the same graph must give the whole list once more. What you note about nodes "
            "belongs to one call: keep it in a set inside the function, not on the nodes or in a default argument.",
            holds=_complete_once,
            cases=("the same graph again",),
            needs=("no_node_twice",),
        ),
        Property(
            "one_direction",
            "In one and the same list some nodes stand after their inputs and others before them: that is no "
            "order, read forward or backward.",
            holds=_one_direction,
            cases=SMALL,
            needs=("every_node_is_there",),
        ),
        Property(
            "inputs_first_in_a_tree",
            "A node may be added only after all of its inputs: the leaves come early, the root comes last.",
            holds=_inputs_first,
            cases=("tree", "one input twice", "one leaf", "part of a graph"),
            needs=("every_node_is_there",),
        ),
        Property(
            "inputs_first_in_a_diamond",
            "A shared node must stand before both of its users, also before the one that you reach last.",
            holds=_inputs_first,
            cases=("diamond",),
            needs=("inputs_first_in_a_tree",),
        ),
        Property(
            "inputs_first_on_unequal_paths",
            "A node may be one step from the root on one path and three on another. Its distance from "
            "the root says nothing about its place: it must wait for all of its inputs.",
            holds=_inputs_first,
            cases=("unequal paths",),
            needs=("inputs_first_in_a_diamond",),
        ),
        Property(
            "visits_nodes_not_paths",
            "The ladder has 61 nodes and over a billion paths. Each node's `inputs` are read a few times on average "
            "(100 are tolerated), however many paths there are: ask whether a node was seen before you go on to its "
            "inputs, not when it is added, and look the answer up in a set. A longer path is no reason to go there "
            "again.",
            holds=_complete_once,
            cases=("ladder of 30 diamonds", *LADDERS),
            needs=("no_node_twice",),
        ),
        Property(
            "deep_graphs_end",
            "Python's stack ends after about 1,000 calls inside one another, and going over all nodes "
            "for each node takes millions of steps here. A loop with a stack of your own does neither, and leaves "
            "Python's limit as it is.",
            holds=_right,
            cases=("chain of 2,000",),
            needs=("no_node_twice", "inputs_first_on_unequal_paths"),
        ),
        Property(
            "graph_unchanged",
            "Something on the nodes is not as it was before the call: a new attribute, or a changed one. Keep what you "
            "note about nodes in a set or a dict inside the function.",
            keys=("changed",),
            cases=SMALL,
            needs=("every_node_is_there",),
        ),
        Property(
            EVERY_FORM,
            "Two leaves may hold the same value, and the same operation may stand twice: they are different nodes all "
            "the same, so keep nodes themselves in your set. The short way to a shared node may be its right or its "
            "left one, many nodes may be shared, one node may use another twice, and the root may be a leaf that "
            "others use.",
            holds=_right,
        ),
    ),
    hints=(
        "When may a node be added to the list: when you first meet it, or at some later moment? What must "
        "have happened by then?",
        "Depth-first search adds a node when all that it depends on has been added. With a stack in a list, "
        "a node comes by twice: once to send its inputs ahead, once to be added.",
        "A node goes on the stack twice, with a mark that says whether its inputs have been sent ahead. On the second "
        "visit it is added.",
    ),
    forms=(
        put("equal leaves, and one operation twice", leaves=[1.5, 1.5], program=ALIKE),
        put(
            "the short way on the right", leaves=[1.5, 0.5], program=[["*", 0, 1], ["relu", 2], ["exp", 3], ["+", 4, 2]]
        ),
        put("the short way on either side", leaves=[1.5, 0.5], program=UNEVEN),
        put("everything is shared", leaves=[1.5, 0.5], program=SHARED),
        put("a leaf that others use", program=SHARED, root=0),
        *(
            put(f"used twice on the {side}, once far away", leaves=[1.5, 0.5], program=[*USED_TWICE, ["+", *ends]])
            for side, ends in {"left": (3, 6), "right": (6, 3)}.items()
        ),
    ),
    promises={
        "the node to start from": ("part of a graph", "one leaf", "a leaf that others use"),
        "every node that it depends on, directly or not": ("every_node_is_there",),
        "each exactly once": ("no_node_twice",),
        "each after all of its inputs": ("inputs_first_on_unequal_paths", EVERY_FORM),
        "Nodes are told apart as objects": ("equal leaves, and one operation twice",),
        "The graph is not changed": ("graph_unchanged",),
        "`inputs` are read a few times": ("visits_nodes_not_paths",),
        "2,000 nodes and more": ("deep_graphs_end",),
        "its limit is not to be raised": ("deep_graphs_end",),
    },
    removes=("torch", "graphlib", "networkx", "sympy", "course.lessons.figures"),
)
