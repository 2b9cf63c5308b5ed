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
    "36": "18 million times 2 bytes",
    "18": "published, with its source beside it",
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


def fewest() -> int:
    """The same, in the matrix that needs fewest."""
    return min(map(fine_tuning.effective_rank, fine_tuning.loaded().data.singular.values()))


def most() -> int:
    """The same, in the matrix that needs most."""
    return max(map(fine_tuning.effective_rank, fine_tuning.loaded().data.singular.values()))


def middle_of_noise() -> float:
    """The 32nd singular value of normal numbers, 64 x 64, beside the first."""
    values = torch.linalg.svdvals(torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    return float(values[31] / values[0])


def middle_of_changes() -> float:
    """The same in the median change of a square matrix."""
    found = fine_tuning.loaded().data.singular
    return statistics.median(values[31] / values[0] for name, values in found.items() if ".attention." in name)


def squares_at_4() -> float:
    """The share of the squares in four directions, in the median matrix."""
    values = fine_tuning.loaded().data.singular.values()
    return statistics.median(sum(v**2 for v in each[:4]) / sum(v**2 for v in each) for each in values)


def gained_at_4() -> float:
    """The share of what all changes take off the loss that those of r = 4 do."""
    cut = fine_tuning.loaded().data.cut
    return (cut[0] - cut[fine_tuning.CUT.index(4)]) / (cut[0] - cut[-1])


def directions_of_noise() -> int:
    """The same of normal numbers, 64 x 64."""
    drawn = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    return fine_tuning.effective_rank(torch.linalg.svdvals(drawn).tolist())


def southern_floor() -> float:
    """Of southern text."""
    return fine_tuning.loaded().data.least


def untuned() -> float:
    """The loss of the small GPT on southern text."""
    return fine_tuning.loaded().data.before


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
    return _method("LoRA, r = 4").losses[-1] - fine_tuning.loaded().data.least


def full_above() -> float:
    """Above the floor, full fine-tuning."""
    return _method("full").losses[-1] - fine_tuning.loaded().data.least


def spread_of_best() -> float:
    """Between the final losses of full fine-tuning and the two largest r."""
    losses = [_method(name).losses[-1] for name in ("full", "LoRA, r = 8", "LoRA, r = 16")]
    return max(losses) - min(losses)


def rate_of(name: str) -> float:
    """The best rate of a method."""
    return _method(name).rate


def _method(name: str) -> fine_tuning.Method:
    (found,) = (each for each in fine_tuning.loaded().data.methods if each.name == name)
    return found


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
