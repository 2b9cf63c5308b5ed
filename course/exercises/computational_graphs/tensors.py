"""What tensors are beside their numbers: each output's dtype, and what autograd notes on arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from course.errors import CourseError
from course.performing.exercise import Inputs, Property, Values, arguments_unchanged

EVERY_DIGIT = "every_digit_in_float64"
DIGITS = (
    "Numbers that come in float64 have some 15 digits, and yours are not right to the last of them. What is computed "
    "in float32 on the way keeps 7, whatever it is converted to at the end: look for .float() and for new tensors "
    "without dtype=. Look also for an epsilon, and for a constant that is rounded."
)


class AnotherShape(CourseError):
    """What an answer is given, a function or a model, was called with a tensor of another shape than it takes."""


def with_dtypes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and beside them under `dtypes/` what each is as it came: an array of NumPy is no tensor."""
    return {**values, "dtypes": {key: _kind(value) for key, value in values.items()}}


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else f"no tensor ({type(value).__name__})"


def unchanged(*, needs: tuple[str, ...], cases: tuple[str, ...]) -> Property:
    """The property that arguments are as they were: their numbers, and whether they require a gradient."""
    return dataclasses.replace(
        arguments_unchanged(needs=needs),
        hint="An argument was changed: in place (+=, sub_, out=), or by `requires_grad_`. The caller needs it as it "
        "was: work on a new tensor, such as `x.clone()`, or `x.detach()` where only the gradient is in the way.",
        cases=cases,
    )


def tensors_in_the_dtype_of(name: str, *keys: str) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: what was observed under `keys` are tensors in the dtype of the input `name`.

    The reference, which is performed in float64, is not asked.
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        wanted = str(inputs[name].dtype)
        others = [f"{key}: {got[f'dtypes/{key}']}" for key in keys if got[f"dtypes/{key}"] != wanted]
        return f"{', '.join(others)}, where {name} is in {wanted}" if others else None

    return holds


def every_digit_in_float64(*keys: str, cases: tuple[str, ...] = ("in float64",)) -> Property:
    """The property that nothing on the way was computed in a coarser dtype."""
    return Property(EVERY_DIGIT, DIGITS, keys=keys, cases=cases)
