"""A real step of AdamW leaves the bytes that the exercise `training_bytes` counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course.errors import BadArgument
from course.lessons.experiments.states import measured

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
PLAIN = {"param": F32, "grads": (F32,), "rounding": "nearest", "moments": F32, "block": None, "autocast": None}


@pytest.mark.parametrize(
    ("changed", "states", "passing"),
    [
        ({}, 16, 0),
        ({"autocast": BF16}, 16, 2),
        ({"param": F16, "grads": (F16, F32)}, 20, 0),
        ({"param": BF16}, 18, 0),
        ({"param": BF16, "grads": (), "rounding": "stochastic", "moments": BF16}, 6, 0),
    ],
)
def test_what_is_alive_after_a_step_is_what_the_recipe_says(changed: dict[str, Any], states: int, passing: int) -> None:
    found = measured(PLAIN | changed, width=32)
    assert found.states == pytest.approx(states, abs=0.01)  # two step counters beside 2,048 parameters
    assert found.passing == passing


def test_moments_that_adamw_would_keep_otherwise_are_refused() -> None:
    with pytest.raises(BadArgument, match=r"moments must be in torch\.float32"):
        measured(PLAIN | {"moments": BF16})
