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
from course.performing.exercise import EVERY_FORM
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
    """Right, but 2,000 nodes exceed Python's stack."""
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


def again_for_a_longer_path(root: Node) -> list[Node]:
    """Sorted by the longest path from the root, which is found by going on whenever a longer one comes."""
    steps_to: dict[Node, int] = {}
    waiting = [(root, 0)]
    while waiting:
        node, steps = waiting.pop()
        if steps_to.get(node, -1) < steps:
            steps_to[node] = steps
            waiting.extend((each, steps + 1) for each in node.inputs)
    return sorted(steps_to, key=lambda node: -steps_to[node])


stack = partial(edited, topological_order)
waits = partial(edited, waits_for_inputs)
recursive = partial(edited, recursion)

EDGES_FIRST = """    usual, edges, waiting = sys.getrecursionlimit(), {}, [root]
    while waiting:
        node = waiting.pop()
        if node not in edges:
            edges[node] = node.inputs
            waiting.extend(node.inputs)
"""
NEAREST_MET = """    except RecursionError:
        order = [root]
        for node in order:
            order.extend(each for each in dict.fromkeys(node.inputs) if each not in order)
        order = [each for each in order if not each.inputs] + [each for each in order[::-1] if each.inputs]
    return order"""
UNASKED = ("elif node not in seen:\n            seen.add(node)", "else:")
OTHER_WAY = ("in node.inputs", "in node.inputs[::-1]")  # from the left in place of from the right, or the reverse
MARK_MISSING = (
    ("stack.extend(missing)", "stack.extend(missing)\n        seen.update(missing)"),
    ("if node not in seen:\n            seen.add(node)\n            order.append(node)", "order.append(node)"),
)
DROPPED_AT_THE_END = ("return order", "return list(dict.fromkeys(order))")
ADD_VALUE = ("seen.add(node)", "seen.add(node.value)")
ADD_VALUE_AND_OP = ("seen.add(node)", "seen.add((node.value, node.op))")
ADD_AT_ONCE = ("stack.append((node, True))", "order.append(node)")
NEAREST_FIRST = ("stack.pop()", "stack.pop(0)")
NEAREST_FIRST_OF_ALL = ("waiting.pop()", "waiting.pop(0)")
REVERSED = ("return order", "return order[::-1]")
IN_A_TREE, IN_A_DIAMOND = "inputs_first_in_a_tree", "inputs_first_in_a_diamond"
FAR = ("inputs_first_on_unequal_paths", "deep_graphs_end", EVERY_FORM)

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
        "Your order is right, but a function that calls itself on the way down reaches Python's limit at about 1,000 "
        "levels, and real graphs are deeper. Keep your own stack in a list: a node comes by once to send its inputs "
        "ahead, and once to be added.",
        recursion,
        recursive(OTHER_WAY),
    ),
    wrong(
        "raises_the_limit",
        "Your order is right, but Python's recursion limit is not what it was while your function works. It protects "
        "the program: past it the memory of the stack may end. With a stack of your own in a list no limit is needed.",
        recursion_under_a_raised_limit,
        edited(recursion_under_a_raised_limit, OTHER_WAY),
        recursive(
            ("    order: list", f"    import sys\n{EDGES_FIRST}    order: list"),
            ("in node.inputs:\n            visit", "in edges[node]:\n            visit"),
            (
                "    visit(root)\n",
                "    sys.setrecursionlimit(100_000)\n    visit(root)\n    sys.setrecursionlimit(usual)\n",
            ),
        ),
    ),
    wrong(
        "order_of_a_chain",
        "Right as far as Python's stack reaches. Beyond, your other way to an order is right where each node has one "
        "user, and not where a node is used close by and far away. One way for all depths is enough: your own stack in "
        "a list.",
        recursive(
            ("    visit(root)\n    return order", f"    try:\n        visit(root)\n{NEAREST_MET}"),
        ),
        fails=("deep_graphs_end",),
    ),
    wrong(
        "walks_every_path",
        "Right in small graphs, but you go on to a node's inputs each time that you come to it: 30 diamonds in a row "
        "have over a billion paths. Ask whether a node was seen before you go on to its inputs.",
        stack(UNASKED, DROPPED_AT_THE_END),
        stack(UNASKED, DROPPED_AT_THE_END, OTHER_WAY),
        recursive(
            ("if node in seen:\n            return\n        seen.add(node)\n        ", ""),
            ("order.append(node)", "if node not in order:\n            order.append(node)"),
        ),
    ),
    wrong(
        "again_for_a_longer_path",
        "Your order is right, but you go on to a node's inputs again whenever a longer path to it comes: in a ladder "
        "of n rungs up to n times. A node whose inputs all stand in the list can be added, whatever its longest path "
        "is: send the inputs ahead once.",
        again_for_a_longer_path,
        edited(again_for_a_longer_path, OTHER_WAY),
        edited(again_for_a_longer_path, NEAREST_FIRST_OF_ALL),
        fails=("visits_nodes_not_paths",),
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
        "Nodes are missing that hold the same as another one: you remember what nodes hold. Two may have the same "
        "value (relu of a positive one does), the same name, and even the same operation on the same inputs. Keep the "
        "nodes themselves in your set: `node in seen`.",
        stack(("node not in seen", "node.value not in seen"), ADD_VALUE),
        stack(("node not in seen", "node.value not in seen"), ADD_VALUE, OTHER_WAY),
        recursive(("node in seen", "node.value in seen"), ADD_VALUE),
        stack(("node not in seen", "(node.value, node.op) not in seen"), ADD_VALUE_AND_OP),
        stack(("node not in seen", "(node.value, node.op) not in seen"), ADD_VALUE_AND_OP, OTHER_WAY),
        stack(
            ("node not in seen", "(node.name or node) not in seen"), ("seen.add(node)", "seen.add(node.name or node)")
        ),
    ),
    wrong(
        "users_first",
        "In the small graphs your list is a right order, back to front: users stand before inputs. Reverse it.",
        stack(REVERSED),
        fails=(IN_A_TREE, IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "no_order_in_a_tree",
        "Even where no node has two users, some stand before their inputs; and it is not always the right order back "
        "to front. That happens where a node is added as soon as it is met. Send the inputs ahead, and add a node only "
        "after everything that it depends on (post-order).",
        stack(ADD_AT_ONCE),
        stack(ADD_AT_ONCE, NEAREST_FIRST),
        fails=("one_direction", IN_A_TREE, IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "no_order_in_a_diamond",
        "Right in a tree; but in the diamond, where two nodes use a third, one stands before its input. That happens "
        "where nodes are noted as they are met and the list is reversed: the shared node is met on the first way down, "
        "before its other user. Post-order needs no reversal: add a node after its inputs.",
        stack(ADD_AT_ONCE, REVERSED),
        stack(ADD_AT_ONCE, REVERSED, OTHER_WAY),
        fails=("one_direction", IN_A_DIAMOND, *FAR),
    ),
    wrong(
        "no_order_on_unequal_paths",
        "Right in a tree and in a diamond; but where a node has a short and a long path to the root, one stands before "
        "its input. That happens where a node's place is decided when it is first met, as in a breadth-first search "
        "that is then reversed. Add a node after its inputs, or wait until all of its users are in the list, and then "
        "reverse.",
        stack(ADD_AT_ONCE, REVERSED, NEAREST_FIRST),
        stack(ADD_AT_ONCE, REVERSED, NEAREST_FIRST, OTHER_WAY),
        fails=("one_direction", *FAR),
    ),
    wrong(
        "duplicates",
        "Inputs come before users, but a node is in your list twice, and its derivative would be passed on twice. Keep "
        "a set of the nodes that are done, and ask it when a node's turn comes: it may have come before.",
        stack(UNASKED),
        stack(("elif node not in seen:", "else:"), ("in node.inputs", "in node.inputs if each not in seen")),
        fails=("no_node_twice", "same_graph_again", "visits_nodes_not_paths", "deep_graphs_end", EVERY_FORM),
    ),
    wrong(
        "counts_users_and_uses",
        "You count the users of a node, and take one off for each use. Of a node that one user has twice (x * x) none "
        "seems to be left, while another user is still to come. Count uses, or count each user once both times.",
        edited(counts_users, ("stack.pop().inputs", "set(stack.pop().inputs)")),
        edited(
            counts_users, ("stack.pop().inputs", "set(stack.pop().inputs)"), ("in node.inputs", "in node.inputs[::-1]")
        ),
        fails=(EVERY_FORM,),
    ),
    wrong(
        "remembers_the_last_call",
        "Your function works once per graph: a second call on the same one does not give the whole list once more. "
        "What the first call noted outlives it, as a set or list outside of the function does, or one in a default "
        "argument. Make it inside the function.",
        stack(("(root: Node)", "(root: Node, seen: set[Node] = set())"), ("    seen: set[Node] = set()\n", "")),
        fails=("same_graph_again",),
    ),
    wrong(
        "spoils_the_graph",
        "Your function leaves the nodes other than they were, and works once per graph: a second call on the same one "
        "does not give the whole list once more. Leave the nodes as they are, and keep what you note in a set inside "
        "the function.",
        stack(("node not in seen", 'not hasattr(node, "seen")'), ("seen.add(node)", "node.seen = True")),
        fails=("same_graph_again", "graph_unchanged"),
    ),
    wrong(
        "changes_the_graph",
        "The order is right, but the nodes are not what they were before the call: an attribute is new, or has another "
        "value. Keep what you note about nodes in a set or a dict inside the function.",
        stack(("node not in seen", 'getattr(node, "seen", None) is not seen'), ("seen.add(node)", "node.seen = seen")),
        stack(("order.append(node)", "order.append(node)\n            node.grad = 0.0")),
        stack(
            ("node not in seen", "node.grad is not seen"),
            ("seen.add(node)", "node.grad = seen"),
            ("    return order", "    for node in order:\n        node.grad = 0.0\n    return order"),
        ),
        fails=("graph_unchanged",),
    ),
)
