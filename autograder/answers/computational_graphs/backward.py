"""Right and wrong ways to write `backward`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch

from autograder.answers.computational_graphs.topological_order import (
    again_for_a_longer_path,
    recursion_under_a_raised_limit,
)
from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.graph import Node
from course.reference.computational_graphs.backward import backward
from course.reference.computational_graphs.topological_order import topological_order


def torchs_own(root: Node) -> None:
    """Builds the same graph of tensors, in which each node is linear with the node's local derivatives."""
    twins: dict[Node, Any] = {}
    with torch.enable_grad():
        for node in topological_order(root):
            shares = zip(node.inputs, node.local_derivatives(), strict=True)
            linear = sum(twins[each] * local for each, local in shares)
            twins[node] = linear if node.inputs else torch.zeros((), dtype=torch.float64, requires_grad=True)
        twins[root].backward()
    for node, twin in twins.items():
        if not node.inputs:
            node.grad += twin.grad.item()


def through_grad(root: Node) -> None:
    """`grad` itself holds what flows: inner nodes are cleared first, and leaves hand nothing on."""
    order = topological_order(root)
    for node in order:
        if node.inputs:
            node.grad = 0.0
    root.grad += 1.0
    for node in reversed(order):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            each.grad += node.grad * local


def collects_at_the_end(root: Node) -> None:
    """Leaves get what has flowed into them when all nodes have handed on."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
    for node, grad in flowing.items():
        if not node.inputs:
            node.grad += grad


RIGHT = (
    right(torchs_own, independent="torch.autograd"),
    right(through_grad),
    right(collects_at_the_end),
)


def walks_every_path(root: Node, upstream: float = 1.0) -> None:
    """Recursion along paths: right on trees and small graphs, endless on a ladder."""
    if not root.inputs:
        root.grad += upstream
    for each, local in zip(root.inputs, root.local_derivatives(), strict=True):
        walks_every_path(each, upstream * local)


def walks_every_path_with_a_stack(root: Node) -> None:
    """The same without recursion."""
    stack = [(root, 1.0)]
    while stack:
        node, upstream = stack.pop()
        if not node.inputs:
            node.grad += upstream
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            stack.append((each, upstream * local))


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


def recursive_order_under_a_raised_limit(root: Node) -> None:
    """Right, but finds its order by recursion, with more stack than Python allows."""
    flowing = {root: 1.0}
    for node in reversed(recursion_under_a_raised_limit(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def in_order_of_longest_paths(root: Node) -> None:
    """Right, but its order visits nodes again and again."""
    flowing = {root: 1.0}
    for node in reversed(again_for_a_longer_path(root)):
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def counts_users_and_uses(root: Node) -> None:
    """A node's turn comes when none of its users is left; they are counted once each, and taken off for each use."""
    users = Counter({root: 0})
    found = [root]
    for node in found:
        found += [each for each in set(node.inputs) if each not in users]
        users.update(set(node.inputs))
    flowing, ready = {root: 1.0}, [root]
    for node in ready:
        if not node.inputs:
            node.grad += flowing[node]
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
            users[each] -= 1
            if users[each] == 0:
                ready.append(each)


in_a_dict = partial(edited, backward)
at_the_end = partial(edited, collects_at_the_end)
in_grad = partial(edited, through_grad)

SHARE = "= flowing.get(each, 0.0) + upstream * local"
SET_TO_1 = ("root.grad += 1.0", "root.grad = 1.0")
NOT_CLEARED = ("    for node in order:\n        if node.inputs:\n            node.grad = 0.0\n", "")
NOT_REVERSED = ("reversed(topological_order(root))", "topological_order(root)")
NOT_REVERSED_IN_GRAD = ("reversed(order)", "order")
MET_FIRST = ("stack.append((node, True))", "order.append(node)")  # this one and the next two in topological_order
NEAREST_FIRST = ("stack.pop()", "stack.pop(0)")
OTHER_WAY = ("for each in node.inputs)", "for each in node.inputs[::-1])")


