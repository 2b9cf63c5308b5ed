"""Bytes that an allocator reserves and has given out, event by event, and a map of its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from course.lessons.figures.charts import COLOURS, HATCHES, LINES, Picture, picture

MIB = 2**20
FREE = "free"
ROW = 0.17  # inches of a segment


class History(Protocol):
    """Bytes given out and bytes reserved after each event."""

    @property
    def allocated(self) -> Sequence[int]: ...
    @property
    def reserved(self) -> Sequence[int]: ...


class Piece(Protocol):
    """A block of a segment: where it begins, its bytes, and the number of the allocation that has it, from 1."""

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def holds(self) -> int | None: ...


def memory_over_time(histories: Mapping[str, tuple[History, Mapping[str, int]]], *, title: str) -> Picture:
    """A panel for each history, which comes with the first event of each phase: allocated filled, reserved a line."""
    figure = picture(title, 1.6 + 1.7 * len(histories))
    panels = figure.subplots(len(histories), 1, squeeze=False, sharey=True).ravel()
    top = 1.25 * max(max(history.reserved) for history, _ in histories.values()) / MIB
    for axes, (name, (history, starts)), colour in zip(panels, histories.items(), cycle(COLOURS), strict=False):
        events = range(len(history.allocated))
        allocated, reserved = ([each / MIB for each in line] for line in (history.allocated, history.reserved))
        axes.fill_between(events, allocated, step="post", color=colour, alpha=0.45, label="allocated")
        axes.plot(events, reserved, LINES[1], color="black", linewidth=1.3, label="reserved")
        axes.set(xlim=(0, len(history.allocated)), ylim=(0, top), ylabel="memory (MiB)")
        axes.set_title(name, fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        _mark(axes, starts, len(history.allocated))
    panels[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
    panels[-1].set_xlabel("allocations and frees of at least 64 KiB, in their order")
    return figure


def _mark(axes: Axes, starts: Mapping[str, int], last: int) -> None:
    """A line where a phase begins, and its name in the middle of it where there is room."""
    ends = [*list(starts.values())[1:], last]
    for (name, start), end in zip(starts.items(), ends, strict=True):
        axes.axvline(start, color="0.5", linewidth=0.8, linestyle=(0, (1, 2)))
        place = axes.get_xaxis_transform()
        axes.text((start + end) / 2, 0.97, name, fontsize=8, transform=place, ha="center", va="top")


def segment_map(
    segments: Sequence[Sequence[Piece]], kinds: Sequence[str], *, names: Sequence[str], title: str
) -> Picture:
    """A row for each segment, its blocks from left to right: coloured and hatched by kind, white where free.

    kinds  of the allocations: the k-th has index k - 1
    """
    figure = picture(title, 1.4 + ROW * len(segments))
    axes = figure.subplots()
    styles = {name: (colour, hatch) for name, colour, hatch in zip(names, COLOURS, HATCHES, strict=False)}
    held = {kinds[block.holds - 1] for blocks in segments for block in blocks if block.holds is not None}
    styles = {name: style for name, style in styles.items() if name in held} | {FREE: ("white", "")}
    for row, blocks in enumerate(segments):
        for block in blocks:
            colour, hatch = styles[FREE if block.holds is None else kinds[block.holds - 1]]
            left, width = block.start / MIB, block.size / MIB
            axes.barh(row, width, 0.8, left, color=colour, hatch=hatch, linewidth=0.4, edgecolor="0.35")
    axes.set(xlabel="place in the segment (MiB)", ylabel="segments", yticks=[], ylim=(len(segments) - 0.4, -0.6))
    axes.spines[["top", "right", "left"]].set_visible(False)
    patches = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="0.35", label=name) for name, (colour, hatch) in styles.items()
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, fontsize=9)
    return figure
