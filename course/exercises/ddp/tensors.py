"""What a rank is given and what came of it: for the probes and cases of exercises with ranks.

inputs of one rank --laid--> its tensor, which may be a view --answer--> result --apart--> what it holds later on
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercises.ddp.traffic import Holds
from course.performing.exercise import Inputs, Values
from course.performing.forms import laid_out
from course.tree import Tree


def laid(inputs: Inputs, name: str) -> Tensor:
    """The tensor `name`, lying in memory as `inputs["lies"]` says (course/performing/forms.py); "" is as usual.

    It takes the place of what was there, because a brokered rank gets no view: so `keeps` looks at the view.
    """
    inputs.update(laid_out({name: inputs[name]}, {name: inputs["lies"]}))
    found: Tensor = inputs[name]
    return found


def one_tensor(result: object) -> Tensor:
    """The result. Raises WrongOutput where it is no tensor."""
    if isinstance(result, Tensor):
        return result
    raise WrongOutput(f"must return one tensor, got {'None' if result is None else type(result).__name__}")


def apart(result: Tensor, given: Tensor) -> Tensor:
    """What `result` holds after the caller has written other numbers into `given`, which is then as it was before."""
    before = given.clone()
    given.copy_(torch.where(before == 0, 1, 0))
    later = result.clone()
    given.copy_(before)
    return later


BEYOND_FLOAT64 = 2**53 + 1  # the first whole number that float64 cannot hold
BEYOND_FLOAT32 = 2**24 + 1
BEYOND_FLOAT16 = 2.0**20  # times what is drawn: numbers that bfloat16 can hold, and float16 cannot


def between_bfloat16(rng: torch.Generator, *shape: int) -> Tensor:
    """Whole numbers in float16, from 257 to 509. They and their sum with one more lie in the middle between two numbers
    of bfloat16, but in float16 all are exact: a comparison may allow two roundings, where otherwise it allows four.
    """
    return (257 + 4 * torch.randint(64, shape, generator=rng)).half()


def last_digits(result: Tensor, given: Tensor) -> dict[str, Tree]:
    """{"digits": the last three of each number} where whole numbers were given, and else {}.

    Values are compared in float64, which takes `BEYOND_FLOAT64` for the number before it.
    """
    return {} if given.dtype != torch.int64 else {"digits": result.long().remainder(1_000)}


def in_the_dtype_of_each(name: str, key: str) -> Holds:
    """What `Property.holds` takes: on every rank the tensor `key` has the dtype of its input in the list `name`.

    The reference, which is performed in float64, is not asked.
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        found: dict[int, Any] = {rank: got[f"{rank}/{key}"] for rank in range(len(inputs[name]))}
        others = [rank for rank, each in found.items() if each.dtype != inputs[name][rank].dtype]
        return f"{found[others[0]].dtype} in place of {inputs[name][others[0]].dtype}" if others else None

    return holds
