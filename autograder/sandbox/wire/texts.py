"""Sources of cells and outputs of a display run, as trees that a frame carries (wire.py).

Long text travels as bytes, because a frame's JSON is kept small. An output comes from nobody to trust.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.messages import Output
from autograder.sandbox.wire.wire import clean, clean_leaf, clean_text
from course.tree import Leaf, Tree, map_leaves

LONG_TEXT = 1_000  # characters


def from_sources(sources: Sequence[str]) -> Tree:
    """Sources of cells as a tree; long ones travel as bytes, because text is capped much lower."""
    return [_as_bytes(source) for source in sources]


def to_sources(tree: Any) -> list[str]:
    """The sources back again; the sender is trusted."""
    return [leaf if isinstance(leaf, str) else leaf.numpy().tobytes().decode() for leaf in tree]


def _as_bytes(leaf: Leaf) -> Leaf:
    if isinstance(leaf, str) and len(leaf) > LONG_TEXT:
        return torch.frombuffer(bytearray(leaf.encode("utf-8", "replace")), dtype=torch.uint8)
    return leaf


# --- outputs of a display run -------------------------------------------------------------------------


def from_outputs(outputs: Sequence[Sequence[Output]]) -> Tree:
    """One list of outputs (plain JSON) per source as a tree; pictures and other long text travel as bytes."""
    return [[map_leaves(_as_bytes, output) for output in each] for each in outputs]


def to_outputs(tree: Tree, count: int) -> list[list[Output]]:
    """`count` lists of outputs from a sender who is not trusted: JSON with clean text and finite numbers.

    Raises BadFrame. What an output may show is not decided here.
    """
    if not isinstance(tree, list) or len(tree) != count:
        raise BadFrame(f"a display run must hold the outputs of {count} cells")
    if not all(isinstance(each, list) and all(isinstance(output, dict) for output in each) for each in tree):
        raise BadFrame("the outputs of a cell must be a list of dicts")
    outputs: list[list[Output]] = clean(tree, _json_leaf)
    return outputs


def _json_leaf(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Tensor):
        if leaf.dtype != torch.uint8 or leaf.dim() != 1:
            raise BadFrame("an output must hold no tensor but the bytes of a text")
        return clean_text(leaf.numpy().tobytes().decode("utf-8", "replace"), len(leaf))
    if isinstance(leaf, float) and not math.isfinite(leaf):
        raise BadFrame("a number in an output must be finite")
    return clean_leaf(leaf)
