"""Wrong ways to write `backward`: here, the order in which nodes hand on."""

from __future__ import annotations

from collections.abc import Iterable

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.backward_calls import CALLS
from autograder.misconceptions.computational_graphs.backward_shares import SHARES
from autograder.misconceptions.computational_graphs.orders import (
    breadth_first,
    pre_order,
    raised_limit,
    recursive_post_order,
)
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def _flow(root: Node, order: Iterable[Node]) -> dict[Node, float]:
    """What has reached each node when all nodes have handed on what they held at their turn in `order`."""
    flowing = {root: 1.0}
    for node in order:
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
    return flowing


def _through(root: Node, order: Iterable[Node]) -> None:
    """Adds to the leaves' grad what reaches them if nodes hand on in this order."""
    for node, grad in _flow(root, order).items():
        node.grad += 0.0 if node.inputs else grad


def walks_every_path(root: Node) -> None:
    """Recursion along paths: right on trees and small graphs, endless on a ladder."""

    def walk(node: Node, upstream: float) -> None:
        if not node.inputs:
            node.grad += upstream
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            walk(each, upstream * local)

    walk(root, 1.0)


def walks_every_path_with_a_stack(root: Node) -> None:
    """The same without recursion."""
    stack = [(root, 1.0)]
    while stack:
        node, upstream = stack.pop()
        if not node.inputs:
            node.grad += upstream
        stack.extend(
            (each, upstream * local) for each, local in zip(node.inputs, node.local_derivatives(), strict=True)
        )


def one_pass_per_leaf(root: Node) -> None:
    """Forward mode: from each leaf up through all nodes."""
    order = topological_order(root)
    for leaf in (node for node in order if not node.inputs):
        slope = {leaf: 1.0}
        for node in order:
            if node.inputs:
                shares = zip(node.inputs, node.local_derivatives(), strict=True)
                slope[node] = sum(slope.get(each, 0.0) * local for each, local in shares)
        leaf.grad += slope.get(root, 0.0)


def nearest_first(root: Node) -> None:
    """Breadth first: a node hands on after its nearest user."""
    _through(root, breadth_first(root))


def nearest_first_from_the_right(root: Node) -> None:
    """The same, last input first."""
    _through(root, breadth_first(root, from_the_right=True))


def deepest_first(root: Node) -> None:
    """Depth first: a node hands on when it is met."""
    _through(root, pre_order(root))


def deepest_first_from_the_right(root: Node) -> None:
    """The same, last input first."""
    _through(root, pre_order(root, from_the_right=True))


def adds_to_leaves_on_the_way(root: Node) -> None:
    """Breadth first, and a leaf's grad takes what has come when the leaf is met."""
    flowing = {root: 1.0}
    for node in breadth_first(root):
        node.grad += 0.0 if node.inputs else flowing[node]
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local


def recursive_order(root: Node) -> None:
    """Right, but finds its order by recursion: 5,000 nodes exceed Python's stack."""
    _through(root, reversed(recursive_post_order(root)))


def recursive_order_under_a_raised_limit(root: Node) -> None:
    """The same, with more stack than Python allows."""
    with raised_limit():
        recursive_order(root)


def sends_again(root: Node) -> None:
    """Recursion along paths, through `grad`: each arrival sends on all that the node has so far."""

    def walk(node: Node) -> None:
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local
            walk(each)

    root.grad = 1.0
    walk(root)


def sends_again_with_a_stack(root: Node) -> None:
    """The same without recursion."""
    root.grad = 1.0
    stack = [root]
    while stack:
        node = stack.pop()
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local
            stack.append(each)


MISCONCEPTIONS = (
    *SHARES,
    Misconception(
        name="walks_every_path",
        witnesses=(walks_every_path, walks_every_path_with_a_stack),
        hint="Your pass follows every path from the root to a leaf. The values are right, but 30 diamonds in a row "
        "have over a billion paths. Wait at each node until all of its users have passed on their share, then go on "
        "once.",
    ),
    Misconception(
        name="wrong_order",
        witnesses=(nearest_first, nearest_first_from_the_right, deepest_first, deepest_first_from_the_right),
        fails=("every_user_comes_first", "thirty_diamonds", "each_local_derivative_used_once"),
        hint="You hand a node's derivative on before all of its users have handed theirs to it. Go through a "
        "topological order from the back, or count how many uses are still missing.",
    ),
    Misconception(
        name="leaves_too_early",
        witnesses=(adds_to_leaves_on_the_way,),
        hint="You add to a leaf's `grad` when you first come to the leaf. What its other users hand to it later is "
        "lost. A node's turn, a leaf's too, comes after all of its users: go through a topological order from the "
        "back, or count how many uses are still missing.",
    ),
    Misconception(
        name="one_pass_per_leaf",
        witnesses=(one_pass_per_leaf,),
        hint="The gradients are right, but you go through the graph once per leaf, and a model has millions. Go "
        "through it once, from the root back: what reaches a node on the way serves all leaves behind it.",
    ),
    Misconception(
        name="recursive_order",
        witnesses=(recursive_order, recursive_order_under_a_raised_limit),
        hint="The gradients are right, but a function that calls itself once per node reaches Python's limit at about "
        "1,000 levels, and real graphs are deeper. The limit protects the program and is not to be raised: keep your "
        "own stack in a list.",
    ),
    Misconception(
        name="sends_again",
        witnesses=(sends_again, sends_again_with_a_stack),
        hint="You follow every path, and each time that you come to a node you send on all that it holds by then: its "
        "earlier shares go down again. A node hands on once, after all of its users, as in a topological order from "
        "the back.",
    ),
    *CALLS,
)
