"""Errors of sums over the number of terms, beside their bounds. Plain data in, a figure out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from matplotlib.figure import Figure

from course.lessons.experiments.sums import Errors
from course.lessons.figures.charts import COLOURS, LINES, MARKERS, picture


def sum_errors(formats: Mapping[str, Errors], *, title: str) -> Figure:
    """A panel for each format: measured errors with markers, bounds without, both axes logarithmic."""
    figure = picture(title, 4.4)
    panels = figure.subplots(1, len(formats), sharey=True, squeeze=False).ravel()
    for axes, (name, found) in zip(panels, formats.items(), strict=True):
        for method, color, marker, line in zip(found.errors, COLOURS, MARKERS, cycle(LINES), strict=False):
            measured = [error or float("nan") for error in found.errors[method]]
            axes.loglog(found.counts, measured, marker, color=color, linestyle="none", label=f"{method}, measured")
            axes.loglog(found.counts, found.bounds[method], color=color, linestyle=line, label=f"{method}, bound")
        axes.set_title(f"{name}: u = {found.u:.2g}", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("numbers added, n")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("largest error over sum |x|")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=max(len(handles) // 2, 1), frameon=False, fontsize=9
    )
    return figure
