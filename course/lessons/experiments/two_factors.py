"""Where the entries of a vector go when it is split into two factors, and how fast, by basis.

vector, basis --kashin_split, 0 to 40 steps--> residual, largest entries
rows of a trained matrix --split--> histograms of w, u and v

The split is an exercise, so that who measures hands it in: see `four_bits`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from course.lessons.experiments import recording
from course.lessons.experiments.four_bits import rotation, weights

NAME = "two_factors"
LENGTH, STEPS = 64, 40
BINS, REACH = 80, 4.0  # of a histogram, and how far it goes
Split = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Course:
    """One vector in one basis: |x - u - Q v| / |x| after each number of steps, 0 first.

    largest  of x, u and v after the last step, where |x| / sqrt(n) is 1
    """

    basis: str
    vector: str
    residual: list[float]
    largest: list[float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`counts`: entries of a trained matrix, and of its factors, between two `edges`, where its rms is 1."""

    splits: list[Course]
    edges: list[float]
    counts: dict[str, list[int]]


def hadamard(n: int) -> Tensor:
    """Sylvester's, n a power of two, with rows of length 1."""
    found = torch.ones(1, 1)
    while len(found) < n:
        found = torch.cat([torch.cat([found, found], 1), torch.cat([found, -found], 1)])
    return found / math.sqrt(n)


def dct(n: int) -> Tensor:
    """The columns are cosines (DCT-II, orthonormal)."""
    at = torch.arange(n)
    waves = torch.cos(math.pi / n * (at[:, None] + 0.5) * at) * math.sqrt(2 / n)
    waves[:, 0] = 1 / math.sqrt(n)
    return waves


def bases(n: int = LENGTH) -> dict[str, Tensor]:
    """By name."""
    return {"random": rotation(n), "Hadamard": hadamard(n), "DCT": dct(n), "identity": torch.eye(n)}


def vectors(n: int = LENGTH) -> dict[str, Tensor]:
    """Normal numbers, one number alone, and a row of a trained matrix."""
    dense = torch.randn(n, generator=torch.Generator().manual_seed(1))
    one = torch.zeros(n)
    one[5] = 1.0
    return {"dense": dense, "one-hot": one, "trained": weights()["trained"][0, :n].clone()}


def course(split: Split, x: Tensor, q: Tensor) -> tuple[list[float], list[float]]:
    """Residual after each number of steps, and the largest entries at the end."""
    x, q = x.double(), q.double()
    residuals = []
    for steps in range(STEPS + 1):
        u, v = split(x, q, steps)
        residuals.append(float(f"{float((x - u - q @ v).norm() / x.norm()):.4g}"))
    unit = x.norm() / math.sqrt(len(x))
    return residuals, [round(float(each.abs().max() / unit), 3) for each in (x, u, v)]


def measure(split: Split) -> Measured:
    """Everything. About a second."""
    splits = []
    for basis, q in bases().items():
        for vector, x in vectors().items():
            residual, largest = course(split, x, q)
            splits.append(Course(basis=basis, vector=vector, residual=residual, largest=largest))
    edges = torch.linspace(-REACH, REACH, BINS + 1)
    w = weights()["trained"]
    w = w / w.square().mean().sqrt()
    found = {"before": w}
    for basis, q in bases(w.shape[1]).items():
        if basis != "identity":
            u, v = split(w, q, STEPS)
            found |= {f"u, {basis}": u, f"v, {basis}": v}
    counts = {name: [int(each) for each in torch.histogram(x, edges).hist] for name, x in found.items()}
    return Measured(splits=splits, edges=[round(float(each), 4) for each in edges], counts=counts)


def loaded() -> recording.Recording[Measured]:
    """What was recorded."""
    return recording.load(NAME, Measured)


def table(measured: Measured) -> str:
    """A line for each basis and vector: residual after some steps, and the largest entries."""
    lines = [f"{'basis':9} {'vector':8}  5 steps  10 steps  20 steps  40 steps  largest of x, u, v"]
    for each in measured.splits:
        left = "  ".join(f"{each.residual[k]:8.2g}" for k in (5, 10, 20, 40))
        lines.append(f"{each.basis:9} {each.vector:8} {left}  {', '.join(f'{size:.2f}' for size in each.largest)}")
    return "\n".join(lines)


if __name__ == "__main__":
    given = importlib.import_module("course.reference.quantization.kashin_split").kashin_split
    print(recording.record(NAME, lambda: measure(given)))
    print(table(loaded().data))
