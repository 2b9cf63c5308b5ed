"""The running sum of a machine with two digits, beside the exact one."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from course.lessons.figures.charts import COLOURS, Picture, picture

FEW = 40  # of so many steps each has a marker


def sum_curve(kept: Sequence[Decimal], term: Decimal, *, title: str, stall: int | None) -> Picture:
    """The sum after each step, kept in two digits and exact.

    stall   the first step, from 1, that changed nothing; it gets a diamond
    """
    figure = picture(title, 3.0)
    axes = figure.subplots()
    steps = range(1, len(kept) + 1)
    marker = "o" if len(kept) <= FEW else ""
    axes.plot(steps, [float(step * term) for step in steps], "--", color=COLOURS[1], lw=2, label="exact sum")
    axes.plot(steps, [float(each) for each in kept], marker=marker, color=COLOURS[0], lw=2, label="kept: two digits")
    if stall is not None:
        label = f"term {stall:,} is the first that changes nothing"
        axes.plot([stall], [float(kept[stall - 1])], "D", color=COLOURS[5], markersize=8, label=label)
    axes.set(xlabel="terms added", ylabel="sum", ylim=(0, None))
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
