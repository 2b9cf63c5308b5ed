"""What exercises with ranks ask of the virtual clock: what a run cost, as a ledger names it, beside what ours did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from course.tree import Leaf

Costs = Mapping[str, Leaf]


def same_seconds(got: Costs, expected: Costs) -> bool:
    """Whether each rank says that it has computed for as many virtual seconds as ours."""
    took, ours = got.get("computed"), expected["computed"]
    return isinstance(took, Tensor) and isinstance(ours, Tensor) and torch.allclose(took, ours, atol=1e-9)


def about_as_long(got: Costs, expected: Costs) -> str | None:
    """None where the run took 10% more time than ours, at most, and no less; or else a sentence. Nothing that waits for
    what it needs can take less: then layers have told their seconds too late.
    """
    took, ours = cast(float, got["makespan"]), cast(float, expected["makespan"])
    words = "are enough" if took > ours else "must go by"
    return (
        None if 0.99 * ours <= took <= 1.1 * ours else f"{took * 1e6:.0f} microseconds, where {ours * 1e6:.0f} {words}"
    )
