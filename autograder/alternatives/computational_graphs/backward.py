"""Other right ways to write `backward`."""

from __future__ import annotations

from collections import Counter, defaultdict

from autograder.bank import Alternative
from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def counts_users(root: Node) -> None:
    """No order is made: a node is ready when all of its users have passed their share on (Kahn's algorithm)."""
    waiting: Counter[Node] = Counter()
    found, stack = {root}, [root]
    while stack:
        for each in stack.pop().inputs:
            waiting[each] += 1
            if each not in found:
                found.add(each)
                stack.append(each)
    flowing = defaultdict[Node, float](float, {root: 1.0})
    ready = [root]
    while ready:
        node = ready.pop()
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] += flowing[node] * local
            waiting[each] -= 1
            if waiting[each] == 0:
                ready.append(each)
        if not node.inputs:
            node.grad += flowing[node]


def through_grad_with_saved_leaves(root: Node) -> None:
    """Uses `grad` itself as the flowing value, and puts back what leaves held before."""
    order = topological_order(root)
    before = {node: node.grad for node in order if not node.inputs}
    for node in order:
        node.grad = 0.0
    root.grad = 1.0
    for node in reversed(order):
        for position, each in enumerate(node.inputs):
            each.grad += node.local_derivatives()[position] * node.grad
    for node, grad in before.items():
        node.grad += grad


def asks_its_users(root: Node) -> None:
    """Each node collects from the nodes that use it, in place of handing on to its inputs."""
    order = topological_order(root)
    uses: dict[Node, list[tuple[Node, float]]] = {node: [] for node in order}
    for node in order:
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            uses[each].append((node, local))
    grads = {root: 1.0}
    for node in order[-2::-1]:
        grads[node] = sum(grads[user] * local for user, local in uses[node])
    for node in order:
        if not node.inputs:
            node.grad += grads[node]


ALTERNATIVES = (
    Alternative(name="counts_users", answer=counts_users),
    Alternative(name="through_grad_with_saved_leaves", answer=through_grad_with_saved_leaves),
    Alternative(name="asks_its_users", answer=asks_its_users),
)
