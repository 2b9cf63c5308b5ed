"""Gradients under the range of a format, and losses with and without a loss scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Protocol

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from course.lessons.figures.charts import COLOURS, LINES, Picture, picture

LEFT, RIGHT = -52, 26  # powers of two that are shown
SMOOTH = 10  # steps over which a curve of losses is averaged


class Limits(Protocol):
    """Magnitudes: rounded to 0 up to `lost`, with all bits from `normal` on, inf from `overflow` on."""

    @property
    def lost(self) -> float: ...
    @property
    def normal(self) -> float: ...
    @property
    def overflow(self) -> float: ...


class Run(Protocol):
    """A training: the loss, log2 of the scale and whether the step was taken, for each step."""

    @property
    def losses(self) -> Sequence[float]: ...
    @property
    def scales(self) -> Sequence[float]: ...
    @property
    def taken(self) -> Sequence[bool]: ...


def gradient_histogram(sizes: Tensor, scale: float, limits: Limits, *, title: str) -> Picture:
    """How many gradients have which size, in powers of two, and the bands in which a format loses bits of them.

    sizes  (n,), magnitudes above 0, without the scale
    """
    figure = picture(title, 3.5)
    axes = figure.subplots()
    logs = (sizes * scale).log2().clamp(LEFT, RIGHT - 0.5).float()
    counts = torch.histc(logs, bins=RIGHT - LEFT, min=LEFT, max=RIGHT)
    percents = (100 * counts / len(sizes)).tolist()
    axes.bar(range(LEFT, RIGHT), percents, width=0.9, align="edge", color=COLOURS[0], zorder=3)
    bands = {
        "rounded to 0": (-math.inf, limits.lost, COLOURS[5], "xx"),
        "subnormal:\nfewer bits": (limits.lost, limits.normal, COLOURS[1], "//"),
        "overflow:\ninf": (limits.overflow, math.inf, COLOURS[3], ".."),
    }
    top = axes.get_ylim()[1] * 1.25
    for words, (first, last, colour, hatch) in bands.items():
        low = max(LEFT, math.log2(first)) if first > 0 else LEFT
        high = min(RIGHT, math.log2(last)) if last < math.inf else RIGHT
        if low < high:
            axes.axvspan(low, high, facecolor=colour, alpha=0.18, hatch=hatch, edgecolor=colour, linewidth=0)
            axes.text((low + high) / 2, 0.97 * top, words, ha="center", va="top", fontsize=9, zorder=4)
    axes.set(xlim=(LEFT, RIGHT), ylim=(0, top), ylabel="share of the gradients (%)")
    axes.set_xlabel("size of the gradient times the scale")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda power, _: f"$2^{{{power:.0f}}}$"))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def loss_and_scale(runs: Mapping[str, Run], *, title: str) -> Picture:
    """Losses of all runs, averaged over some steps; and the scale of the last one, with a cross where it skipped."""
    figure = picture(title, 3.6)
    left, right = figure.subplots(1, 2)
    for (name, run), colour, line in zip(runs.items(), cycle(COLOURS), cycle(LINES), strict=False):
        losses = torch.tensor(run.losses).unfold(0, SMOOTH, 1).mean(1)
        left.plot(range(SMOOTH, len(run.losses) + 1), losses, line, color=colour, linewidth=1.6, label=name)
    left.set_yscale("log")
    left.set_ylabel(f"loss (nats, mean of {SMOOTH} steps)")
    left.legend(frameon=False)
    _scales(right, list(runs.values())[-1])
    for axes in (left, right):
        axes.set_xlabel("step (from 1)")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _scales(axes: Axes, run: Run) -> None:
    steps = range(1, len(run.scales) + 1)
    axes.step(steps, run.scales, where="post", color=COLOURS[2], linewidth=1.6, label="scale")
    skipped = [step for step in steps if not run.taken[step - 1]]
    at = [run.scales[step - 1] for step in skipped]
    axes.plot(skipped, at, "x", color=COLOURS[5], markersize=7, markeredgewidth=2, label="skipped step")
    axes.set_ylabel("loss scale")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"$2^{{{power:.0f}}}$"))
    axes.legend(frameon=False)
