"""Right and wrong ways to write `topological_order`.

Where each style of one mistake makes another order, it is recognised by the properties that fail.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from graphlib import TopologicalSorter

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def graphlibs_own(root: Node) -> list[Node]:
    """The library asks for the inputs of every node, so they are collected first."""
    graph: dict[Node, tuple[Node, ...]] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in graph:
            graph[node] = node.inputs
            waiting.extend(node.inputs)
    return list(TopologicalSorter(graph).static_order())


def counts_users(root: Node) -> list[Node]:
    """From the root down: a node is added when all of its users were (Kahn's algorithm), and the list is reversed."""
    waiting: Counter[Node] = Counter()
    found, stack = {root}, [root]
    while stack:
        for each in stack.pop().inputs:
            waiting[each] += 1
            if each not in found:
                found.add(each)
                stack.append(each)
    order = [root]
    for node in order:
        for each in node.inputs:
            waiting[each] -= 1
            if waiting[each] == 0:
                order.append(each)
    return order[::-1]


def waits_for_inputs(root: Node) -> tuple[Node, ...]:
    """A node stays on the stack until none of its inputs is missing. A tuple is as good as a list."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [root]
    while stack:
        missing = [each for each in stack[-1].inputs if each not in seen]
        stack.extend(missing)
        if missing:
            continue
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
    return tuple(order)


RIGHT = (
    right(graphlibs_own, independent="graphlib"),
    right(counts_users),
    right(waits_for_inputs),
)


def recursion(root: Node) -> list[Node]:
    """Right, but 5,000 nodes exceed Python's stack."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node in seen:
            return
        seen.add(node)
        for each in node.inputs:
            visit(each)
        order.append(node)

    visit(root)
    return order


def recursion_under_a_raised_limit(root: Node) -> list[Node]:
    """The same, with more stack than Python allows. The limit is put back, so that no later run profits."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return recursion(root)
    finally:
        sys.setrecursionlimit(usual)


stack = partial(edited, topological_order)
waits = partial(edited, waits_for_inputs)
recursive = partial(edited, recursion)

UNASKED = ("elif node not in seen:\n            seen.add(node)", "else:")
OTHER_WAY = ("in node.inputs", "in node.inputs[::-1]")  # from the left in place of from the right, or the reverse
MARK_MISSING = (
    ("stack.extend(missing)", "stack.extend(missing)\n        seen.update(missing)"),
    ("if node not in seen:\n            seen.add(node)\n            order.append(node)", "order.append(node)"),
)
DROPPED_AT_THE_END = ("return order", "return list(dict.fromkeys(order))")
ADD_VALUE = ("seen.add(node)", "seen.add(node.value)")
ADD_AT_ONCE = ("stack.append((node, True))", "order.append(node)")
NEAREST_FIRST = ("stack.pop()", "stack.pop(0)")
REVERSED = ("return order", "return order[::-1]")
IN_A_TREE, IN_A_DIAMOND = "inputs_first_in_a_tree", "inputs_first_in_a_diamond"
FAR = ("inputs_first_on_unequal_paths", "deep_graphs_end")

WRONG = (
    wrong(
        "marks_when_pushed",
        "You mark a node as seen when you put it on the stack. There it may lie under its own user, which then takes "
        "it for done and goes into the list first. Mark a node when its turn comes, and leave one that comes by again "
        "once it is done.",
        stack(
            UNASKED,
            ("seen: set[Node] = set()", "seen = {root}"),
            (
                "stack.extend((each, False) for each in node.inputs)",
                "for each in node.inputs:\n"
                "                if each not in seen:\n"
                "                    seen.add(each)\n"
                "                    stack.append((each, False))",
            ),
        ),
        waits(*MARK_MISSING),
        waits(*MARK_MISSING, ("in stack[-1].inputs", "in dict.fromkeys(stack[-1].inputs)")),
    ),
    wrong(
        "recursion",
        "Your order is right, but a function that calls itself once per node reaches Python's limit at about 1,000 "
        "levels, and real graphs are deeper. The limit protects the program and is not to be raised. Keep your own "
        "stack in a list: a node comes by once to send its inputs ahead, and once to be added.",
        recursion,
        recursive(OTHER_WAY),
        recursion_under_a_raised_limit,
        edited(recursion_under_a_raised_limit, OTHER_WAY),
    ),
    wrong(
        "walks_every_path",
        "The list is right, but you walk every path and drop what came twice only when it is added: 30 diamonds in a "
        "row have over a billion paths. Ask whether a node was seen before you go on to its inputs.",
        stack(UNASKED, DROPPED_AT_THE_END),
        stack(UNASKED, DROPPED_AT_THE_END, OTHER_WAY),
        recursive(
            ("if node in seen:\n            return\n        seen.add(node)\n        ", ""),
            ("order.append(node)", "if node not in order:\n            order.append(node)"),
        ),
    ),
    wrong(
        "skips_leaves",
        "Only nodes that an operation made are in your list. Leaves are nodes too, and theirs are the gradients that "
        "training needs: add them like all others; they just have no inputs to wait for.",
        stack(("node not in seen", "node not in seen and node.inputs")),
        recursive(("node in seen", "node in seen or not node.inputs")),
    ),
    wrong(
        "compares_values",
        "Nodes are missing whose value another node has too: you remember values. Two nodes may hold the same number "
        "(relu of a positive one does). Keep the nodes themselves in your set: `node in seen`.",
        stack(("node not in seen", "node.value not in seen"), ADD_VALUE),
        stack(("node not in seen", "node.value not in seen"), ADD_VALUE, OTHER_WAY),
        recursive(("node in seen", "node.value in seen"), ADD_VALUE),
    ),
    wrong(
        "users_first",
        "Your list is a right order, back to front: users stand before inputs. Reverse it.",
        stack(REVERSED),
        fails=(IN_A_TREE, IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "pre_order",
        "Even in a tree some users stand before their inputs, for example because a node is added as soon as it is "
        "met. Send the inputs ahead, and add a node only after everything that it depends on (post-order).",
        stack(ADD_AT_ONCE),
        stack(ADD_AT_ONCE, NEAREST_FIRST),
        fails=("one_direction", IN_A_TREE, IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "reversed_pre_order",
        "You note nodes as you meet them and reverse the list. In a tree that is right; in a diamond the shared node "
        "is met on the first way down, before its other user, and after the reversal it stands behind that user. "
        "Post-order needs no reversal: add a node after its inputs.",
        stack(ADD_AT_ONCE, REVERSED),
        stack(ADD_AT_ONCE, REVERSED, OTHER_WAY),
        fails=("one_direction", IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "reversed_breadth_first",
        "A node's place is decided when you first meet it, as in a breadth-first search that is then reversed. One "
        "with a short and a long path to the root is met on the short one, and ends up behind a user on the long one. "
        "Add a node after its inputs, or wait until all of its users are in the list, and then reverse.",
        stack(ADD_AT_ONCE, REVERSED, NEAREST_FIRST),
        stack(ADD_AT_ONCE, REVERSED, NEAREST_FIRST, OTHER_WAY),
        fails=("one_direction", *FAR),
    ),
    wrong(
        "duplicates",
        "Inputs come before users, but a node with two users is in your list twice, and its derivative would be "
        "passed on twice. Keep a set of seen nodes, and mark a node in the moment in which you ask.",
        stack(UNASKED),
        stack(("elif node not in seen:", "else:"), ("in node.inputs", "in node.inputs if each not in seen")),
        fails=("no_node_twice", "same_graph_again", "visits_nodes_not_paths", "deep_graphs_end"),
    ),
    wrong(
        "remembers_the_last_call",
        "Your function works once per graph: at the second call it still finds what the first one noted, on the nodes "
        "or in a set or list that outlives the call (a default argument does), and leaves nodes out or repeats them. "
        "Make the set inside the function.",
        stack(("(root: Node)", "(root: Node, seen: set[Node] = set())"), ("    seen: set[Node] = set()\n", "")),
        stack(("node not in seen", 'not hasattr(node, "seen")'), ("seen.add(node)", "node.seen = True")),
        fails=("same_graph_again",),
    ),
)
