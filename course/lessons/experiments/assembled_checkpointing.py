"""A GPT trained within a budget of memory, put together from a checkpoint, a plan of segments and tiled attention.

blocks --measured--> bytes_, cost --plan within the budget--> segments --trained under memory_limit--> Outcome

Variants take one part away at a time: without a checkpoint everything is kept; without `best_cuts` all blocks are
checkpointed in equal segments; without tiles, attention is three operations that keep the probabilities of all pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from course.lessons import grammar
from course.lessons.experiments.assembled import Parts
from course.lessons.experiments.attention_bytes import Attention, explicit, in_tiles
from course.lessons.experiments.planned import (
    Batch,
    Segments,
    backward,
    in_segments,
    in_units,
    live_bytes,
    measured,
    torchs,
)
from course.lessons.models import GPT, CausalSelfAttention, GPTConfig
from course.meter import OverBudget, memory_limit, metered

CONFIG = GPTConfig(vocabulary=len(grammar.ALPHABET), context=256, width=64, heads=4, layers=8)
BATCH, TILE, RATE, STEPS = 2, 64, 0.1, 3
BUDGET = 9 * 2**20  # bytes that a training step may have live
UNIT = 2**16  # bytes: plans are made in these
WORK = 2**20  # bytes: left free by every plan, for what backward needs beside what is kept
VARIANTS: dict[str, frozenset[str]] = {  # what each is without
    "all three": frozenset(),
    "without checkpoint": frozenset({"checkpoint"}),
    "without best_cuts": frozenset({"best_cuts"}),
    "without tiles": frozenset({"tiles"}),
    "plain": frozenset({"checkpoint", "best_cuts", "tiles"}),
}


def attention_tiled(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """torch's fused attention on a CPU, which picks its own tiles; lse (batch, heads, time)."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out, lse


def attention_tiled_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Its backward: (dq, dk, dv)."""
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return cast(tuple[Tensor, Tensor, Tensor], back(dout, q, k, v, out, lse, 0.0, causal))


def equal_segments(bytes_: list[tuple[int, int]], cost: list[int], budget: int) -> Segments:
    """All blocks in segments of one length, the first that fits: it runs every block again, whatever that costs.

    Raises ValueError where no length fits.
    """
    n = len(bytes_)
    for length in range(1, n + 1):
        segments = in_segments(n, length)
        if max(live_bytes(bytes_, segments)) <= budget:
            return segments
    raise ValueError(f"no equal segments have at most {budget} live")


PARTS = Parts(
    torchs={
        "checkpoint": torchs,
        "best_cuts": equal_segments,  # torch has no such planner
        "attention_tiled": attention_tiled,
        "attention_tiled_backward": attention_tiled_backward,
    },
    names=("checkpoint", "best_cuts", "attention_tiled", "attention_tiled_backward"),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What training came to.

    peak     most live bytes of a step that nobody stops; None where no plan fits
    again    blocks that backward runs again
    seconds  of a step, the fastest, without the meter
    losses   of each step, in nats
    stopped  what stopped a step under the budget; "" where it fits
    """

    peak: int | None
    again: int
    seconds: float
    losses: list[float]
    stopped: str


def table(parts: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    """Line by line, as they come: each variant under the budget."""
    yield f"{'':18}  fits  peak, MiB  blocks again  s per step  losses, nats"
    for variant in VARIANTS:
        found = outcome(variant, parts)
        if found.peak is None:
            yield f"{variant:18}  no    {found.stopped}"
            continue
        fits, losses = "no" if found.stopped else "yes", "  ".join(f"{loss:.6f}" for loss in found.losses)
        costs = f"{found.peak / 2**20:9.1f}  {found.again:12}  {found.seconds:10.3f}"
        yield f"{variant:18}  {fits:4}  {costs}  {losses}"
        if found.stopped:
            yield f"{'':18}  stopped: {found.stopped}"


def outcome(variant: str, parts: Mapping[str, Callable[..., Any]], budget: int = BUDGET, steps: int = STEPS) -> Outcome:
    """Trains the variant under the budget; where it is stopped, it trains on without a limit, to be compared."""
    model, batches = problem(parts, variant, steps)
    try:
        segments = planned(model, batches[0], parts, variant, budget)
    except ValueError as error:
        return Outcome(peak=None, again=0, seconds=0.0, losses=[], stopped=str(error))
    stopped = ""
    try:
        with memory_limit(budget):
            backward(model, batches[0], segments, parts["checkpoint"])
    except OverBudget as error:
        stopped = str(error)
    model.zero_grad()
    with metered() as run:
        backward(model, batches[0], segments, parts["checkpoint"])
    losses, seconds = _trained(model, batches, segments, parts)
    again = sum(end - start for start, end in segments)
    peak = run.peak.live if run.peak else 0
    return Outcome(peak=peak, again=again, seconds=seconds, losses=losses, stopped=stopped)


def problem(
    parts: Mapping[str, Callable[..., Any]], variant: str, steps: int, seed: int = 0
) -> tuple[GPT, list[Batch]]:
    """The same weights and batches for every variant; attention in tiles or in three operations."""
    rng = torch.Generator().manual_seed(seed)
    model = GPT(CONFIG, rng)
    mix = partial(explicit, causal=True) if "tiles" in VARIANTS[variant] else tiled(parts)
    for block in model.blocks:
        attention = MixedBy(CONFIG, mix)
        attention.load_state_dict(cast(Any, block).attention.state_dict())
        cast(Any, block).attention = attention
    tokens = grammar.encode(grammar.text(grammar.NORTH, 20_000, rng))
    return model, [grammar.batch(tokens, BATCH, CONFIG.context, rng) for _ in range(steps)]


class MixedBy(CausalSelfAttention):
    """Attention whose inner part is a function of q, k and v."""

    def __init__(self, config: GPTConfig, mix: Attention) -> None:
        super().__init__(config)
        self.mix = mix

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) to the same shape."""
        q, k, v = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        output: Tensor = self.out_proj(self.mix(q, k, v).transpose(1, 2).flatten(2))
        return output


def tiled(parts: Mapping[str, Callable[..., Any]]) -> Attention:
    """Both halves of tiled attention as one operation of autograd's."""
    return in_tiles(parts["attention_tiled"], parts["attention_tiled_backward"], TILE, causal=True)


def planned(model: GPT, batch: Batch, parts: Mapping[str, Callable[..., Any]], variant: str, budget: int) -> Segments:
    """The segments of a variant. Raises ValueError where no plan fits."""
    if "checkpoint" in VARIANTS[variant]:
        return []
    plan = equal_segments if "best_cuts" in VARIANTS[variant] else parts["best_cuts"]
    bytes_, cost, rest = measured(model, batch)
    model.zero_grad()
    return cast(Segments, plan(in_units(bytes_, UNIT), cost, (budget - max(rest, 0) - WORK) // UNIT))


def _trained(
    model: GPT, batches: list[Batch], segments: Segments, parts: Mapping[str, Callable[..., Any]]
) -> tuple[list[float], float]:
    """The losses of plain gradient descent, and the seconds of the fastest step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, seconds = [], []
    for batch in batches:
        optimizer.zero_grad()
        start = time.perf_counter()
        losses.append(backward(model, batch, segments, parts["checkpoint"]).item())
        seconds.append(time.perf_counter() - start)
        optimizer.step()
    return losses, min(seconds)
