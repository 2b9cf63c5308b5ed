"""Wrong ways to write `backward`: what one call leaves for the next, and roots that are leaves."""

from __future__ import annotations

from autograder.bank import Misconception
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


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


def overwrites_a_leaf_root(root: Node) -> None:
    """Clears inner nodes only, and then sets the root's grad to 1, which may be a leaf's."""
    order = topological_order(root)
    for node in order:
        node.grad = 0.0 if node.inputs else node.grad
    root.grad = 1.0
    for node in reversed(order):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local


def forgets_a_leaf_root(root: Node) -> None:
    """Leaves are written to by their users only: a root has none."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            if each.inputs:
                flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
            else:
                each.grad += flowing[node] * local


CALLS = (
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
        name="overwrites_a_leaf_root",
        witnesses=(overwrites_a_leaf_root,),
        hint="Where the root is itself a leaf, `root.grad = 1` throws away what earlier calls left in it. Keep what "
        "flows in this call apart from `grad`, and add to the leaves' `grad`, the root's too.",
    ),
    Misconception(
        name="forgets_a_leaf_root",
        witnesses=(forgets_a_leaf_root,),
        hint="A leaf gets its gradient from its users, in yours. A root that is itself a leaf has none, and its "
        "derivative with respect to itself is 1: write to a leaf's `grad` when its own turn comes.",
    ),
)
