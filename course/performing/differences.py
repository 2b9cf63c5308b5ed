"""A statement of exercises that add up several parts: each part is right, seen in the differences between answers.

A case asks several questions, labelled `stem/last`. Those of one stem differ in one part only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from course.performing.exercise import Inputs, Values
from course.tree import Leaf


def right_differences(suffix: str = "") -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: every number of bytes differs from the first of its stem as the reference's does.

    suffix  of the keys that are compared, where an answer returns more than one number
    """

    def hold(inputs: Inputs, got: Values, expected: Values) -> str | None:
        ordered = {key: got[key] for key in expected}
        pairs = zip(_differences(ordered, suffix), _differences(expected, suffix), strict=True)
        for (label, ours), (_, wanted) in pairs:
            if ours != wanted:
                return f"{label}: {ours:+,.0f} bytes, where {wanted:+,.0f} are right"
        return None

    return hold


def _differences(values: Values, suffix: str) -> Iterator[tuple[str, float]]:
    first: dict[str, float] = {}
    for key, value in values.items():
        if key.endswith(suffix):
            stem, _, last = key.removesuffix(suffix).rpartition("/")
            if stem in first:
                yield f"{stem}: {last}", _bytes(value) - first[stem]
            else:
                first[stem] = _bytes(value)


def _bytes(value: Leaf) -> float:
    """A float holds integers up to 2**53. Raises where it is no number."""
    if isinstance(value, Tensor) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no number of bytes")
