"""A weight over many small updates: what each way of rounding makes of them."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from course.lessons.figures.charts import COLOURS, LINES, MARKERS, picture


def weight_curves(exact: Tensor, nearest: Tensor, drawn: Tensor, *, title: str) -> Figure:
    """The weight over the number of updates.

    exact    (updates + 1,), without rounding
    nearest  (updates + 1,), each sum rounded to nearest
    drawn    (updates + 1, runs), each sum rounded stochastically, with draws of its own in each run
    """
    figure = picture(title, 3.8)
    axes = figure.subplots()
    every = max(1, len(exact) // 10)
    for run, curve in enumerate(drawn.T):
        label = f"stochastic rounding, {drawn.shape[1]} runs" if run == 0 else None
        (line,) = axes.plot(curve, LINES[0], color=COLOURS[0], linewidth=1, alpha=0.75, label=label)
        line.set(marker=MARKERS[0], markersize=3, markevery=(run * every // drawn.shape[1], every))
    axes.plot(exact, LINES[1], color="black", linewidth=1.8, label="no rounding")
    axes.plot(nearest, LINES[3], color=COLOURS[5], linewidth=2.5, label="rounding to nearest")
    axes.set_xlabel("updates made")
    axes.set_ylabel("weight")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, handlelength=4)
    return figure
