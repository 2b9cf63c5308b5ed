"""What the cases of an exercise have given: all of it is kept until they are judged."""

from __future__ import annotations

import itertools
import sys

from torch import Tensor

from autograder.sandbox.wire.frame import BadFrame
from course.performing.exercise import Observation

KEPT = 64 * 2**20  # bytes that all observations of an exercise may take
LEAF, TENSOR = 200, 600  # bytes of a value's place and name, and of a tensor besides its numbers


class Kept:
    """Counts the bytes of what one exercise has given so far, on all of its ranks."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, seen: Observation) -> None:
        """Raises BadFrame where all that was observed so far takes too much of our memory."""
        leaves = [*seen.values.items(), *seen.ledger.items()]
        said = (seen.printed, seen.error.message) if seen.error else (seen.printed,)
        for value in itertools.chain(said, *leaves):
            self.bytes += TENSOR + value.nbytes if isinstance(value, Tensor) else sys.getsizeof(value)
        self.bytes += LEAF * len(leaves)
        if self.bytes > KEPT:
            raise BadFrame(f"what all cases give must not take more than {KEPT >> 20} MiB together")
