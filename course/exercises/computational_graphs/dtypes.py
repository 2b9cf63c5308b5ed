"""The dtype of each output as it came: an array of NumPy or a number of Python is no tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from course.performing.exercise import Inputs, Property, Values

EVERY_DIGIT = "every_digit_in_float64"


def with_dtypes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and beside them under `dtypes/` what each of them is."""
    return {**values, "dtypes": {key: _kind(value) for key, value in values.items()}}


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else f"no tensor ({type(value).__name__})"


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
    return Property(
        EVERY_DIGIT,
        "These numbers came in float64, which has 15 digits. Whatever is computed in float32 on the way has 7 of them: "
        ".float(), a new tensor without dtype=. So has a rounded constant.",
        keys=keys,
        cases=cases,
    )
