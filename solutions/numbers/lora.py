"""Numbers that the prose of lesson 07 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import statistics
from typing import cast

from course.lessons.experiments import fine_tuning, small_gpt
from course.planner.published import GPT3_LAYERS, GPT3_WIDTH

GIVEN = {
    "175": "the size of a model, in its name",
    "350": "published, with its source beside it",
    "1.2": "the same",
    "35": "the same, in the table above it",
    "36": "GPT-3's adapter in MiB, from the table above it",
    "2.8": "16 bytes times the parameters of GPT-3",
}


def thousands() -> float:
    """Parameters of the small GPT."""
    return small_gpt.CONFIG.parameters / 1e3


def loss() -> float:
    """Of the small GPT on northern text, nats per character."""
    return cast(float, small_gpt.about()["loss"])


def least() -> float:
    """The floor of the same windows."""
    return cast(float, small_gpt.about()["floor"])


def directions() -> int:
    """That hold nine tenths of the squares, in the median matrix."""
    values = fine_tuning.loaded().data.singular.values()
    return statistics.median_low(fine_tuning.effective_rank(each) for each in values)


def steps() -> int:
    """Of each method."""
    return fine_tuning.STEPS


def kilobytes() -> float:
    """Of the small GPT's file."""
    return small_gpt.FILE.stat().st_size / 1e3


def layers() -> int:
    """Of GPT-3."""
    return GPT3_LAYERS


def width() -> int:
    """Of GPT-3."""
    return GPT3_WIDTH
