"""Learning rates over the steps of training: a curve for each schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course.lessons.figures.charts import COLOURS, LINES, MARKERS, picture

SIGNS = (*MARKERS, "v", "P")  # six, so that no two of six curves share line and sign


def schedule_curves(
    rates: Mapping[str, Sequence[float]], *, title: str, marks: Mapping[str, int] | None = None
) -> Figure:
    """The learning rate over the step, a curve for each schedule.

    rates   by name of the schedule: the rate of each step; the first step is 0
    marks   steps that deserve a line, by what happens there, such as {"warm-up ends": 100}
    """
    figure = picture(title, 3.8)
    axes = figure.subplots()
    styles = zip(rates.items(), cycle(COLOURS), cycle(LINES), cycle(SIGNS), strict=False)
    for place, ((name, curve), colour, line, sign) in enumerate(styles):
        every = max(1, len(curve) // 8)
        (drawn,) = axes.plot(range(len(curve)), curve, line, color=colour, linewidth=1.8, label=name)
        drawn.set(marker=sign, markersize=6, markevery=(place * every // len(rates), every))  # not all at one step
    top = max((max(curve) for curve in rates.values()), default=1.0)
    for words, step in (marks or {}).items():
        axes.axvline(step, color="0.4", linewidth=1, linestyle=":")
        axes.text(step, 1.09 * top, f" {words}", fontsize=9, verticalalignment="top")
    axes.set_ylim(0, 1.1 * top)
    axes.set_xlabel("step (from 0)")
    axes.set_ylabel("learning rate")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, handlelength=4)
    return figure
