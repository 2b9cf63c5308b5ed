"""Units of a sharded model: what a step costs over their size, and which rank holds which number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.patches import Rectangle

from course.lessons.experiments.two_layouts import Layout
from course.lessons.experiments.unit_life import Cost
from course.lessons.figures.charts import COLOURS, LINES, MARKERS, Picture, picture

MIB = 2**20


def over_unit_size(found: Mapping[str, Mapping[int, Cost]], *, title: str) -> Picture:
    """Left the milliseconds of a step, right the bytes held, over the blocks of a unit; a line for each name."""
    figure = picture(title, 3.6)
    left, right = figure.subplots(1, 2)
    for place, (name, by_size) in enumerate(found.items()):
        style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "ls": LINES[place], "label": name}
        left.plot([*by_size], [each.seconds * 1e3 for each in by_size.values()], **style)
        right.plot([*by_size], [each.peak / MIB for each in by_size.values()], **style)
    left.set_ylabel("a step (ms)")
    right.set_ylabel("held by a rank, at most (MiB)")
    for axes in (left, right):
        axes.set_xlabel("blocks in a unit")
        axes.set_ylim(0, None)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(found), frameon=False)
    return figure


def owners(layouts: Mapping[str, Layout], *, title: str) -> Picture:
    """A grid for each parameter whose cells have the number and the colour of their rank; a column for each layout."""
    figure = picture(title, 2.5)
    for axes, (name, layout) in zip(figure.subplots(1, len(layouts)), layouts.items(), strict=True):
        left = 0
        for parameter, ranks in layout.owners.items():
            grid = ranks.view(len(ranks), -1).tolist()
            for y, row in enumerate(grid):
                for x, rank in enumerate(row, left):
                    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=COLOURS[rank], edgecolor="white", alpha=0.55))
                    axes.text(x + 0.5, y + 0.5, f"{rank}", ha="center", va="center", fontsize=9)
            axes.text(left, -0.3, parameter, fontsize=9)
            left += len(grid[0]) + 2
        axes.set(xlim=(0, left), ylim=(max(map(len, layout.owners.values())), -1), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        padding = f"{layout.padding} number{'s' * (layout.padding != 1)} of padding"
        axes.set_xlabel(f"{name}; {padding}")
    return figure
