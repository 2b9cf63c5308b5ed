"""The derivatives that pictures of graphs show.

    graph of numbers --replay--> the same graph of torch scalars --torch.autograd--> d root / d node

torch does the backward pass, so that a picture gives away nothing of the exercise that writes one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course.errors import CourseError
from course.lessons.figures.layout import depths
from course.lessons.graph import Node

OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "neg": torch.neg,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "log": torch.log,
}


class UnknownOperation(CourseError):
    """A node was made by an operation that cannot be replayed in torch."""


def derivatives(root: Node) -> dict[Node, float]:
    """d root / d node for every node that `root` depends on, `root` itself included, in float64.

    Simplification: a power is replayed with the exponent that its op shows, which has six digits.
    Raises UnknownOperation for an op that is not one of `+ - * / ** neg relu sigmoid exp log`.
    """
    depth = depths(root)
    nodes = sorted(depth, key=depth.__getitem__)
    with torch.enable_grad():
        replayed: dict[Node, Tensor] = {}
        for node in nodes:
            replayed[node] = _replay(node, [replayed[each] for each in node.inputs])
        slopes = torch.autograd.grad(replayed[root], [replayed[node] for node in nodes])
    return {node: float(slope) for node, slope in zip(nodes, slopes, strict=True)}


def _replay(node: Node, inputs: list[Tensor]) -> Tensor:
    """The node's value as a torch scalar, computed from the scalars of its inputs."""
    if not inputs:
        return torch.tensor(node.value, dtype=torch.float64, requires_grad=True)
    if node.op.startswith("**"):
        return inputs[0] ** float(node.op.removeprefix("**"))
    if node.op not in OPERATIONS:
        known = " ".join(OPERATIONS)
        raise UnknownOperation(
            f"an operation must be one of ** {known}, got {node.op!r}: give the derivatives yourself"
        )
    return OPERATIONS[node.op](*inputs)
