"""One step of a profiler's trace: the host's marks, nested, the device's work under them, and its gaps shaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from course.lessons.figures.charts import COLOURS, HATCHES, Picture, picture

Event = Mapping[str, Any]
HOST, DEVICE, IDLE = (COLOURS[4], HATCHES[0]), (COLOURS[1], HATCHES[1]), ("0.85", HATCHES[2])
LETTER = 0.009  # of the axis of time, a letter of 8 points
THIN = 0.002  # of the axis: what is shorter is drawn this long


def trace(traces: Mapping[str, Sequence[Event]], *, title: str) -> Picture:
    """A panel for each trace: events with name, lane ("host" or "device"), start and duration in microseconds.

    The events of each hold one named `step`. Over it the host's marks lie above each other, the innermost lowest.
    """
    figure = picture(title, 0.6 + 2.1 * len(traces))
    panels = figure.subplots(len(traces), 1, squeeze=False, sharex=True)[:, 0]
    longest = max(each["duration"] for events in traces.values() for each in events if each["name"] == "step") / 1e3
    for axes, (name, events) in zip(panels, traces.items(), strict=True):
        _panel(axes, events, longest)
        axes.set_title(name, fontsize=9, loc="left")
    panels[-1].set_xlabel("time since the step began (ms)")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="0.3", label=label)
        for (colour, hatch), label in ((HOST, "host: marks"), (DEVICE, "device: work"), (IDLE, "device: idle"))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, events: Sequence[Event], longest: float) -> None:
    whole = next(event for event in events if event["name"] == "step")
    shown = whole["start"], whole["start"] + whole["duration"]
    host = sorted((each for each in events if each["lane"] == "host"), key=lambda each: -each["duration"])
    device = [each for each in events if each["lane"] == "device"]
    depths = [sum(_inside(each, other) for other in host[:at]) for at, each in enumerate(host)]
    low = max(depths) + 1
    for each, depth in zip(host, depths, strict=True):
        _bar(axes, each, low - depth, HOST, shown, longest)
    axes.barh(0, whole["duration"] / 1e3, 0.8, 0, color=IDLE[0], hatch=IDLE[1], edgecolor="0.5")  # under the work
    for each in device:
        _bar(axes, each, 0, DEVICE, shown, longest)
    axes.set_yticks([0, *range(1, low + 1)], ["device", *["host" if at == low else "" for at in range(1, low + 1)]])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, longest * 1.01)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _bar(axes: Axes, event: Event, row: int, style: tuple[str, str], span: tuple[int, int], longest: float) -> None:
    """An event's part within the step, with its name where it has room."""
    start, stop = max(event["start"], span[0]), min(event["start"] + event["duration"], span[1])
    left, long = (start - span[0]) / 1e3, max((stop - start) / 1e3, THIN * longest)
    axes.barh(row, long, 0.8, left, color=style[0], hatch=style[1], edgecolor="white", linewidth=0.5)
    if long > LETTER * longest * len(event["name"]):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
        axes.text(left + long / 2, row, event["name"], ha="center", va="center", fontsize=8, bbox=box)


def _inside(each: Event, other: Event) -> bool:
    return bool(
        other["start"] <= each["start"] and each["start"] + each["duration"] <= other["start"] + other["duration"]
    )
