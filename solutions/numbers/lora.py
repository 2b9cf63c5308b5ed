"""Numbers that the prose of lesson 07 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import cast

import torch

from course.lessons.experiments import fine_tuning, small_gpt
from course.planner.published import GPT3_LAYERS, GPT3_WIDTH

GIVEN = {
    "1%": "how points are given",
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


def directions_of_noise() -> int:
    """The same of normal numbers, 64 x 64."""
    drawn = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    return fine_tuning.effective_rank(torch.linalg.svdvals(drawn).tolist())


def section_of_methods() -> int:
    """Where the methods are compared."""
    lines = Path(__file__).parents[1].joinpath("07_lora.py").read_text(encoding="utf-8").splitlines()
    (heading,) = (line for line in lines if line.startswith("# ## ") and line.endswith("What the numbers buy"))
    return int(heading.split()[2].removesuffix("."))


def cut_at_4() -> float:
    """Above the floor, full fine-tuning cut down to r = 4."""
    found = fine_tuning.loaded().data
    return found.cut[fine_tuning.CUT.index(4)] - found.least


def trained_at_4() -> float:
    """Above the floor, LoRA with r = 4."""
    found = fine_tuning.loaded().data
    (method,) = (each for each in found.methods if each.name == "LoRA, r = 4")
    return method.losses[-1] - found.least


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
