"""A long vector in blocks, each drawn from a seed of its own.

A case that holds a seed stays small, and one block can be drawn without the others: where a cost is measured from
outside the answer works on all blocks, elsewhere on few, and one block of the result is looked at in both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.tree import Leaf


def draw(seed: int, blocks: range, size: int) -> Tensor:
    """Numbers between 0 and 1 in float64, (blocks, size)."""
    x = torch.empty(len(blocks), size, dtype=torch.float64)
    for row, block in zip(x, blocks, strict=True):
        row.uniform_(generator=torch.Generator().manual_seed(seed + block))
    return x


def over_peak(peak: Leaf, most: int, sentence: str) -> str | None:
    """None where a process that was measured took at most so many bytes; otherwise the sentence with `peak` and `most`.

    Anything but an integer is no measurement.
    """
    return None if isinstance(peak, int) and peak <= most else sentence.format(peak=peak, most=most)
