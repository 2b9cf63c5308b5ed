"""Wrong ways to write `backward`: what a node hands on, and what an input keeps of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from autograder.bank import Misconception
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order

Flow = dict[Node, float]


def _collect(flowing: Flow) -> None:
    """Adds to the leaves' grad what has reached them."""
    for node, grad in flowing.items():
        node.grad += 0.0 if node.inputs else grad


def _shares(node: Node) -> Iterable[tuple[Node, float]]:
    return zip(node.inputs, node.local_derivatives(), strict=True)


def overwrites(root: Node) -> None:
    """`=` where `+=` is needed."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing[each] = flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def overwrites_grad(root: Node) -> None:
    """The same slip in `grad`."""
    root.grad = 1.0
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            each.grad = node.grad * local


def keeps_the_first(root: Node) -> None:
    """`setdefault` writes only where nothing stands yet."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing.setdefault(each, flowing[node] * local)
    _collect(flowing)


def one_share_per_input(root: Node) -> None:
    """A dict of shares by input holds one where the same input stands twice."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in dict(_shares(node)).items():
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
    _collect(flowing)


def upstream_forgotten(root: Node) -> None:
    """Local derivatives are added up, and not multiplied by what has reached the node."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing[each] = flowing.get(each, 0.0) + local
    _collect(flowing)


def local_forgotten(root: Node) -> None:
    """What has reached a node is handed on as it is."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each in node.inputs:
            flowing[each] = flowing.get(each, 0.0) + flowing[node]
    _collect(flowing)


def forgets_the_seed(root: Node) -> None:
    """The root's own derivative is never set to 1, so zeros flow."""
    flowing = dict.fromkeys(topological_order(root), 0.0)
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing[each] += flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def never_writes(root: Node) -> None:
    """Everything flows, and nothing is added to any grad."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local


def not_reversed(root: Node) -> None:
    """From the leaves up, through `grad`: only the root's own inputs get anything."""
    root.grad = 1.0
    for node in topological_order(root):
        for each, local in _shares(node):
            each.grad += node.grad * local


def not_reversed_in_a_dict(root: Node) -> None:
    """The same in a dict that starts at 0."""
    flowing = defaultdict[Node, float](float, {root: 1.0})
    for node in topological_order(root):
        for each, local in _shares(node):
            flowing[each] += flowing[node] * local
    _collect(flowing)


def not_reversed_in_a_plain_dict(root: Node) -> None:
    """The same in a dict that does not: a KeyError."""
    flowing = {root: 1.0}
    for node in topological_order(root):
        for each, local in _shares(node):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
    _collect(flowing)


def not_reversed_leaf_by_leaf(root: Node) -> None:
    """The same; a leaf's grad takes what has come at the leaf's turn."""
    flowing = {root: 1.0}
    for node in topological_order(root):
        for each, local in _shares(node):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
        if not node.inputs:
            node.grad += flowing[node]


def adds_to_nothing(root: Node) -> None:
    """In the right order, with `+=` on entries that do not exist."""
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        for each, local in _shares(node):
            flowing[each] += flowing[node] * local
    _collect(flowing)


SHARES = (
    Misconception(
        name="overwrites",
        witnesses=(overwrites, overwrites_grad),
        hint="Each use of a node contributes to its derivative, and the contributions add up (the chain rule for "
        "several paths). Yours keeps only the last one: write `+=` where a share arrives.",
    ),
    Misconception(
        name="keeps_the_first",
        witnesses=(keeps_the_first,),
        hint="Each use of a node contributes to its derivative, and the contributions add up (the chain rule for "
        "several paths). Yours keeps only the first one: `setdefault` leaves alone what already stands there. Start "
        "at 0 and add.",
    ),
    Misconception(
        name="one_share_per_input",
        witnesses=(one_share_per_input,),
        hint="The same node may stand twice among the inputs of another one, as in x * x, and gets a share for each "
        "place. A dict with the inputs as keys holds one of the two: go through inputs and local derivatives as pairs.",
    ),
    Misconception(
        name="upstream_forgotten",
        witnesses=(upstream_forgotten,),
        hint="You hand on the local derivative alone. That is how the node itself depends on its input; how the root "
        "does is that times the root's derivative with respect to the node: multiply by what has reached it.",
    ),
    Misconception(
        name="local_forgotten",
        witnesses=(local_forgotten,),
        hint="You hand on what has reached a node as it is. Each input gets it times the local derivative with "
        "respect to that input.",
    ),
    Misconception(
        name="all_zero",
        witnesses=(forgets_the_seed, never_writes),
        hint="Every leaf's grad is still 0. Either nothing starts to flow (the root's own derivative is 1), or what "
        "flowed into the leaves is never added to their `grad`.",
    ),
    Misconception(
        name="read_before_written",
        witnesses=(
            not_reversed,
            not_reversed_in_a_dict,
            not_reversed_in_a_plain_dict,
            not_reversed_leaf_by_leaf,
            adds_to_nothing,
        ),
        hint="A node's derivative is read before anything was written to it (in a dict, a KeyError). Either nodes hand "
        "on too early: derivatives flow from the root to the leaves, so take a topological order from the back. Or "
        "`+=` adds to an entry that is not there yet: let every sum start at 0.",
    ),
)
