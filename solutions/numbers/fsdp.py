"""Numbers that the prose of lesson 06 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

from course.lessons.experiments import thousand_ranks, unit_life
from course.planner.published import FINE_TUNING

GIVEN = {
    "40": "microseconds that a question gives",
    "80": "the same",
    "30": "the same",
    "2,000": "a setting in the table of fine-tuning, whose source stands above it",
    "175": "the size of a model in a question",
    "2%": "said in the docstring below it",
    "20%": "how points are given",
}


def billions() -> float:
    """Parameters of the model on a thousand ranks."""
    return thousand_ranks.CONFIG.parameters / 1e9


def batch(setting: str) -> int:
    """Of a row of the table of fine-tuning."""
    return FINE_TUNING[setting][0]


def minutes(setting: str) -> int:
    """Of the same row."""
    return FINE_TUNING[setting][1]


def inside_gb() -> float:
    """Bandwidth inside a server in the cell on hybrid sharding, GB/s."""
    return unit_life.INSIDE.bandwidth / 1e9


def between_gb() -> float:
    """Between servers."""
    return unit_life.BETWEEN.bandwidth / 1e9
