"""What probes and properties of flat shards share.

shapes  --in_all-->  n elements  --length-->  ceil(n / P) on each rank, padded at the end
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from course.errors import WrongOutput
from course.performing.exercise import Inputs, Values, is_tensor


def one_tensor(result: object) -> Tensor:
    """The result. Raises WrongOutput where it is no tensor, or one of a class that may say anything of its storage."""
    if is_tensor(result):
        return result
    raise WrongOutput(f"must return one tensor, got {'None' if result is None else type(result).__name__}")


def in_all(shapes: Iterable[Sequence[int]]) -> int:
    """Elements of tensors of these shapes."""
    return sum(math.prod(shape) for shape in shapes)


def length(elements: int, ranks: int) -> int:
    """Elements of a rank's shard, padding included."""
    return -(-elements // ranks)


def held_once(tensors: Iterable[Tensor], beside: Iterable[Tensor] = ()) -> int:
    """Elements in all memory that these tensors keep alive, each storage once; in none of what stands beside."""
    known = {each.untyped_storage().data_ptr() for each in beside if each.numel()}
    found = {each.untyped_storage().data_ptr(): each for each in tensors if each.numel()}
    return sum(
        each.untyped_storage().nbytes() // each.element_size() for key, each in found.items() if key not in known
    )


def at_most(most: Callable[[Inputs], int], what: str = "bytes") -> Callable[[Inputs, Values, Values], str | None]:
    """Whether no rank sent more: bytes, or messages."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        matrix = got[what]
        assert isinstance(matrix, Tensor)
        sent, allowed = matrix.sum(1), most(inputs)
        rank = int(sent.argmax())
        return None if sent[rank] <= allowed else f"rank {rank} sent {sent[rank]} {what}, where {allowed} are enough"

    return holds
