"""What the wrong ways to write `optimizer_bytes` are put together from: the right count, with parts to exchange."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence

import torch

from course.exercise import Answer

Shape = tuple[int, ...]
Dtypes = Mapping[str, torch.dtype]
MOMENTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adamw": 2, "muon": 1, "adafactor": 0}
COUNT_STEPS = ("adagrad", "rmsprop", "adamw", "adafactor")


def numel(shape: Shape) -> int:
    """How many numbers a tensor holds."""
    return math.prod(shape)


def factored(shape: Shape) -> int:
    """How many numbers Adafactor keeps."""
    if len(shape) < 2:
        return math.prod(shape)
    return math.prod(shape[:-2]) * (shape[-2] + shape[-1])


def state_bytes(dtypes: Dtypes) -> int:
    """Bytes of a number in the state."""
    return dtypes["state"].itemsize


def param_bytes(dtypes: Dtypes) -> int:
    """Bytes of a number in the parameters."""
    return dtypes["param"].itemsize


def always(size: int) -> Callable[[Dtypes], int]:
    """So many bytes, whatever the dtypes are."""
    return lambda dtypes: size


FOUR, NOTHING = always(4), always(0)


def master(dtypes: Dtypes) -> int:
    """Bytes of a number in the master copy."""
    return 4 if param_bytes(dtypes) < 4 else 0


def counted(
    *,
    moments: Mapping[str, int] = MOMENTS,
    factors: Callable[[Shape], int] = factored,
    moment: Callable[[Dtypes], int] = state_bytes,
    copy: Callable[[Dtypes], int] = master,
    copied: Container[str] = tuple(MOMENTS),
    counter: Callable[[Dtypes], int] = FOUR,
    count_steps: Container[str] = COUNT_STEPS,
    of_each: bool = True,
    size: Callable[[Shape], int] = numel,
    beside: Callable[[Dtypes], int] = NOTHING,
    refuses: Container[str] = ("name", "muon"),
) -> Answer:
    """The right count but for what is given.

    moments, factors     numbers kept: times the size of a tensor, and Adafactor's
    moment, copy, beside bytes of a number in the moments, in the master copy, and in something else that is counted
    copied               the optimizers that have a master copy
    counter, count_steps bytes of a step counter, and who has one: of each tensor, or one in all
    """

    def answer(shapes: Sequence[Shape], name: str, dtypes: Dtypes) -> int:
        if name not in moments and "name" in refuses:
            raise ValueError(f"unknown name {name}")
        if name == "muon" and "muon" in refuses and any(len(shape) != 2 for shape in shapes):
            raise ValueError(f"muon takes matrices, got {shapes}")
        total = 0
        for shape in shapes:
            total += moments.get(name, 1) * size(shape) * moment(dtypes)
            total += factors(shape) * moment(dtypes) if name == "adafactor" else 0
            total += size(shape) * (beside(dtypes) + (copy(dtypes) if name in copied else 0))
        counters = len(shapes) if of_each else 1
        return total + (counters * counter(dtypes) if name in count_steps else 0)

    return answer
