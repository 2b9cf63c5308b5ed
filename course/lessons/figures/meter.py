"""The memory of a piece of code over its ops, from what `course.meter.metered` saw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import cycle, groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course.lessons.figures.charts import COLOURS, HATCHES, WIDTH, byte_unit, in_bytes, picture
from course.meter import Op, Run

PASSES = {False: "forward", True: "backward"}
PART = re.compile(r"\w+\.(\w+(?:\.\d+)?)")  # `blocks.0` of `GPT.blocks.0.mlp.up`
LETTER = 0.055  # inches of a letter of 7 points


def memory_timeline(run: Run, *, title: str = "") -> Figure:
    """Live bytes right after each op, their peak, and what forward kept; below, the part of the model.

    title  what is to be seen; by default how high the peak is
    """
    peak = run.peak
    if peak is None or not peak.live:
        figure = picture(title or "no op made anything", 1.2)
        figure.subplots().set_axis_off()
        return figure
    figure = picture(title or f"Live bytes of {len(run.trace):,} ops: at most {in_bytes(peak.live)}", 4.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(12, 1))
    name, size = byte_unit(peak.live)
    _draw_live(upper, run, size)
    _mark_kept(upper, run, size)
    _mark_peak(upper, peak, len(run.trace), size)
    upper.set(ylabel=f"live ({name})", xlim=(0, len(run.trace)), ylim=(0, 1.2 * peak.live / size))
    upper.grid(alpha=0.3)
    upper.spines[["top", "right"]].set_visible(False)
    upper.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0)
    _draw_parts(lower, run)
    lower.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    lower.set_xlabel("ops, in the order in which they ran")
    return figure


def _place(op: Op) -> str:
    """`mm of GPT.head, in backward`."""
    return op.name + f" of {op.module}" * bool(op.module) + f", in {PASSES[op.backward]}"


def _draw_live(axes: Axes, run: Run, size: int) -> None:
    """Op i lies between i and i + 1."""
    told: set[bool] = set()
    for start, end in _stretches([op.backward for op in run.trace]):
        live = [op.live / size for op in run.trace[start:end]]
        edges, backward = range(start, end + 1), run.trace[start].backward
        colour, hatch = COLOURS[backward], HATCHES[backward]
        label = None if backward in told else PASSES[backward]
        told.add(backward)
        axes.fill_between(
            edges,
            [*live, live[-1]],
            step="post",
            label=label,
            facecolor=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0,
        )
        axes.stairs(live, edges, color=colour, linewidth=1, baseline=None)


def _mark_kept(axes: Axes, run: Run, size: int) -> None:
    """A line from where backward begins."""
    if run.kept_by_forward is not None:
        began = next(op.index for op in run.trace if op.backward)
        words = f"kept by forward: {in_bytes(run.kept_by_forward)}"
        axes.hlines(run.kept_by_forward / size, began, len(run.trace), "black", (0, (4, 2)), label=words)


def _mark_peak(axes: Axes, peak: Op, ops: int, size: int) -> None:
    late = peak.index > ops / 2  # so that the words stay inside
    axes.annotate(
        f"peak {in_bytes(peak.live)}: {_place(peak)}",
        (peak.index + 0.5, peak.live / size),
        (-20 if late else 20, 14),
        textcoords="offset points",
        ha="right" if late else "left",
        size=9,
        arrowprops={"arrowstyle": "-|>", "color": COLOURS[5], "linewidth": 1.6, "relpos": (late, 0.5), "shrinkB": 0},
    )


def _draw_parts(axes: Axes, run: Run) -> None:
    """A box for the ops of each part of the model, named where there is room."""
    axes.set(ylim=(0, 1), yticks=[])
    axes.set_ylabel("module", rotation=0, size=8, ha="right", va="center")
    axes.spines[:].set_visible(False)
    parts = [""]
    for op in run.trace:
        found = PART.match(op.module)
        gradient = op.backward and not op.module  # which is added up after the part that it comes from
        parts.append(found[1] if found else parts[-1] if gradient else "")
    grey = cycle(("0.8", "0.9"))
    for start, end in _stretches(parts[1:]):
        part = parts[1 + start]
        if not part:
            continue
        axes.barh(0.5, end - start, 1, start, color=next(grey))
        if LETTER * len(part) < (WIDTH - 1) * (end - start) / len(run.trace):
            axes.text((start + end) / 2, 0.5, part, size=7, ha="center", va="center")


def _stretches(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Of each run of equal values the first place, and the one after the last."""
    start = 0
    for _, run in groupby(values):
        end = start + len(list(run))
        yield start, end
        start = end
