"""Memory and time of a training step over the length of the segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from course.lessons.experiments.segments import CONFIG, Peaks
from course.lessons.figures.charts import COLOURS, LINES, MARKERS, Picture, picture

MIB = 2**20


def memory_and_time(found: Peaks, seconds: Mapping[int, float], *, title: str) -> Picture:
    """Left the measured peak of each length beside a (n/s + k s) and its minimum; right the seconds of a step."""
    figure = picture(title, 3.9)
    left, right = figure.subplots(1, 2)
    _memory(left, found)
    right.plot([*seconds], [*seconds.values()], LINES[0], color=COLOURS[2], marker=MARKERS[2], label="measured now")
    right.set_ylabel("time of a step (s)")
    right.set_ylim(0, 1.3 * max(seconds.values()))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(found.lengths, [f"{each}" for each in found.lengths])
        axes.set_xlabel(f"length of a segment (blocks, {CONFIG.layers} in all)")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def _memory(axes: Axes, found: Peaks) -> None:
    lengths = np.geomspace(min(found.lengths), max(found.lengths), 200)
    peaks = [each / MIB for each in found.peaks]
    axes.plot(lengths, [found.law(each) / MIB for each in lengths], LINES[1], color=COLOURS[0], label="a (n/s + k s)")
    axes.plot(found.lengths, peaks, MARKERS[0], color=COLOURS[5], label="measured peak (recorded)")
    axes.plot(
        found.best,
        found.law(found.best) / MIB,
        "*",
        color="black",
        markersize=13,
        label=f"least of it, at {found.best:.1f} blocks",
    )
    axes.set_yscale("log", base=2)
    ticks = [2.0**power for power in range(2, 8)]
    axes.set_yticks(ticks, [f"{each:.0f}" for each in ticks])
    axes.set_ylabel("live bytes of the step at the peak (MiB)")
