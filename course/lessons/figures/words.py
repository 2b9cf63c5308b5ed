"""What stands in pictures of graphs: names of nodes, formulas and numbers.

nodes in order --names--> {node: "x" or "v3"}
node --formula--> "x * v3", or with numbers "2 * (-5)"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from course.lessons.graph import Node

INFIX = ("+", "-", "*", "/")
LONGEST_LABEL = 28


def names(nodes: Sequence[Node]) -> dict[Node, str]:
    """Each node's own name; a leaf without one is called by its number, other nodes v1, v2, ... in this order."""
    taken = {node.name for node in nodes}
    free = (name for number in range(1, 2 * len(nodes) + 2) if (name := f"v{number}") not in taken)
    result = {}
    for node in nodes:
        result[node] = node.name or (next(free) if node.inputs else number(node.value))
    return result


def formula(node: Node, word: Callable[[Node], str]) -> str:
    """How `node` is computed from its inputs, in Python's signs, each input written as `word(input)`."""
    words = [word(each) for each in node.inputs]
    if node.op in INFIX and len(words) == 2:
        return f"{words[0]} {node.op} {bracketed(words[1])}"
    if node.op.startswith("**") and len(words) == 1:
        return f"{bracketed(words[0])}{node.op}"
    if node.op == "neg" and len(words) == 1:
        return f"-{bracketed(words[0])}"
    return f"{node.op}({', '.join(words)})"


def bracketed(word: str) -> str:
    """The word, in brackets where it starts with a minus."""
    return f"({word})" if word.startswith("-") else word


def label(node: Node, called: Mapping[Node, str]) -> str:
    """`v3 = x * y`, or the name alone for a leaf; a leaf without a name counts as a constant. Cut at 28 characters."""
    if not node.inputs:
        words = called[node] if node.name else "constant"
    else:
        words = f"{called[node]} = {formula(node, called.__getitem__)}"
    return words if len(words) <= LONGEST_LABEL else words[: LONGEST_LABEL - 1] + "…"


def local_words(node: Node) -> list[str]:
    """`×0.5` for each input: its local derivative. Empty words for a node that does not know them."""
    known = node.local_derivatives()
    return [f"×{number(local, digits=3)}" for local in known] if known else [""] * len(node.inputs)


def slope_name(root: str, node: str) -> str:
    """The name of a derivative: `df/dx`, with more air where a name is longer: `d loss / d x`."""
    return f"d{root}/d{node}" if max(len(root), len(node)) <= 2 else f"d {root} / d {node}"


def number(value: float, *, digits: int = 4) -> str:
    """At most so many significant digits; whole numbers below a million in full."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}"
