"""Many workers: traffic of a server and of a ring, speed over their number, and the loss with old gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from course.lessons.experiments.parameter_server import Traffic
from course.lessons.experiments.stale_gradients import Stale
from course.lessons.figures.charts import COLOURS, LINES, MARKERS, Picture, picture

HIGHEST = 2.6  # nats: a loss above it is drawn there


def server_and_ring(found: Mapping[str, Mapping[int, Traffic]], *, title: str) -> Picture:
    """Left the bytes through the busiest rank, right the seconds, over the number of workers; a line for each way."""
    figure = picture(title, 3.7)
    left, right = figure.subplots(1, 2)
    for place, (name, by_workers) in enumerate(found.items()):
        style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "label": name, "ls": LINES[place]}
        left.plot([*by_workers], [each.busiest / 1e9 for each in by_workers.values()], **style)
        right.plot([*by_workers], [each.seconds for each in by_workers.values()], **style)
    left.set_ylabel("bytes through the busiest rank (GB)")
    right.set_ylabel("time until all have the sum (s)")
    for axes in (left, right):
        _over_workers(axes, [*next(iter(found.values()))])
    return figure


def speedups(lines: Mapping[str, Mapping[int, float]], *, title: str) -> Picture:
    """How many times as fast as one worker, over the number of workers; a line for each name, the first one dotted."""
    figure = picture(title, 4.0)
    axes = figure.subplots()
    for place, (name, by_workers) in enumerate(lines.items()):
        colour, line = ("0.5", ":") if place == 0 else (COLOURS[place - 1], LINES[place - 1])
        marker = "" if place == 0 else MARKERS[place - 1]
        axes.plot([*by_workers], [*by_workers.values()], line, color=colour, marker=marker, label=name)
    axes.set_yscale("log", base=2)
    ticks = [2**power for power in range(7)]
    axes.set_yticks(ticks, [f"{each}" for each in ticks])
    axes.set_ylim(0.5, 80)
    axes.set_ylabel("times as fast as one worker")
    _over_workers(axes, [*next(iter(lines.values()))])
    return figure


def stale_losses(found: Stale, *, title: str) -> Picture:
    """The loss after training over the rate, a line for each staleness."""
    figure = picture(title, 4.0)
    axes = figure.subplots()
    for place, (staleness, losses) in enumerate(zip(found.staleness, found.losses, strict=True)):
        seen = [HIGHEST if each is None else min(each, HIGHEST) for each in losses]
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        line = LINES[place % len(LINES)]
        axes.plot(found.rates, seen, line, color=colour, marker=marker, markersize=4, label=_age(staleness))
    axes.set_xscale("log", base=2)
    axes.set_xlabel("learning rate")
    axes.set_ylabel(f"loss after training (nats, cut at {HIGHEST})")
    axes.legend(frameon=False, title="age of the gradient")
    _finish(axes)
    return figure


def _age(staleness: int) -> str:
    return "fresh" if staleness == 0 else f"{staleness} step{'s' if staleness > 1 else ''}"


def _over_workers(axes: Axes, workers: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [f"{each}" for each in workers])
    axes.set_xlabel("workers")
    axes.legend(frameon=False)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
