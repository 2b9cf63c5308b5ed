"""What attention keeps for backward, and its largest tensor, against the length of the sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course.meter import metered

LENGTHS = (256, 512, 1024, 2048)
WIDTH, BLOCK = 8, 256
EXPLICIT, TILED, FUSED = "explicit softmax", "in tiles", "torch's fused kernel"

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one way at one length, in bytes: what forward leaves, besides q, k and v, and the largest tensor made."""

    way: str
    length: int
    kept: int
    largest: int


def explicit(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """The formula in three operations, with all scores at once: autograd keeps a probability for every pair."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


def in_tiles(half: Callable[..., Any], other: Callable[..., Any], block: int, causal: bool) -> Attention:
    """The functions of the two exercises, forward and backward, as one operation of autograd's."""

    class Tiles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            result, logs = half(q, k, v, block, causal)
            ctx.save_for_backward(q, k, v, result, logs)
            return cast(Tensor, result)

        @staticmethod
        def backward(ctx: Any, dout: Tensor) -> Any:
            return other(*ctx.saved_tensors, dout, block, causal)

    return cast(Attention, Tiles.apply)


def cost(way: str, attention: Attention, length: int) -> Cost:
    """Forward and backward of one head."""
    drawn = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(1, 1, length, WIDTH, generator=drawn).requires_grad_() for _ in range(3))
    with metered() as run:
        out = attention(q, k, v)
        kept = run.kept()
        out.backward(torch.ones_like(out))  # type: ignore[no-untyped-call]
    return Cost(way=way, length=length, kept=kept, largest=run.largest.bytes if run.largest else 0)


def measured(halves: tuple[Callable[..., Any], Callable[..., Any]] | None = None) -> list[Cost]:
    """All ways and lengths. `halves` are forward and backward in tiles; without them only torch's two are measured."""
    ways: dict[str, Attention] = {EXPLICIT: explicit, FUSED: scaled_dot_product_attention}
    if halves:
        ways[TILED] = in_tiles(*halves, block=BLOCK, causal=False)
    return [cost(way, attention, length) for way, attention in ways.items() for length in LENGTHS]
