"""Nodes of a graph, inputs before users."""

from __future__ import annotations

from course.lessons.graph import Node


def topological_order(root: Node) -> list[Node]:
    """Every node that `root` depends on, and `root`, each once and after all of its inputs.

    Depth-first search with a stack of its own, so that depth costs memory and not Python frames. O(nodes + edges).
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((each, False) for each in node.inputs)
    return order