def keyed_by(key: str) -> tuple[tuple[str, str], ...]:
    """Edits of `in_a_dict`: what flows into a node stands under something that the node holds."""
    root, node, each = (key.format(name) for name in ("root", "node", "each"))
    return (
        ("{root: 1.0}", f"{{{root}: 1.0}}"),
        ("flowing[node]", f"flowing[{node}]"),
        (f"flowing[each] {SHARE}", f"flowing[{each}] = flowing.get({each}, 0.0) + upstream * local"),
    )


WRONG = (
    wrong(
        "overwrites",
        "Each use of a node contributes to its derivative, and the contributions add up (the chain rule for several "
        "paths). Yours keeps only the last one: write `+=` where a share arrives.",
        in_a_dict((SHARE, "= upstream * local")),
        in_grad(("each.grad +=", "each.grad ="), SET_TO_1),
    ),
    wrong(
        "upstream_forgotten",
        "You hand on the local derivative alone. That is how the node itself depends on its input; how the root does "
        "is that times the root's derivative with respect to the node: multiply by what has reached it.",
        in_a_dict(("upstream * local", "local")),
    ),
    wrong(
        "all_zero",
        "Every leaf's grad is still 0. Either nothing starts to flow (the root's own derivative is 1), or what flowed "
        "into the leaves is never added to their `grad`.",
        in_grad(("    root.grad += 1.0\n", "")),
    ),
    wrong(
        "read_before_written",
        "A node's derivative is read before anything was written to it (in a dict, a KeyError). Either nodes hand on "
        "too early: derivatives flow from the root to the leaves, so take a topological order from the back. Or `+=` "
        "adds to an entry that is not there yet: let every sum start at 0.",
        in_a_dict((SHARE, "+= upstream * local")),
        in_a_dict(NOT_REVERSED),
        at_the_end(NOT_REVERSED),
        in_grad(NOT_REVERSED_IN_GRAD),
        in_grad(NOT_REVERSED_IN_GRAD, NOT_CLEARED, SET_TO_1),
    ),
    wrong(
        "walks_every_path",
        "Your pass follows every path from the root to a leaf. The values are right, but 30 diamonds in a row have "
        "over a billion paths. Wait at each node until all of its users have passed on their share, then go on once.",
        walks_every_path,
        walks_every_path_with_a_stack,
    ),
    wrong(
        "again_for_a_longer_path",
        "The gradients are right, but you go on to a node's inputs again whenever a longer path to it comes: in a "
        "ladder of n rungs up to n times. Go through a topological order, for which each node is visited once.",
        in_order_of_longest_paths,
        edited(in_order_of_longest_paths, OTHER_WAY),
        fails=("thirty_diamonds", "each_local_derivative_used_once"),
    ),
    wrong(
        "leaves_too_early",
        "You add to a leaf's `grad` when you first come to the leaf. What its other users hand to it later is lost. A "
        "node's turn, a leaf's too, comes after all of its users: go through a topological order from the back, or "
        "count how many uses are still missing.",
        in_a_dict(MET_FIRST, NOT_REVERSED, NEAREST_FIRST),
        in_a_dict(MET_FIRST, NOT_REVERSED),
    ),
    wrong(
        "one_pass_per_leaf",
        "The gradients are right, but you go through the graph once per leaf, and a model has millions. Go through it "
        "once, from the root back: what reaches a node on the way serves all leaves behind it.",
        one_pass_per_leaf,
    ),
    wrong(
        "recursive_order",
        "The gradients are right, but a function that calls itself on the way down reaches Python's limit at about "
        "1,000 levels, and real graphs are deeper. Keep your own stack in a list.",
        edited(recursive_order_under_a_raised_limit, ("reversed(recursion_under_a_raised_limit", "reversed(recursion")),
    ),
    wrong(
        "raises_the_limit",
        "The gradients are right, but Python's recursion limit is not what it was while your function works. It "
        "protects the program: past it the memory of the stack may end. A stack of your own in a list needs no limit.",
        recursive_order_under_a_raised_limit,
    ),
    wrong(
        "sends_again",
        "You follow every path, and each time that you come to a node you send on all that it holds by then: its "
        "earlier shares go down again. A node hands on once, after all of its users, as in a topological order from "
        "the back.",
        sends_again,
        sends_again_with_a_stack,
    ),
    wrong(
        "resets_leaves",
        "A backward pass adds to what leaves already hold; clearing is the caller's choice (`zero_grad`), of which "
        "totals of your own would not know. Only that makes gradient accumulation over several batches possible.",
        in_grad(("        if node.inputs:\n            node.grad = 0.0", "        node.grad = 0.0")),
        edited(collects_at_the_end, ("node.grad += grad", "node.grad = node.grad + grad if grad else 0.0")),
        edited(
            collects_at_the_end,
            ("def collects", "TOTALS = {}\n\n\ndef collects"),
            ("node.grad += grad", "node.grad = TOTALS[node] = TOTALS.get(node, 0.0) + grad"),
        ),
    ),
    wrong(
        "lets_old_gradients_flow",
        "After one call, inner nodes still hold their `grad`. Your second call sends it through the graph once more. "
        "Keep what flows in this call apart from what was accumulated.",
        in_grad(NOT_CLEARED),
        in_grad(NOT_CLEARED, SET_TO_1),
    ),
    wrong(
        "overwrites_a_leaf_root",
        "Where the root is itself a leaf, `root.grad = 1` throws away what earlier calls left in it. Keep what flows "
        "in this call apart from `grad`, and add to the leaves' `grad`, the root's too.",
        in_grad(SET_TO_1),
    ),
    wrong(
        "forgets_a_leaf_root",
        "Where the root is itself a leaf, its `grad` gets nothing in yours: there are no users to get it from. Its "
        "derivative with respect to itself is 1. Write to a leaf's `grad` when its own turn comes.",
        in_a_dict(
            (
                "        if not node.inputs:\n            node.grad += upstream",
                "            if not each.inputs:\n                each.grad += upstream * local",
            )
        ),
    ),
    wrong(
        "compares_values",
        "Nodes that hold the same share one entry in yours, and get each other's derivatives. Two may have the same "
        "value, the same name, and even the same operation: use the node itself as the key, as in `flowing[node]`.",
        in_a_dict(*keyed_by("{}.value")),
        in_a_dict(*keyed_by("({0}.value, {0}.op)")),
        in_a_dict(*keyed_by("({0}.value, {0}.op, {0}.inputs)")),
        in_a_dict(*keyed_by("({0}.name or {0})")),
    ),
    wrong(
        "counts_users_and_uses",
        "You count the users of a node, and take one off for each use. Of a node that one user has twice (x * x) none "
        "seems to be left, while another user is still to come. Count uses, or count each user once both times.",
        counts_users_and_uses,
        edited(counts_users_and_uses, ("for node in ready:", "while ready:\n        node = ready.pop()")),
    ),
    wrong(
        "wrong_order",
        "Right in a tree and in a graph with shared nodes; wrong where a node has one user near the root and another "
        "far from it. A node may hand on its derivative only when all of its users have handed theirs to it: go "
        "through a topological order from the back, or count how many uses are still missing.",
        in_grad(MET_FIRST, NOT_REVERSED_IN_GRAD),
        in_grad(MET_FIRST, NOT_REVERSED_IN_GRAD, OTHER_WAY),
        in_grad(MET_FIRST, NOT_REVERSED_IN_GRAD, NEAREST_FIRST),
        in_grad(MET_FIRST, NOT_REVERSED_IN_GRAD, NEAREST_FIRST, OTHER_WAY),
        fails=("every_user_comes_first", "thirty_diamonds", "each_local_derivative_used_once", "deep_graphs_end"),
    ),
)
