"""Surfaces of two variables with their gradients: where optimizers race.

points (..., 2) --height--> (...)        points (..., 2) --gradient--> (..., 2)

All is float64, and every surface has its minimum at height 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from course.errors import BadArgument

STEEP = 100.0  # the ravine's curvature across it; along it the curvature is 1
HALF = math.sqrt(0.5)  # sine and cosine of the 45 degrees by which the ravine is turned
CENTRES = torch.tensor([[-1.5, 0.0], [1.0, 0.0]], dtype=torch.float64)  # of the wide and of the narrow minimum
CURVATURES = torch.tensor([1.0, 40.0], dtype=torch.float64)
SOFTNESS = 0.1  # of the seam between the two bowls; 0 would leave a kink


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A function of two variables, and how it is shown.

    height, gradient   points (..., 2) -> heights (...), and -> gradients (..., 2)
    view               left, right, bottom and top of the picture
    rate               a learning rate at which there is something to see
    """

    title: str
    formula: str
    height: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    start: tuple[float, float]
    view: tuple[float, float, float, float]
    rate: float

    def holds(self, x: float, y: float) -> bool:
        """Whether the point lies in the picture, or beside it by no more than the picture's size; False for nan."""
        left, right, bottom, top = self.view
        width, height = right - left, top - bottom
        return left - width <= x <= right + width and bottom - height <= y <= top + height


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Heights over a surface's picture: xs (w,), ys (h,), heights (h, w), float64."""

    xs: Tensor
    ys: Tensor
    heights: Tensor


def named(name: str) -> Surface:
    """The surface of this name. Raises BadArgument if there is none."""
    if name not in SURFACES:
        raise BadArgument(f"a surface must be one of {', '.join(SURFACES)}, got {name!r}")
    return SURFACES[name]


def grid(surface: str, across: int = 161) -> Grid:
    """The heights over the picture of a surface, `across` points to each side. Raises BadArgument as `named` does."""
    here = named(surface)
    left, right, bottom, top = here.view
    xs = torch.linspace(left, right, across, dtype=torch.float64)
    ys = torch.linspace(bottom, top, across, dtype=torch.float64)
    return Grid(xs=xs, ys=ys, heights=here.height(torch.stack(torch.meshgrid(xs, ys, indexing="xy"), -1)))


def _ravine(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    return (x**2 + STEEP * y**2) / 2


def _ravine_gradient(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    return torch.stack([x, STEEP * y], -1)


def _turn(p: Tensor) -> Tensor:
    """(x, y) -> (u, v), along and across the turned ravine; the same call goes back."""
    x, y = p.unbind(-1)
    return HALF * torch.stack([x + y, x - y], -1)


def _saddle(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    return x**2 / 2 + (y**2 - 1) ** 2 / 4


def _saddle_gradient(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    return torch.stack([x, y * (y**2 - 1)], -1)


def _bowls(p: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets from the two centres (..., 2, 2), and the heights of the two bowls (..., 2)."""
    offsets = p.unsqueeze(-2) - CENTRES
    return offsets, CURVATURES * offsets.square().sum(-1) / 2


def _two_minima(p: Tensor) -> Tensor:
    return -SOFTNESS * torch.logsumexp(-_bowls(p)[1] / SOFTNESS, -1)  # the lower bowl, with a smooth seam


def _two_minima_gradient(p: Tensor) -> Tensor:
    offsets, heights = _bowls(p)
    shares = torch.softmax(-heights / SOFTNESS, -1)
    return ((shares * CURVATURES).unsqueeze(-1) * offsets).sum(-2)


def _rosenbrock(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def _rosenbrock_gradient(p: Tensor) -> Tensor:
    x, y = p.unbind(-1)
    off = y - x**2
    return torch.stack([2 * (x - 1) - 400 * x * off, 200 * off], -1)


SURFACES: Mapping[str, Surface] = {
    "ravine": Surface(
        title="A ravine, 100 times more curved across than along: who gets along it?",
        formula="(x² + 100 y²) / 2",
        height=_ravine,
        gradient=_ravine_gradient,
        start=(-4.0, 0.8),
        view=(-5.0, 5.0, -1.25, 1.25),
        rate=0.01,
    ),
    "turned ravine": Surface(
        title="The same ravine along a diagonal: what does a rate for each coordinate bring now?",
        formula="(u² + 100 v²) / 2 with u = (x + y) / √2, v = (x − y) / √2",
        height=lambda p: _ravine(_turn(p)),
        gradient=lambda p: _turn(_ravine_gradient(_turn(p))),
        start=(HALF * -3.2, HALF * -4.8),
        view=(-4.5, 4.5, -4.5, 4.5),
        rate=0.01,
    ),
    "saddle": Surface(
        title="A saddle at (0, 0): who finds the way down where the gradient is almost 0?",
        formula="x² / 2 + (y² − 1)² / 4",
        height=_saddle,
        gradient=_saddle_gradient,
        start=(-1.5, 0.01),
        view=(-2.0, 2.0, -1.6, 1.6),
        rate=0.05,
    ),
    "two minima": Surface(
        title="A narrow minimum on the way to a wide one: whose steps stay in the narrow one?",
        formula="the lower of |p − (−1.5, 0)|² / 2 and 40 |p − (1, 0)|² / 2, with a smooth seam",
        height=_two_minima,
        gradient=_two_minima_gradient,
        start=(3.0, 0.25),
        view=(-3.5, 3.5, -2.0, 2.0),
        rate=0.02,
    ),
    "rosenbrock": Surface(
        title="Rosenbrock's bent valley: soon reached, and long on the way to its end at (1, 1)",
        formula="(1 − x)² + 100 (y − x²)²",
        height=_rosenbrock,
        gradient=_rosenbrock_gradient,
        start=(-1.2, 1.0),
        view=(-2.0, 2.0, -1.0, 3.0),
        rate=0.001,
    ),
}
