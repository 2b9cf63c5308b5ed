"""`backward(root)`: the derivative of one root with respect to every leaf of a graph of numbers.

What it costs is counted by an oracle: in three small graphs the local derivatives are numbers that it alone knows, and
each use of a node's `local_derivatives()` is a question.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import torch

from course.exercises.computational_graphs.graphs import (
    ALIKE,
    LADDERS,
    UNEVEN,
    TooManyCalls,
    Watched,
    ladder,
    leaves,
    uneven_ladder,
    watched,
)
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    observe,
)
from course.performing.forms import put
from course.performing.oracle import UnknownQuestion
from course.tree import Leaf, Tree

CALLS_ALLOWED = 50  # of one node and call, before a backward pass that walks every path is stopped
ZEROS: list[Any] = [  # a difference that is 0, and relu of a number below 0 and of 0
    *(["-", 0, 0], ["*", 2, 0], ["-", 0, 1], ["relu", 4], ["relu", 2]),
    *(["*", 5, 1], ["+", 3, 7], ["+", 8, 6], ["+", 9, 0]),
]
NOTHING: list[Any] = [["*", 0, 1], ["-", 0, 1], ["relu", 3]]  # from node 4, which is relu of a number below 0
USED_TWICE: list[Any] = [  # node 3 uses node 2 twice, node 4 once; from node 9 the latter is far away
    *(["+", 0, 1], ["*", 2, 2], ["*", 2, 1], ["+", 3, 4], ["+", 4, 3]),
    *(["relu", 4], ["relu", 7], ["+", 8, 3]),
]
WRITTEN = "two calls, before which `grad` of the leaves is written"
COUNTED = ("counted: tree", "counted: unequal paths", "counted: ladder of 5 diamonds")


def cases(rng: torch.Generator) -> list[Case]:
    """Small graphs of each shape, a ladder of 30 diamonds with 3^30 paths, a chain of 2,000 nodes with ways beside
    it, and long ladders with a short way on either side; and three graphs whose local derivatives are hidden and have
    nothing to do with the nodes' values.
    """

    def case(name: str, values: list[Any], program: Any, *roots: int) -> Case:
        """One call for each of `roots`, numbers of nodes; where none is given, for the last node."""
        inputs = {"leaves": values, "program": program, "roots": list(roots) or [-1], "hides": False}
        return Case(name=name, inputs=inputs)

    def counted(name: str, count: int, program: list[list[Any]]) -> Case:
        """One call, in which the oracle knows as many local derivatives of each node as it has inputs."""
        inputs: Any = {"leaves": leaves(rng, count), "program": program, "roots": [-1], "hides": True}
        return Case(name=name, inputs=inputs, hidden={"local": [leaves(rng, len(row) - 1) for row in program]})

    tree: list[list[Any]] = [["*", 0, 1], ["*", 2, 3], ["*", 4, 5]]
    shared = [["*", 0, 1], ["+", 2, 0], ["*", 3, 3], ["-", 4, 1], ["relu", 5], ["*", 6, 0]]
    written = case(WRITTEN, leaves(rng, 2), shared, -1, -1)
    written.inputs["before"] = [leaves(rng, 2), [0.0, 0.0]]
    return [
        case("tree", leaves(rng, 4), tree),
        case("shared nodes", leaves(rng, 2), shared),
        case("paths of unequal length", leaves(rng, 2), UNEVEN),
        case("one leaf", leaves(rng, 1), []),
        case("two calls", leaves(rng, 2), shared, -1, -1),
        written,
        case("two roots, one a leaf", leaves(rng, 2), [["*", 0, 1]], 2, 0),
        case("ladder of 30 diamonds", leaves(rng, 1), ladder(30)),
        case("chain of 2,000", [1.0, 1e-4 * leaves(rng, 1)[0]], {"chain": 2_000}),
        counted(COUNTED[0], 4, tree),
        counted(COUNTED[1], 2, UNEVEN),
        counted(COUNTED[2], 1, ladder(5)),
        *(case(name, leaves(rng, 1), uneven_ladder(near_first=near_first)) for name, near_first in LADDERS.items()),
    ]


class LocalDerivatives:
    """Knows the hidden local derivatives of a case, and counts their uses: one question each, with a node's number."""

    def __init__(self, case: Case) -> None:
        self._local = cast(list[Tree], case.hidden.get("local", []))
        self._leaves = len(cast(list[Tree], case.inputs["leaves"]))
        self._uses: Counter[int] = Counter()

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """`local_derivatives` of node `arguments`: a number for each of its inputs."""
        row = arguments - self._leaves if type(arguments) is int else -1
        if verb != "local_derivatives" or not 0 <= row < len(self._local):
            raise UnknownQuestion(
                f"only `local_derivatives` of an inner node can be asked for, got {verb!r:.40}; call them on the node"
            )
        self._uses[row] += 1
        return self._local[row]

    def ledger(self) -> dict[str, Leaf]:
        """The largest number of uses of one node; nothing where nothing is hidden."""
        return {"uses_of_one_local_derivative": max(self._uses.values(), default=0)} if self._local else {}

    def values(self) -> None:
        """Nothing."""


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """Builds the graph, calls `answer(root)` for each root of the case, and reads the leaves' gradients."""
    calls: Counter[int] = Counter()
    numbers: dict[int, int] = {}  # of the nodes whose local derivatives are hidden
    times = len(inputs["roots"])

    class Counted(Watched):
        """A node that counts how often its local derivatives are used; a leaf has none."""

        def local_derivatives(self) -> tuple[float, ...]:
            calls[id(self)] += bool(self.op)
            if calls[id(self)] > CALLS_ALLOWED * times:
                raise TooManyCalls("local derivatives were asked for more than 50 times of one node")
            if id(self) in numbers:
                return tuple(cast(list[float], ask("local_derivatives", numbers[id(self)])))
            return super().local_derivatives()

    with watched(inputs, times, Counted) as nodes:
        if inputs["hides"]:
            numbers.update({id(node): number for number, node in enumerate(nodes) if node.op})
        for root, before in zip(inputs["roots"], inputs.get("before", times * [[]]), strict=True):
            for node, grad in zip(nodes, before, strict=False):
                node.grad = grad
            answer(nodes[root])
    return observe({"grads": [float(node.grad) for node in nodes if not node.op]})


