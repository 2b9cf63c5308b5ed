"""Orders of a graph's nodes on which wrong answers of this unit are built.

`from_the_right` takes a node's last input first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from course.lessons.graph import Node


def pre_order(root: Node, *, from_the_right: bool = False) -> list[Node]:
    """Depth first with a stack, each node as it is met."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            stack.extend(node.inputs if from_the_right else node.inputs[::-1])
    return order


def recursive_pre_order(root: Node) -> list[Node]:
    """Depth first by recursion: adds the node before it visits the inputs."""
    order: list[Node] = []

    def visit(node: Node) -> None:
        if node not in order:
            order.append(node)
            for each in node.inputs:
                visit(each)

    visit(root)
    return order


def breadth_first(root: Node, *, from_the_right: bool = False) -> list[Node]:
    """Nearest nodes first, each as it is met."""
    order = [root]
    seen = {root}
    for node in order:
        for each in node.inputs[::-1] if from_the_right else node.inputs:
            if each not in seen:
                seen.add(each)
                order.append(each)
    return order


def recursive_post_order(root: Node, *, from_the_right: bool = False) -> list[Node]:
    """Right, but 5,000 nodes exceed Python's stack."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            for each in node.inputs[::-1] if from_the_right else node.inputs:
                visit(each)
            order.append(node)

    visit(root)
    return order


@contextmanager
def raised_limit() -> Iterator[None]:
    """Python's recursion limit raised in the body. It is put back, so that no later run profits."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
