"""Wrong ways to write `topological_order`.

Where each style of one mistake makes another order, it is recognised by the properties that fail.
"""

from __future__ import annotations

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.orders import (
    breadth_first,
    pre_order,
    recursive_pre_order,
)
from autograder.misconceptions.computational_graphs.topological_order_walks import MARKS_WHEN_PUSHED, WALKS
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def right_order_reversed(root: Node) -> list[Node]:
    """The root first, the leaves last."""
    return topological_order(root)[::-1]


def counts_users_and_does_not_reverse(root: Node) -> list[Node]:
    """From the root down: a node is added when all of its users were (Kahn's algorithm), and so it stays."""
    found = pre_order(root)
    waiting = dict.fromkeys(found, 0)
    for node in found:
        for each in node.inputs:
            waiting[each] += 1
    order = [root]
    for node in order:
        for each in node.inputs:
            waiting[each] -= 1
            if waiting[each] == 0:
                order.append(each)
    return order


def leaves_last(root: Node) -> list[Node]:
    """A right order of the inner nodes, and behind it the leaves."""
    return sorted(topological_order(root), key=lambda node: not node.inputs)


def reversed_pre_order(root: Node) -> list[Node]:
    """Right in a tree."""
    return pre_order(root)[::-1]


def reversed_recursive_pre_order(root: Node) -> list[Node]:
    """The same by recursion."""
    return recursive_pre_order(root)[::-1]


def reversed_breadth_first(root: Node) -> list[Node]:
    """Right where all paths to a node have the same length."""
    return breadth_first(root)[::-1]


def reversed_breadth_first_from_the_right(root: Node) -> list[Node]:
    """The same, last input first."""
    return breadth_first(root, from_the_right=True)[::-1]


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


def marks_on_the_node(root: Node) -> list[Node]:
    """Notes on the node itself that it was visited: the second call finds the notes of the first."""
    order: list[Node] = []
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [each for each in node.inputs if not hasattr(each, "visited")]
        if waiting:
            stack.extend(waiting)
        elif stack.pop() and not hasattr(node, "visited"):
            node.visited = True  # type: ignore[attr-defined]
            order.append(node)
    return order


MISCONCEPTIONS = (
    MARKS_WHEN_PUSHED,
    Misconception(
        name="users_first",
        witnesses=(right_order_reversed, counts_users_and_does_not_reverse),
        fails=(
            "inputs_first_in_a_tree",
            "inputs_first_in_a_diamond",
            "inputs_first_on_unequal_paths",
            "deep_graphs_end",
        ),
        hint="Your list is a right order, back to front: users stand before inputs. Reverse it.",
    ),
    Misconception(
        name="pre_order",
        witnesses=(pre_order, recursive_pre_order, breadth_first, leaves_last),
        fails=(
            "one_direction",
            "inputs_first_in_a_tree",
            "inputs_first_in_a_diamond",
            "inputs_first_on_unequal_paths",
            "deep_graphs_end",
        ),
        hint="Even in a tree some users stand before their inputs, for example because a node is added as soon as "
        "it is met. Send the inputs ahead, and add a node only after everything that it depends on (post-order).",
    ),
    Misconception(
        name="reversed_pre_order",
        witnesses=(reversed_pre_order, reversed_recursive_pre_order),
        fails=("one_direction", "inputs_first_in_a_diamond", "inputs_first_on_unequal_paths", "deep_graphs_end"),
        hint="You note nodes as you meet them and reverse the list. In a tree that is right; in a diamond "
        "the shared node is met on the first way down, before its other user, and after the reversal it "
        "stands behind that user. Post-order needs no reversal: add a node after its inputs.",
    ),
    Misconception(
        name="reversed_breadth_first",
        witnesses=(reversed_breadth_first, reversed_breadth_first_from_the_right),
        fails=("one_direction", "inputs_first_on_unequal_paths", "deep_graphs_end"),
        hint="A node's place is decided when you first meet it, as in a breadth-first search that is then reversed. "
        "One with a short and a long path to the root is met on the short one, and ends up behind a user on the long "
        "one. Add a node after its inputs, or wait until all of its users are in the list, and then reverse.",
    ),
    Misconception(
        name="duplicates",
        witnesses=(recursive_duplicates, marks_too_late),
        fails=("no_node_twice", "same_graph_again", "visits_nodes_not_paths", "deep_graphs_end"),
        hint="Inputs come before users, but a node with two users is in your list twice, and its derivative "
        "would be passed on twice. Keep a set of seen nodes, and mark a node in the moment in which you ask.",
    ),
    Misconception(
        name="remembers_the_last_call",
        witnesses=(marks_on_the_node,),
        fails=("same_graph_again",),
        hint="Your function works once per graph: at the second call it still finds what the first one noted, on the "
        "nodes or in a set or list that outlives the call (a default argument does), and leaves nodes out or repeats "
        "them. Make the set inside the function.",
    ),
    *WALKS,
)
