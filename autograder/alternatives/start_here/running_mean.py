"""Other right ways to write `running_mean`."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from autograder.bank import Alternative


def sums_each_slice(xs: list[float]) -> list[float]:
    """Every mean from scratch: quadratic, and right."""
    return [sum(xs[:count]) / count for count in range(1, len(xs) + 1)]


def moves_the_mean(xs: list[float]) -> list[float]:
    """Each number moves the mean by its share (Welford's update), and no sum is kept."""
    means: list[float] = []
    mean = 0.0
    for count, x in enumerate(xs, start=1):
        mean += (x - mean) / count
        means.append(mean)
    return means


def numpy_floats(xs: list[float]) -> list[Any]:
    """A list of numpy's numbers in place of Python's."""
    return list(np.cumsum(xs) / np.arange(1, len(xs) + 1))


def torch_default_dtype(xs: list[float]) -> list[float]:
    """Computes in float32, torch's default."""
    return [float(mean) for mean in torch.tensor(xs).cumsum(0) / torch.arange(1, len(xs) + 1)]


def fractions(xs: list[float]) -> tuple[Fraction, ...]:
    """Exact fractions in a tuple."""
    return tuple(total / count for count, total in enumerate(accumulate(map(Fraction, xs)), start=1))


ALTERNATIVES = (
    Alternative(name="sums_each_slice", answer=sums_each_slice),
    Alternative(name="moves_the_mean", answer=moves_the_mean),
    Alternative(name="numpy_floats", answer=numpy_floats),
    Alternative(name="torch_default_dtype", answer=torch_default_dtype),
    Alternative(name="fractions", answer=fractions),
)
