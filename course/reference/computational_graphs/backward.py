"""Reverse-mode differentiation over a graph of numbers.

root --1.0--> users before inputs: flowing[input] += flowing[node] * local --> leaf.grad
"""

from __future__ import annotations

from course.lessons.graph import Node
from course.reference.computational_graphs.topological_order import topological_order


def backward(root: Node) -> None:
    """Adds d root / d leaf to `leaf.grad` for every leaf that `root` depends on.

    Each local derivative is used once, so the cost is O(nodes + edges) however many paths there are.
    Source: Baydin et al., Automatic differentiation in machine learning: a survey (JMLR 18, 2018), section 3.2.
    """
    flowing = {root: 1.0}
    for node in reversed(topological_order(root)):
        upstream = flowing[node]
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + upstream * local
        if not node.inputs:
            node.grad += upstream
