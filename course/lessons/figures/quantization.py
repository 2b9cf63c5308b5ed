"""Few bits: a grid under weights, errors and perplexity over bits, factors after the split, and 8-bit states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.ticker import NullLocator
from torch import Tensor

from course.lessons.experiments.eight_bit_states import EVERY
from course.lessons.experiments.eight_bit_states import Measured as States
from course.lessons.experiments.four_bits import Measured
from course.lessons.experiments.two_factors import Measured as Factors
from course.lessons.figures.charts import COLOURS, HATCHES, MARKERS, Picture, picture
from course.lessons.figures.convergence import DASHES
from course.lessons.nf4 import NF4

MARKS = (*MARKERS, "v", "P", "X", "*", "<", ">")
TONES = (*COLOURS, "dimgrey", "black", "saddlebrown", "olive")


def weights_and_grid(weight: Tensor, grid: Tensor, *, title: str) -> Picture:
    """A histogram of the weights, and a line for each value that a code stands for.

    weight  of any shape
    grid    the values
    """
    figure = picture(title, 3.2)
    axes = figure.subplots()
    rim = float(weight.abs().max()) * 1.02
    heights, edges = torch.histogram(weight.flatten().float(), 120, range=(-rim, rim))
    axes.bar(edges[:-1].tolist(), heights.tolist(), 2 * rim / 120, align="edge", color=COLOURS[4], label="weights")
    axes.vlines(
        grid.tolist(), 0, float(heights.max()), color=COLOURS[5], lw=0.9 if len(grid) < 40 else 0.4, label="grid"
    )
    axes.set(xlabel="value", ylabel="weights in a bin", xlim=(-rim, rim))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def two_grids(*, title: str) -> Picture:
    """The values of a uniform grid of 4 bits and those of NF4, under the density of normal numbers."""
    figure = picture(title, 3.0)
    spread = 2.7  # standard deviations at the grids' ends: about the largest of a block of 64
    for axes, (name, values) in zip(
        figure.subplots(1, 2, sharey=True),
        {"15 evenly spaced values": [k / 7 for k in range(-7, 8)], "16 values of NF4": list(NF4)}.items(),
        strict=True,
    ):
        x = torch.linspace(-1.1, 1.1, 301)
        density = torch.exp(-((spread * x) ** 2) / 2)
        axes.fill_between(x.tolist(), density.tolist(), color=COLOURS[4], alpha=0.5)
        axes.vlines(values, 0, 1, color=COLOURS[5], lw=1.2)
        axes.set(xlabel="weight / largest of its block", title=name, yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def perplexity_over_bits(measured: Measured, *, title: str) -> Picture:
    """The small GPT's perplexity at each number of bits per weight, by scheme, down to the floor."""
    figure = picture(title, 4.2)
    axes = figure.subplots()
    for place, each in enumerate(measured.schemes):
        above = [math.exp(loss) - math.exp(measured.floor) for loss in each.gpt_loss]
        axes.plot(each.gpt_bits, above, label=each.name, zorder=3 if len(above) == 1 else 2, **_style(place))
    whole = math.exp(measured.loss) - math.exp(measured.floor)
    axes.axhline(whole, color="black", lw=1, ls=(0, (1, 2)), label="16 bits")
    axes.set(xlabel="bits per weight, all counted", ylabel="perplexity above the floor", yscale="log")
    axes.set_xlim(1.5, 9)
    _tidy(axes)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def error_over_bits(measured: Measured, *, title: str) -> Picture:
    """The relative error of each scheme at each number of bits per weight, one panel for each kind of weights."""
    figure = picture(title, 4.2)
    kinds = list(dict.fromkeys(curve.weights for each in measured.schemes for curve in each.curves))
    panels = figure.subplots(1, len(kinds), sharey=True)
    named = [each for each in measured.schemes if each.curves]
    for axes, kind in zip(panels, kinds, strict=True):
        for each in named:
            place = measured.schemes.index(each)
            for curve in (one for one in each.curves if one.weights == kind):
                shares = [100 * one for one in curve.error]
                axes.plot(curve.bits, shares, label=each.name, zorder=3 if len(shares) == 1 else 2, **_style(place))
        axes.set(xlabel="bits per weight", title=kind, yscale="log", xlim=(1.5, 9))
        _tidy(axes)
    panels[0].set_ylabel("error (% of the weights)")
    _plainly(panels[0].yaxis, [0.5, 1, 2, 5, 10, 20, 50, 100])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def factors(measured: Factors, basis: str, *, title: str) -> Picture:
    """The entries of trained weights before the split, and those of both factors after it."""
    figure = picture(title, 3.2)
    names = {"before": "weights, before", f"u, {basis}": f"u, {basis} basis", f"v, {basis}": f"v, {basis} basis"}
    panels = figure.subplots(1, 3, sharey=True)
    width = measured.edges[1] - measured.edges[0]
    for axes, (name, heading), colour, hatch in zip(panels, names.items(), COLOURS, HATCHES, strict=False):
        counts = measured.counts[name]
        share = [100 * each / sum(counts) for each in counts]
        axes.bar(measured.edges[:-1], share, width, align="edge", color=colour, hatch=hatch)
        axes.set(xlabel="entry (the weights' rms is 1)", title=heading)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of the entries (%)")
    return figure


def states(measured: States, *, title: str) -> Picture:
    """The loss over the steps for each way to keep Adam's moments; a line ends where the loss has left the picture."""
    figure = picture(title, 3.6)
    axes = figure.subplots()
    for place, run in enumerate(measured.runs):
        points = [(EVERY * k, loss) for k, loss in enumerate(run.losses) if loss is not None]
        axes.plot(*zip(*points, strict=True), label=run.name, markevery=(place, 5), **_style(place))
    axes.axhline(measured.floor, color="black", lw=1, ls=(0, (1, 2)), label="floor")
    axes.set(xlabel="step", ylabel="loss (nats per character)", yscale="log", ylim=(0.35, 8))
    _plainly(axes.yaxis, [0.4, 0.5, 0.7, 1, 2, 4, 8])
    _tidy(axes)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _style(place: int) -> dict[str, Any]:
    """Colour, line and marker of a scheme, the same in each figure."""
    line = DASHES[place % len(DASHES)]
    return {"color": TONES[place], "marker": MARKS[place], "ls": line, "ms": 5, "lw": 1.3}


def _plainly(axis: Any, ticks: Sequence[float]) -> None:
    """These ticks of a logarithmic axis, as people write them."""
    axis.set_ticks(ticks, labels=[f"{each:,g}" for each in ticks])
    axis.set_minor_locator(NullLocator())


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
