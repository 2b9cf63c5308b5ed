"""Wrong ways to write `topological_order`.

Where each style of one mistake makes another order, it is recognised by the properties that fail.
"""

from __future__ import annotations

from collections import deque

from autograder.bank import Misconception
from course.graph import Node


def _pre_order(root: Node) -> list[Node]:
    """Depth first with a stack, each node as it is met."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            stack.extend(node.inputs)
    return order


def _breadth_first(root: Node) -> list[Node]:
    """Nearest nodes first, each as it is met."""
    order = [root]
    seen = {root}
    queue = deque([root])
    while queue:
        for each in queue.popleft().inputs:
            if each not in seen:
                seen.add(each)
                order.append(each)
                queue.append(each)
    return order


def recursive_pre_order(root: Node) -> list[Node]:
    """Adds the node before it visits the inputs."""
    order: list[Node] = []

    def visit(node: Node) -> None:
        if node not in order:
            order.append(node)
            for each in node.inputs:
                visit(each)

    visit(root)
    return order


def reversed_pre_order(root: Node) -> list[Node]:
    """Right in a tree."""
    return _pre_order(root)[::-1]


def reversed_recursive_pre_order(root: Node) -> list[Node]:
    """The same by recursion."""
    return recursive_pre_order(root)[::-1]


def reversed_breadth_first(root: Node) -> list[Node]:
    """Right where all paths to a node have the same length."""
    return _breadth_first(root)[::-1]


def reversed_breadth_first_from_the_right(root: Node) -> list[Node]:
    """The same, last input first."""
    order = deque([root])
    seen = {root}
    queue = [root]
    for node in queue:
        for each in node.inputs[::-1]:
            if each not in seen:
                seen.add(each)
                order.appendleft(each)
                queue.append(each)
    return list(order)


def recursive_duplicates(root: Node) -> list[Node]:
    """Post-order without a set of seen nodes."""
    order: list[Node] = []
    for each in root.inputs:
        order += recursive_duplicates(each)
    return [*order, root]


def marks_too_late(root: Node) -> list[Node]:
    """Asks whether a node was seen when it is pushed, marks it when it is popped: it may be pushed twice."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        else:
            seen.add(node)
            stack.append((node, True))
            stack.extend((each, False) for each in node.inputs if each not in seen)
    return order


def recursive(root: Node) -> list[Node]:
    """Right, but 5,000 nodes exceed Python's stack."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            for each in node.inputs:
                visit(each)
            order.append(node)

    visit(root)
    return order


def recursive_from_the_right(root: Node) -> list[Node]:
    """The same, last input first."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        seen.add(node)
        for each in node.inputs[::-1]:
            if each not in seen:
                visit(each)
        order.append(node)

    visit(root)
    return order


def checks_when_adding(root: Node) -> list[Node]:
    """Asks whether a node is in the list only after its inputs were visited once more: every path is walked."""
    order: list[Node] = []

    def visit(node: Node) -> None:
        for each in node.inputs:
            visit(each)
        if node not in order:
            order.append(node)

    visit(root)
    return order


def drops_duplicates_at_the_end(root: Node) -> list[Node]:
    """Every path with a stack, and `dict.fromkeys` to keep each node once."""
    order: list[Node] = []
    stack = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        else:
            stack.append((node, True))
            stack.extend((each, False) for each in node.inputs[::-1])
    return list(dict.fromkeys(order))


def skips_leaves(root: Node) -> list[Node]:
    """Adds only nodes that an operation made."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node not in seen and node.inputs:
            seen.add(node)
            for each in node.inputs:
                visit(each)
            order.append(node)

    visit(root)
    return order


def skips_leaves_with_a_stack(root: Node) -> list[Node]:
    """The same without recursion."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif node not in seen and node.op:
            seen.add(node)
            stack.append((node, True))
            stack.extend((each, False) for each in node.inputs)
    return order


MISCONCEPTIONS = (
    Misconception(
        name="pre_order",
        witnesses=(_pre_order, recursive_pre_order, _breadth_first),
        fails=(
            "inputs_first_in_a_tree",
            "inputs_first_in_a_diamond",
            "inputs_first_on_unequal_paths",
            "deep_graphs_end",
        ),
        hint="You add a node when you meet it, so users stand before their inputs. Send the inputs ahead: "
        "add a node only after everything that it depends on (post-order).",
    ),
    Misconception(
        name="reversed_pre_order",
        witnesses=(reversed_pre_order, reversed_recursive_pre_order),
        fails=("inputs_first_in_a_diamond", "inputs_first_on_unequal_paths", "deep_graphs_end"),
        hint="You note nodes as you meet them and reverse the list. In a tree that is right; in a diamond "
        "the shared node is met on the first way down, before its other user, and after the reversal it "
        "stands behind that user. Post-order needs no reversal: add a node after its inputs.",
    ),
    Misconception(
        name="reversed_breadth_first",
        witnesses=(reversed_breadth_first, reversed_breadth_first_from_the_right),
        fails=("inputs_first_on_unequal_paths", "deep_graphs_end"),
        hint="You sort by distance from the root and reverse. A node with a short and a long path to the "
        "root is noted at its short distance, and ends up behind a user on the long path. Add a node after "
        "its inputs, or wait until all of its users are in the list, and then reverse.",
    ),
    Misconception(
        name="duplicates",
        witnesses=(recursive_duplicates, marks_too_late),
        fails=("no_node_twice", "visits_nodes_not_paths", "deep_graphs_end"),
        hint="Inputs come before users, but a node with two users is in your list twice, and its derivative "
        "would be passed on twice. Keep a set of seen nodes, and mark a node in the moment in which you ask.",
    ),
    Misconception(
        name="recursion",
        witnesses=(recursive, recursive_from_the_right),
        hint="Your order is right, but a function that calls itself once per node reaches Python's limit at "
        "about 1,000 levels, and real graphs are deeper. Keep your own stack in a list: a node comes by "
        "once to send its inputs ahead, and once to be added.",
    ),
    Misconception(
        name="walks_every_path",
        witnesses=(checks_when_adding, drops_duplicates_at_the_end),
        hint="The list is right, but you walk every path and drop what came twice only when it is added: 30 "
        "diamonds in a row have over a billion paths. Ask whether a node was seen before you go on to its "
        "inputs.",
    ),
    Misconception(
        name="skips_leaves",
        witnesses=(skips_leaves, skips_leaves_with_a_stack),
        hint="Only nodes that an operation made are in your list. Leaves are nodes too, and theirs are the "
        "gradients that training needs: add them like all others; they just have no inputs to wait for.",
    ),
)
