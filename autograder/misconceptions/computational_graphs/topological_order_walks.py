"""Wrong ways to write `topological_order`: which nodes are visited, how often and how deep.

They are recognised by the order that they make.
"""

from __future__ import annotations

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs.orders import raised_limit, recursive_post_order
from course.lessons.graph import Node


def recursive_from_the_right(root: Node) -> list[Node]:
    """Post-order by recursion, last input first."""
    return recursive_post_order(root, from_the_right=True)


def recursive_under_a_raised_limit(root: Node) -> list[Node]:
    """Post-order by recursion, with more stack than Python allows."""
    with raised_limit():
        return recursive_post_order(root)


def recursive_from_the_right_under_a_raised_limit(root: Node) -> list[Node]:
    """The same, last input first."""
    with raised_limit():
        return recursive_from_the_right(root)


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


def marks_when_pushed(root: Node) -> list[Node]:
    """A node counts as seen when it goes on the stack: one that still lies there is taken for done."""
    order: list[Node] = []
    seen, stack = {root}, [root]
    while stack:
        waiting = [each for each in stack[-1].inputs if each not in seen]
        if waiting:
            seen.update(waiting)
            stack.extend(waiting)
        else:
            order.append(stack.pop())
    return order


def marks_when_pushed_one_by_one(root: Node) -> list[Node]:
    """The same; an input that stands there twice is pushed once."""
    order: list[Node] = []
    seen, stack = {root}, [root]
    while stack:
        waiting = [each for each in dict.fromkeys(stack[-1].inputs) if each not in seen]
        if waiting:
            seen.update(waiting)
            stack.extend(waiting)
        else:
            order.append(stack.pop())
    return order


def marks_before_the_inputs(root: Node) -> list[Node]:
    """The same with a mark beside each node on the stack."""
    order: list[Node] = []
    seen, stack = {root}, [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
            continue
        stack.append((node, True))
        for each in node.inputs:
            if each not in seen:
                seen.add(each)
                stack.append((each, False))
    return order


def _by_value(root: Node, *, from_the_right: bool) -> list[Node]:
    order: list[Node] = []
    seen: set[float] = set()
    stack = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif node.value not in seen:
            seen.add(node.value)
            stack.append((node, True))
            stack.extend((each, False) for each in (node.inputs if from_the_right else node.inputs[::-1]))
    return order


def compares_values(root: Node) -> list[Node]:
    """Keeps values, not nodes, in the set of what was seen."""
    return _by_value(root, from_the_right=False)


def compares_values_from_the_right(root: Node) -> list[Node]:
    """The same, last input first."""
    return _by_value(root, from_the_right=True)


def compares_values_by_recursion(root: Node) -> list[Node]:
    """The same by recursion."""
    order: list[Node] = []
    seen: set[float] = set()

    def visit(node: Node) -> None:
        if node.value not in seen:
            seen.add(node.value)
            for each in node.inputs:
                visit(each)
            order.append(node)

    visit(root)
    return order


MARKS_WHEN_PUSHED = Misconception(
    name="marks_when_pushed",
    witnesses=(marks_when_pushed, marks_when_pushed_one_by_one, marks_before_the_inputs),
    hint="You mark a node as seen when you put it on the stack. There it may lie under its own user, which then "
    "takes it for done and goes into the list first. Mark a node when its turn comes, and leave one that comes "
    "by again once it is done.",
)

WALKS = (
    Misconception(
        name="recursion",
        witnesses=(
            recursive_post_order,
            recursive_from_the_right,
            recursive_under_a_raised_limit,
            recursive_from_the_right_under_a_raised_limit,
        ),
        hint="Your order is right, but a function that calls itself once per node reaches Python's limit at "
        "about 1,000 levels, and real graphs are deeper. The limit protects the program and is not to be raised. "
        "Keep your own stack in a list: a node comes by once to send its inputs ahead, and once to be added.",
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
    Misconception(
        name="compares_values",
        witnesses=(compares_values, compares_values_from_the_right, compares_values_by_recursion),
        hint="Nodes are missing whose value another node has too: you remember values. Two nodes may hold the same "
        "number (relu of a positive one does). Keep the nodes themselves in your set: `node in seen`.",
    ),
)
