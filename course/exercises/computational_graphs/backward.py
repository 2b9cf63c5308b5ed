"""`backward(root)`: the derivative of one root with respect to every leaf of a graph of numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.exercises.computational_graphs.graphs import READS_ALLOWED, TooManyCalls, Watched, ladder, leaves, rows
from course.graph import Node, run_program

CALLS_ALLOWED = 50  # of one node and call, before a backward pass that walks every path is stopped


def cases(rng: torch.Generator) -> list[Case]:
    """Small graphs of each shape, a ladder of 30 diamonds with 3^30 paths, and a chain of 5,000 nodes."""

    def case(name: str, values: list[Any], program: Any, calls: int = 1) -> Case:
        return Case(name=name, inputs={"leaves": values, "program": program, "calls": calls})

    shared = [["*", 0, 1], ["+", 2, 0], ["*", 3, 3], ["-", 4, 1], ["relu", 5], ["*", 6, 0]]
    return [
        case("tree", leaves(rng, 4), [["*", 0, 1], ["*", 2, 3], ["+", 4, 5]]),
        case("shared nodes", leaves(rng, 2), shared),
        case("one leaf", leaves(rng, 1), []),
        case("two calls", leaves(rng, 2), shared, calls=2),
        case("ladder of 30 diamonds", leaves(rng, 1), ladder(30)),
        case("chain of 5,000", [1.0, 1e-4 * leaves(rng, 1)[0]], {"chain": 5_000}),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Builds the graph, calls `answer(root)` once or twice, and reads the leaves' gradients."""
    program = rows(inputs)
    calls: Counter[int] = Counter()

    class Counted(Watched):
        """A node that counts how often its local derivatives are used."""

        reads_left = READS_ALLOWED * (len(inputs["leaves"]) + len(program)) * inputs["calls"]

        def local_derivatives(self) -> tuple[float, ...]:
            calls[id(self)] += 1
            if calls[id(self)] > CALLS_ALLOWED * inputs["calls"]:
                raise TooManyCalls("local derivatives were asked for more than 50 times of one node")
            return super().local_derivatives()

    nodes: list[Node] = []
    nodes += run_program(inputs["leaves"], program, Counted)
    for _ in range(inputs["calls"]):
        answer(nodes[-1])
    inner = [node for node in nodes if node.inputs]
    worst = max((calls[id(node)] for node in inner), default=0)
    return observe(
        {"grads": [float(node.grad) for node in nodes if not node.inputs]},
        {"uses_of_one_local_derivative": worst},
    )


def _used_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """One use per node and call; two are allowed, because a product may ask for each of its factors."""
    uses = got["uses_of_one_local_derivative"]
    limit = 2 * inputs["calls"]
    fine = isinstance(uses, int) and inputs["calls"] <= uses <= limit
    return None if fine else f"one local derivative was used {uses} times"


EXERCISE = Exercise(
    id="computational_graphs.backward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            name="gradients_of_a_tree",
            points=2,
            keys=("grads",),
            cases=("tree", "one leaf"),
            hint="The derivative of the root with respect to itself is 1; each node passes on its own times the local "
            "one.",
        ),
        Property(
            name="shared_nodes_accumulate",
            points=3,
            keys=("grads",),
            cases=("shared nodes",),
            hint="A node that is used twice gets a contribution from each use, and passes on their sum: add, then go "
            "on.",
        ),
        Property(
            name="calls_accumulate",
            points=2,
            keys=("grads",),
            cases=("two calls",),
            needs=("gradients_of_a_tree",),
            hint="A second call adds the same gradient to `grad` of each leaf once more; what lies in inner nodes from "
            "the first call must not flow again.",
        ),
        Property(
            name="each_local_derivative_used_once",
            points=2,
            evidence="ledger",
            holds=_used_once,
            cases=("shared nodes", "ladder of 30 diamonds"),
            needs=("gradients_of_a_tree",),
            hint="A ladder of 30 diamonds has more paths than you can walk. Visit nodes, not paths, each after its "
            "users.",
        ),
        Property(
            name="deep_graphs_end",
            points=1,
            keys=("grads",),
            roundings=20_000,
            cases=("chain of 5,000",),
            hint="Python's stack ends after about 1,000 calls: a loop over an order reaches any depth.",
        ),
    ),
    hints=(
        "When you come to a node, which other nodes must already have passed their share on to it?",
        "Go through the topological order from the root to the leaves. Keep this call's derivatives in a dict by node, "
        "so that `grad` of an earlier call does not flow again.",
        "flowing[root] = 1; for each node from the back: for each input and its local derivative, "
        "flowing[input] += flowing[node] * local. At the end each leaf's grad grows by what flowed into it.",
    ),
    removes=("torch", "graphlib", "course.figures"),
    seconds=2.0,
)
