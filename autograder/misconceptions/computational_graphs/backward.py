"""Wrong ways to write `backward`."""

from __future__ import annotations

from autograder.bank import Misconception
from course.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def overwrites(root: Node) -> None:
    """`=` where `+=` is needed."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def walks_every_path(root: Node) -> None:
    """Recursion along paths: right on trees and small graphs, endless on a ladder."""

    def walk(node: Node, upstream: float) -> None:
        if not node.inputs:
            node.grad += upstream
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            walk(each, upstream * local)

    walk(root, 1.0)


def forgets_the_seed(root: Node) -> None:
    """The root's own derivative is never set to 1, so zeros flow."""
    flowing = dict.fromkeys(topological_order(root), 0.0)
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] += flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def resets_leaves(root: Node) -> None:
    """Sets every grad to zero first, so that a second call forgets the first."""
    order = topological_order(root)
    for node in order:
        node.grad = 0.0
    root.grad = 1.0
    for node in reversed(order):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local


def lets_old_gradients_flow(root: Node) -> None:
    """Uses `grad` as the flowing value without clearing inner nodes: the second call sends the first again."""
    root.grad = 1.0
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local


def seeds_with_plus(root: Node) -> None:
    """The same slip, with `root.grad += 1`: on the second call 2 flows from the root."""
    root.grad += 1.0
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local


def recursive_order(root: Node) -> None:
    """Right, but finds its order by recursion: 5,000 nodes exceed Python's stack."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            for each in node.inputs:
                visit(each)
            order.append(node)

    visit(root)
    flowing = dict.fromkeys(order, 0.0)
    flowing[root] = 1.0
    for node in reversed(order):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] += flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


MISCONCEPTIONS = (
    Misconception(
        name="overwrites",
        witnesses=(overwrites,),
        hint="Each use of a node contributes to its derivative, and the contributions add up (the chain rule for "
        "several paths). Yours keeps only the last one: write `+=` where a share arrives.",
    ),
    Misconception(
        name="walks_every_path",
        witnesses=(walks_every_path,),
        hint="Your pass follows every path from the root to a leaf. The values are right, but 30 diamonds in a row "
        "have over a billion paths. Wait at each node until all of its users have passed on their share, then go on "
        "once.",
    ),
    Misconception(
        name="forgets_the_seed",
        witnesses=(forgets_the_seed,),
        hint="Everything is zero because nothing starts to flow: the derivative of the root with respect to itself is "
        "1.",
    ),
    Misconception(
        name="resets_leaves",
        witnesses=(resets_leaves,),
        hint="A backward pass adds to what leaves already hold; clearing is the caller's choice (`zero_grad`). Only "
        "that makes gradient accumulation over several batches possible.",
    ),
    Misconception(
        name="lets_old_gradients_flow",
        witnesses=(lets_old_gradients_flow, seeds_with_plus),
        hint="After one call, inner nodes still hold their `grad`. Your second call sends it through the graph once "
        "more. Keep what flows in this call apart from what was accumulated.",
    ),
    Misconception(
        name="recursive_order",
        witnesses=(recursive_order,),
        hint="The gradients are right, but a function that calls itself once per node reaches Python's limit at about "
        "1,000 levels, and real graphs are deeper. Keep your own stack in a list.",
    ),
)
