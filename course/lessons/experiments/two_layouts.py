"""Which rank holds which number: one flat row for all parameters of a unit, or each parameter cut by its rows.

    shapes, ranks --flat, by_rows--> Layout: the owner of each number, and the padding

The first is FSDP's flat parameter (Zhao et al., arXiv 2304.11277, section 3.2.1), the second that of FSDP2: each
parameter is cut along its first dimension as torch.chunk does it (PyTorch's documentation of fully_shard).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

SHAPES = {"weight": (5, 4), "bias": (5,), "scale": (2,)}
RANKS = 4


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a unit is sharded.

    owners   the rank that holds each number, int64, by the name of the parameter and in its shape
    padding  numbers that all ranks together hold besides
    """

    owners: Mapping[str, Tensor]
    padding: int


def flat(shapes: Mapping[str, tuple[int, ...]] = SHAPES, ranks: int = RANKS) -> Layout:
    """One row of all parameters, cut into equal parts."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    part = -(-sum(sizes) // ranks)
    row = torch.arange(sum(sizes)) // part
    pieces = zip(shapes.items(), torch.split(row, sizes), strict=True)
    return Layout(
        owners={name: piece.view(shape) for (name, shape), piece in pieces}, padding=ranks * part - sum(sizes)
    )


def by_rows(shapes: Mapping[str, tuple[int, ...]] = SHAPES, ranks: int = RANKS) -> Layout:
    """Each parameter in parts of as many rows; the last ranks may have fewer, or none, and are filled up."""
    owners, padding = {}, 0
    for name, (rows, *rest) in shapes.items():
        part, others = -(-rows // ranks), (1,) * len(rest)
        owners[name] = (torch.arange(rows) // part).view(rows, *others).expand(rows, *rest)
        padding += (ranks * part - rows) * math.prod(rest)
    return Layout(owners=owners, padding=padding)
