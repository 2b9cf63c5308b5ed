"""A long vector in blocks, each drawn from a seed of its own.

A case that holds a seed stays small, and one block can be drawn without the others: where a cost is measured from
outside the answer works on all blocks, elsewhere on few, and one block of the result is looked at in both.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from course.performing.exercise import Ask, Case
from course.performing.oracle import UnknownQuestion
from course.tree import Leaf, Tree


def draw(seed: int, blocks: range, size: int) -> Tensor:
    """Numbers between 0 and 1 in float64, (blocks, size)."""
    x = torch.empty(len(blocks), size, dtype=torch.float64)
    for row, block in zip(x, blocks, strict=True):
        row.uniform_(generator=torch.Generator().manual_seed(seed + block))
    return x


class Sample:
    """Tells which block of a result is looked at, and other numbers that a case hides until they are asked for.

    In grading a probe asks when the answer has done its work, so that none of it can be left out.
    """

    def __init__(self, case: Case) -> None:
        self._hidden = case.hidden

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """The hidden number of that name. Raises UnknownQuestion."""
        if verb not in self._hidden:
            raise UnknownQuestion(f"a number that the case hides must be asked for, got {verb!r:.40}; leave that out")
        return self._hidden[verb]

    def ledger(self) -> dict[str, Leaf]:
        """Nothing: it does not count."""
        return {}


def number(ask: Ask, name: str) -> int:
    """A hidden number."""
    return cast(int, ask(name, {}))


def over_peak(peak: Leaf, most: int, sentence: str) -> str | None:
    """None where a process that was measured took at most so many bytes; otherwise the sentence with `peak` and `most`.

    Anything but an integer is no measurement.
    """
    return None if isinstance(peak, int) and peak <= most else sentence.format(peak=peak, most=most)
