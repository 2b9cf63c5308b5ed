"""Attention in tiles: one row of scores as tiles come, and bytes against the length of the sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from course.lessons.experiments.attention_bytes import EXPLICIT, FUSED, TILED, Cost
from course.lessons.figures.charts import COLOURS, Picture, picture

STYLES = {EXPLICIT: ("o", COLOURS[0]), TILED: ("s", COLOURS[1]), FUSED: ("x", COLOURS[2])}


def online_row(scores: Sequence[float], block: int) -> Picture:
    """After each tile: exp(score - largest so far) of every key seen, with the largest and the sum."""
    ends = range(block, len(scores) + 1, block)
    figure = picture("When a tile raises the largest score, all earlier terms weigh less", 2.8)
    for tile, (end, axes) in enumerate(zip(ends, figure.subplots(1, len(ends), sharey=True), strict=True), 1):
        seen = scores[:end]
        terms = [math.exp(score - max(seen)) for score in seen]
        old = end - block
        axes.bar(range(old), terms[:old], color=COLOURS[0], label="earlier")
        axes.bar(range(old, end), terms[old:], color=COLOURS[1], hatch="//", label="this tile")
        axes.set(xlim=(-0.6, len(scores) - 0.4), xlabel="key", xticks=range(len(scores)), ylim=(0, 1.5))
        axes.text(0, 1.45, f"tile {tile}\nlargest {max(seen):g}\nsum {sum(terms):.3f}", va="top")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("exp(score − largest so far)")
    figure.axes[1].legend(frameon=False, loc="center right")
    return figure


def attention_bytes(costs: Sequence[Cost]) -> Picture:
    """Bytes kept for backward, and those of the largest tensor, on logarithmic axes."""
    figure = picture("The explicit softmax grows with T², tiles with T or not at all", 3.4)
    for axes, name in zip(figure.subplots(1, 2, sharey=True), ("kept", "largest"), strict=True):
        for way, (marker, colour) in STYLES.items():
            rows = [each for each in costs if each.way == way]
            if rows:
                sizes = [getattr(each, name) / 2**20 for each in rows]
                axes.plot([each.length for each in rows], sizes, marker=marker, color=colour, lw=2, label=way)
        lengths = sorted({each.length for each in costs})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set(xlabel="T, queries and keys")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    left, right = figure.axes
    left.set(title="kept for backward, without q, k and v", ylabel="MiB")
    right.set(title="largest tensor that torch's operations made")
    left.legend(frameon=False)
    return figure
