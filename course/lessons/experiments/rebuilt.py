"""What reversible blocks rebuild of their input after many blocks, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

DEPTHS, WIDTH, ROWS = (1, 4, 16, 64), 64, 8
DTYPES = (torch.float32, torch.bfloat16)


def error(backward: Callable[..., Any], dtype: torch.dtype, depth: int) -> float:
    """The largest difference between an input, normal numbers, and what `backward` rebuilds of it from the output.

    backward  (block, y, dy) -> (x, dx), as in the exercise. f and g are a layer norm and a linear layer.
    """
    rng = torch.Generator().manual_seed(0)
    blocks = [SimpleNamespace(f=_part(dtype, rng), g=_part(dtype, rng)) for _ in range(depth)]
    x1, x2 = y1, y2 = (torch.randn(2, ROWS, WIDTH, generator=rng)).to(dtype).unbind()
    with torch.no_grad():
        for block in blocks:
            y1 = y1 + block.f(y2)
            y2 = y2 + block.g(y1)
    y, dy = (y1, y2), (torch.zeros_like(y1), torch.zeros_like(y2))
    for block in reversed(blocks):
        y, dy = backward(block, y, dy)
    return max(float((found - given).abs().max()) for found, given in zip(y, (x1, x2), strict=True))


def _part(dtype: torch.dtype, rng: torch.Generator) -> nn.Module:
    """Whatever comes in, what comes out is about as large as a normal number: the sums grow slowly."""
    linear = nn.Linear(WIDTH, WIDTH, bias=False)
    weight: Tensor = torch.randn(WIDTH, WIDTH, generator=rng) / WIDTH**0.5
    linear.weight = nn.Parameter(weight)
    return nn.Sequential(nn.LayerNorm(WIDTH), linear).to(dtype)


def table(backward: Callable[..., Any]) -> str:
    """A line for each depth, a column for each dtype."""
    lines = [f"{'blocks':>6}" + "".join(f"{str(dtype).removeprefix('torch.'):>12}" for dtype in DTYPES)]
    for depth in DEPTHS:
        lines.append(f"{depth:6}" + "".join(f"{error(backward, dtype, depth):12.1e}" for dtype in DTYPES))
    return "\n".join(lines)
