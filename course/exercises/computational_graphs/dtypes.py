"""A statement that several exercises make: results come in the dtype of an input."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from course.exercise import Inputs, Values


def in_the_dtype_of(name: str, *keys: str) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: the tensors observed under `keys` have the dtype of the input `name`.

    A Python number has no dtype and passes. The reference, which is performed in float64, is not asked.
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        wanted = inputs[name].dtype
        dtypes = {key: each.dtype for key in keys if isinstance(each := got[key], Tensor)}
        others = [f"{key} in {dtype}" for key, dtype in dtypes.items() if dtype != wanted]
        return f"{', '.join(others)}, where {name} is in {wanted}" if others else None

    return holds
