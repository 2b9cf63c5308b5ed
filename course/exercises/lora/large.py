"""A weight so large that a tensor of its size shows in the memory of a process, and the same numbers in a small one.

in grading   4,096 x 4,096, and the kernel says what the process took at its highest
elsewhere    SMALL x SMALL, and the largest tensor that was made is looked at

What a case holds stands in the first rows and columns; all else is 0, so that it changes nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from course.meter import metered
from course.performing.blocks import over_peak
from course.performing.exercise import Ask, Case, Inputs, Values
from course.performing.oracle import is_here
from course.tree import Leaf, Tree

SMALL, SIZE = 24, 4096  # rows and columns of the weight in a notebook, and in grading


def large_case(name: str, inputs: Mapping[str, Tree]) -> Case:
    """A case that a probe tells by its only input, `corner`."""
    return Case(name=name, inputs={"corner": dict(inputs)})


def size_of(ask: Ask) -> int:
    """Rows and columns of the weight."""
    return SMALL if is_here(ask) else SIZE


def corner(numbers: Tensor, *shape: int) -> Tensor:
    """A float32 tensor with these numbers in its first rows and columns, and 0 elsewhere."""
    full = torch.zeros(shape)
    full[tuple(slice(length) for length in numbers.shape)] = numbers
    return full


def with_costs(call: Callable[[], Any], ask: Ask) -> tuple[Any, dict[str, Leaf]]:
    """What a call returns, and where nobody measures from outside how many numbers its largest tensor has."""
    if not is_here(ask):
        return call(), {}
    with metered() as run:
        result = call()
    return result, {"largest_tensor": run.largest.bytes // run.largest.dtype.itemsize if run.largest else 0}


def no_large_matrix(peak: int) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: no tensor of the weight's size was made; in grading, at most `peak` bytes."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        if "peak_bytes" in got:
            sentence = "{peak:,} bytes at the highest, where {most:,} are enough without a matrix (m, n)"
            return over_peak(got["peak_bytes"], peak, sentence)
        found = got["largest_tensor"]
        if isinstance(found, int) and found < SMALL * SMALL:
            return None
        return f"a tensor of {found:,} numbers was made, where the weight has {SMALL * SMALL:,}"

    return holds
