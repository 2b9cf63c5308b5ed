"""A search for hyperparameters: its trials, and how soon it finds low losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course.lessons.figures.charts import COLOURS, LINES, MARKERS, picture
from course.lessons.figures.scales import in_full

FEW_TICKS = 100  # an axis whose ends differ by a greater factor has powers of ten alone


def trials_by_value(values: Mapping[str, Sequence[float]], losses: Sequence[float], *, title: str) -> Figure:
    """A panel for each hyperparameter: the loss of each trial against its value, both logarithmic.

    values  by name with its unit: one for each trial; the later a trial, the darker its point; the best has a ring
    losses  held-out, in nats
    """
    figure = picture(title, 3.4)
    panels = figure.subplots(1, len(values), sharey=True, squeeze=False).ravel()
    least = min(range(len(losses)), key=losses.__getitem__)
    for axes, (name, places) in zip(panels, values.items(), strict=True):
        axes.scatter(places, losses, c=range(len(losses)), cmap="Blues", vmin=-len(losses) / 2, edgecolor="black", s=28)
        axes.plot(places[least], losses[least], "o", markersize=12, markerfacecolor="none", color=COLOURS[5])
        axes.set(xscale="log", yscale="log", xlabel=name)
        in_full(axes.xaxis, subs=(1,) if max(places) / min(places) > FEW_TICKS else (1, 3))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    in_full(panels[0].yaxis)
    panels[0].set_ylabel("held-out loss (nats)")
    return figure


def best_so_far(curves: Mapping[str, Sequence[Sequence[float]]], *, title: str) -> Figure:
    """The least loss among the first trials: a line for the median study of each sampler, a band for the middle half.

    curves  by sampler, for each study: the least loss so far in nats, for each number of trials from 1 on
    """
    figure = picture(title, 3.4)
    axes = figure.subplots()
    styles = zip(curves.items(), cycle(COLOURS), cycle(LINES), cycle(MARKERS), strict=False)
    for (name, studies), color, line, marker in styles:
        columns = [sorted(column) for column in zip(*studies, strict=True)]
        low, middle, high = ([column[share * (len(column) - 1) // 4] for column in columns] for share in (1, 2, 3))
        trials = range(1, len(columns) + 1)
        axes.plot(trials, middle, line, color=color, marker=marker, markersize=4, label=f"{name}, median study")
        axes.fill_between(trials, low, high, color=color, alpha=0.15, label=f"{name}, middle half of the studies")
    axes.set(yscale="log", xlabel="trials", ylabel="least held-out loss so far (nats)")
    in_full(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
