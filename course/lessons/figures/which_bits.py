"""Losses by recipe of mixed precision: what each thing that was taken away costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.figure import Figure

from course.lessons.experiments.which_bits import Measured
from course.lessons.figures.charts import COLOURS, LINES, MARKERS, picture

EXACT = "fp32"  # the recipe that all others are compared with
SMALL = 0.01  # nats


def costs_by_recipe(measured: Measured, groups: Mapping[str, Sequence[str]], *, title: str) -> Figure:
    """A line for each recipe, a point for each seed: its held-out loss minus that of fp32; beside it, the bytes.

    The axis is linear up to SMALL on both sides, and logarithmic beyond.

    groups  by name of the format: its recipes, from top to bottom; each group has a colour and a marker
    """
    names = [name for group in groups.values() for name in group]
    figure = picture(title, 1.5 + 0.29 * len(names))
    axes = figure.subplots()
    place = 0
    for (label, group), color, marker in zip(groups.items(), cycle(COLOURS), cycle(MARKERS), strict=False):
        for name in group:
            row = measured.row(name)
            costs = [
                math.nan if loss is None or exact is None else loss - exact
                for loss, exact in zip(row.losses, measured.row(EXACT).losses, strict=True)
            ]
            axes.plot(
                costs, [place] * len(costs), marker, color=color, markeredgecolor="white", markersize=8,
                label=label if name == group[0] else None,
            )  # fmt: skip
            axes.annotate(
                f"{row.state_bytes:.0f} bytes", (1.01, place), xycoords=("axes fraction", "data"), va="center"
            )
            place += 1
        axes.axhline(place - 0.5, color="0.85", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(place - 0.5, -0.5)
    axes.set_xscale("symlog", linthresh=SMALL)
    axes.set_xticks([-SMALL, 0, SMALL, 10 * SMALL, 1], [f"{-SMALL:g}", "0", f"{SMALL:g}", f"{10 * SMALL:g}", "1"])
    axes.set_xlim(-2 * SMALL, 4)
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_xlabel("held-out loss minus that of fp32 with the same seed (nats); on the right, states per parameter")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(groups), frameon=False)
    return figure


def loss_curves(measured: Measured, panels: Mapping[float, Sequence[str]], *, title: str) -> Figure:
    """A panel for each rate: the held-out loss of its recipes over the steps, mean of the seeds, and the floor.

    panels  by peak rate: recipes
    """
    figure = picture(title, 3.9)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
    for each, (peak, names) in zip(axes, panels.items(), strict=True):
        for name, color, line, marker in zip(names, COLOURS, cycle(LINES), cycle(MARKERS), strict=False):
            curve = [math.nan if loss is None else loss for loss in measured.row(name, peak).curve]
            each.plot(measured.at, curve, line, color=color, marker=marker, markersize=4, label=name)
        each.axhline(measured.least, color="black", linewidth=1, linestyle=(0, (1, 2)), label="perfect model")
        each.set(xlabel="step", title=f"peak rate {peak:g}")
        each.grid(alpha=0.3)
        each.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("held-out loss (nats)")
    axes[0].set_ylim(bottom=0)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(panels[min(panels)]) + 1,
        frameon=False, handlelength=4,
    )  # fmt: skip
    return figure
