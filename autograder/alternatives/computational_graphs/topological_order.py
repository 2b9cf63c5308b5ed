"""Other right ways to write `topological_order`."""

from __future__ import annotations

from collections import Counter, deque

from autograder.bank import Alternative
from course.lessons.graph import Node


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


def counts_inputs(root: Node) -> list[Node]:
    """From the leaves up: a node is added when all of its inputs were."""
    users: dict[Node, list[Node]] = {root: []}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for each in node.inputs:
            if each not in users:
                users[each] = []
                queue.append(each)
            users[each].append(node)
    missing = {node: len(node.inputs) for node in users}
    order = [node for node in users if missing[node] == 0]
    for node in order:
        for user in users[node]:
            missing[user] -= 1
            if missing[user] == 0:
                order.append(user)
    return order


def stack_of_iterators(root: Node) -> tuple[Node, ...]:
    """Recursion unrolled: each open node keeps the inputs that it has yet to visit. A tuple is as good as a list."""
    seen = {root}
    order: list[Node] = []
    open_nodes = [(root, iter(root.inputs))]
    while open_nodes:
        each = next(open_nodes[-1][1], None)
        if each is None:
            order.append(open_nodes.pop()[0])
        elif each not in seen:
            seen.add(each)
            open_nodes.append((each, iter(each.inputs)))
    return tuple(order)


def searches_the_list(root: Node) -> list[Node]:
    """No set: looks through the list itself, which is slow and right."""
    order: list[Node] = []
    stack = [root]
    while stack:
        missing = [each for each in stack[-1].inputs if each not in order]
        if missing:
            stack.append(missing[0])
        else:
            node = stack.pop()
            if node not in order:
                order.append(node)
    return order


ALTERNATIVES = (
    Alternative(name="counts_users", answer=counts_users),
    Alternative(name="counts_inputs", answer=counts_inputs),
    Alternative(name="stack_of_iterators", answer=stack_of_iterators),
    Alternative(name="searches_the_list", answer=searches_the_list),
)
