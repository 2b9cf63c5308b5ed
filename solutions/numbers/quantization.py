"""Numbers that the prose of lesson 08 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from course.lessons import grammar
from course.lessons.experiments import four_bits, small_gpt

GIVEN = {
    "16": "bits of a half-precision number, or the number of values that 4 bits have",
    "255": "codes from -127 to 127, or the largest byte",
    "256": "codes of 8 bits",
    "63": "64 less 1",
    "500": "a factor in the table above it",
    "2.13": "a version",
    "0.1%": "offered to choose from",
    "1%": "the same",
    "10%": "the same",
    "0.4": "chosen for an example",
}


def thousands() -> float:
    """Parameters of the small GPT."""
    return small_gpt.CONFIG.parameters / 1e3


def characters() -> int:
    """Of the grammar's alphabet."""
    return len(grammar.ALPHABET)


def perplexity() -> float:
    """Of the small GPT, on the recording's text."""
    return math.exp(four_bits.loaded().data.loss)


def floor() -> float:
    """The least perplexity on the same text."""
    return math.exp(four_bits.loaded().data.floor)


def largest_normal(count: int) -> float:
    """The median of the largest magnitude among so many normal numbers."""
    return float(torch.special.ndtri(torch.tensor((1 + 0.5 ** (1 / count)) / 2, dtype=torch.float64)))


def section_of(words: str) -> int:
    """The number of the section with this heading."""
    lines = Path(__file__).parents[1].joinpath("08_quantization.py").read_text(encoding="utf-8").splitlines()
    (heading,) = (line for line in lines if line.startswith("# ## ") and line.endswith(words))
    return int(heading.split()[2].removesuffix("."))


def error(scheme: str, weights: str, bits: float = 4) -> float:
    """The recorded error of the scheme nearest to so many bits, of these weights."""
    (found,) = (each for each in four_bits.loaded().data.schemes if each.name == scheme)
    (curve,) = (each for each in found.curves if each.weights == weights)
    place = min(range(len(curve.bits)), key=lambda k: abs(curve.bits[k] - bits))
    return curve.error[place]