def _used_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """One use per node; two are allowed, because a product may ask for each of its factors."""
    uses = got["uses_of_one_local_derivative"]
    fine = isinstance(uses, int) and 1 <= uses <= 2
    return None if fine else f"one local derivative was used {uses} times"


EXERCISE = Exercise(
    id="computational_graphs.backward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "gradients_of_a_tree",
            "The derivative of the root with respect to itself is 1; each node passes on its own times the local one.",
            cases=("tree",),
        ),
        Property(
            "shared_nodes_accumulate",
            "A node that is used twice gets a contribution from each use, and passes on their sum once all have "
            "come. If you go through your own `topological_order`, check that one first.",
            points=2,
            cases=("shared nodes",),
            needs=("gradients_of_a_tree",),
        ),
        Property(
            "every_user_comes_first",
            "A node may have one user near the root and another far from it. What the far one hands to it must "
            "have arrived before it passes anything on: its turn comes after all of its users. If you go through your "
            "own `topological_order`, check that one first.",
            points=2,
            cases=("paths of unequal length",),
            needs=("shared_nodes_accumulate",),
        ),
        Property(
            "calls_accumulate",
            "A second call adds the same gradient to `grad` of each leaf once more, or to what its caller has written "
            "there meanwhile; what lies in inner nodes from the first call must not flow again.",
            points=2,
            cases=("two calls", WRITTEN),
            needs=("shared_nodes_accumulate",),
        ),
        Property(
            "root_may_be_a_leaf",
            "Where the root is itself a leaf, its derivative with respect to itself is 1: the call adds 1 to its "
            "`grad`, also to what an earlier call left there.",
            cases=("one leaf", "two roots, one a leaf"),
            needs=("gradients_of_a_tree",),
        ),
        Property(
            "thirty_diamonds",
            "A ladder of 30 diamonds has more paths than you can walk, and each adds 1 to the derivative. Visit "
            "nodes, not paths, each after its users. On average a node's `inputs` may be read a few times (100 are "
            "tolerated): a longer path is no reason to go there again.",
            cases=("ladder of 30 diamonds", *LADDERS),
            needs=("shared_nodes_accumulate",),
        ),
        Property(
            "each_local_derivative_used_once",
            "One pass from the root serves all leaves: each node's `local_derivatives()` is asked for once per "
            "call (twice is tolerated), however many paths and leaves there are. In the graphs that count, the numbers "
            "that it returns are the check's own: they cannot be had in another way.",
            evidence="ledger",
            holds=_used_once,
            beside=("grads",),
            shows="uses_of_one_local_derivative",
            cases=COUNTED,
            needs=("every_user_comes_first", "thirty_diamonds"),
        ),
        Property(
            "deep_graphs_end",
            "Python's stack ends after about 1,000 calls: a loop over an order reaches any depth, and leaves "
            "Python's limit as it is.",
            roundings=20_000,
            cases=("chain of 2,000",),
            needs=("shared_nodes_accumulate",),
        ),
        Property(
            EVERY_FORM,
            "Two nodes may hold the same and are different all the same: keep nodes themselves in a dict or a set. "
            "Local derivatives may be 0, and those of one node by one input twice (x - x) may differ: go through them "
            "in step with `inputs`. Only leaves that the root depends on get anything, in every call from any root.",
        ),
    ),
    hints=(
        "When you come to a node, which other nodes must already have passed their share on to it?",
        "Go through the topological order from the root to the leaves. Keep this call's derivatives in a dict by node, "
        "so that `grad` of an earlier call does not flow again.",
        "Set the root's derivative to 1. Take the nodes from the back; each adds, to what has flowed into every input, "
        "its own derivative times the local one. When all is done, the leaves keep what flowed into them.",
    ),
    forms=(
        put("equal leaves, and one operation twice", leaves=[1.5, 1.5], program=ALIKE),
        put("one product uses a node twice, another once", program=USED_TWICE, roots=[5, 6, 9], of="two calls"),
        put("zeros on the way", leaves=[0.5, 1.5], program=ZEROS),
        put("nothing flows in the second call", leaves=[0.5, 1.5], program=NOTHING, roots=[2, 4]),
        put("a root inside another's graph", roots=[5, 7, 5], of="shared nodes"),
        put("a leaf that the root does not need", roots=[4, 0, 4]),
    ),
    promises={
        "It may itself be a leaf": ("root_may_be_a_leaf",),
        "d root / d root is 1": ("root_may_be_a_leaf", "gradients_of_a_tree"),
        "A second call adds the same once more": ("calls_accumulate", "a root inside another's graph"),
        "one number for each input": ("zeros on the way",),
        "two may hold the same": ("equal leaves, and one operation twice",),
        "`local_derivatives()` is asked for once per call": ("each_local_derivative_used_once",),
        "its `inputs` are read a few times": ("thirty_diamonds",),
        "2,000 nodes and more": ("deep_graphs_end",),
        "is not to be raised": ("deep_graphs_end",),
    },
    removes=("torch", "graphlib", "networkx", "sympy", "course.lessons.figures"),
    oracle=LocalDerivatives,
    seconds=2.0,
)
