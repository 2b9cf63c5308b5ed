"""The schedule of a run: what each rank did when, and what it held, as a figure.

ledger --spans.lanes--> spans --timeline--> a row for each rank, under them the bytes that the ranks held
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.cluster.account.ledger import Ledger, checked
from course.lessons.figures.charts import COLOURS, HATCHES, WIDTH, Picture, picture
from course.lessons.figures.memory import memory_lines
from course.lessons.figures.spans import (
    KINDS,
    LANES,
    Kind,
    Lane,
    Span,
    covered,
    ends,
    in_seconds,
    lanes,
    shares,
    time_unit,
)

FACES: Mapping[Kind, str] = {"compute": COLOURS[0], "communication": COLOURS[1], "waiting": "0.93"}
SIGNS: Mapping[Kind, str] = {"compute": HATCHES[0], "communication": HATCHES[1], "waiting": HATCHES[2]}
EDGES: Mapping[Kind, str] = {"compute": "white", "communication": "white", "waiting": "0.55"}
MANY = 350  # spans of a rank: with more, columns show how they share the time
COLUMNS = 120
ROWS, TALL, SLIM = 4.5, 0.45, 0.1  # inches: of all rows together, and at most and at least of one
ROOM = 0.25  # inches that a row needs for words and hatches
LETTER = 0.065  # inches of a letter of 8 points
ACROSS = WIDTH - 1.0  # inches of the axis of time


def timeline(ledger: Ledger, *, title: str = "") -> Figure:
    """A row for each rank over time; under them the bytes that each held, where they were measured.

    What is sent beside the ranks' own work is the lower part of each row. With very many spans each row is cut into
    stretches of time, and heights show how the kinds share them.

    title  what is to be seen; by default who ends last, and how all ranks spend their time
    """
    spans = lanes(checked(ledger))
    last = max([*ends(ledger), *(each.end for own in spans.values() for each in own)], default=0.0)
    if not last:
        return _nothing(ledger, title)
    row = max(SLIM, min(TALL, ROWS / ledger.size))
    below = 1.7 if ledger.live else 0.0
    figure = picture(title or headline(ledger), 1.5 + row * ledger.size + below)
    heights = [row * ledger.size + 0.2, below] if below else [1.0]
    upper, *lower = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
    name, unit = time_unit(last)
    many = max(map(len, spans.values())) > MANY
    upper.set_xlim(0, 1.01 * last / unit)
    upper.set_ylim(ledger.size - 0.5, -0.5)
    (_draw_columns if many else _draw_spans)(upper, spans, last, unit, hatched=row >= ROOM)
    if not many and row >= ROOM:
        _write_labels(upper, spans, last, unit)
    _finish(figure, upper, spans, hatched=row >= ROOM)
    for axes in lower:
        memory_lines(axes, ledger, last=last, unit=unit)
    more = "; heights: how the kinds share each stretch of it" if many else ""
    [upper, *lower][-1].set_xlabel(f"time ({name}){more}")
    return figure


def headline(ledger: Ledger) -> str:
    """`rank 2 ends last, after 3.1 ms: 50% compute, 9% communication, 41% waiting`: of all ranks' time until then."""
    clocks = ends(ledger)
    last = max(clocks)
    latest = [rank for rank, end in enumerate(clocks) if math.isclose(end, last)]
    who = f"rank {latest[0]} ends last," if len(latest) == 1 else f"{len(latest)} of {len(clocks)} ranks end last,"
    if len(latest) == len(clocks):
        who = f"all {len(clocks)} ranks end" if len(clocks) > 1 else "the only rank ends"
    own = shares(ledger).values()
    spent = {kind: sum(getattr(each, kind) for each in own) / (len(clocks) * last or 1.0) for kind in KINDS}
    parts = ", ".join(f"{part:.0%} {kind}" for kind, part in spent.items() if part >= 0.005)
    return f"{who} after {in_seconds(last)}" + f": {parts}" * bool(parts)


def _nothing(ledger: Ledger, title: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    words = "whatever happened took no time" if ledger.events else "no rank computed or called anything"
    figure = picture(title or f"an empty timeline: {words}", 1.2)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, horizontalalignment="center", transform=axes.transAxes)
    return figure


def _beside(spans: Mapping[int, Sequence[Span]]) -> bool:
    return any(each.lane == "beside" for row in spans.values() for each in row)


def _place(rank: int, lane: Lane, *, split: bool) -> tuple[float, float]:
    """Top and bottom of a lane; rank 0 is on top, at height 0."""
    if not split:
        return rank - 0.42, rank + 0.42
    return (rank - 0.42, rank + 0.12) if lane == "own" else (rank + 0.14, rank + 0.42)


def _style(kind: Kind, *, hatched: bool) -> dict[str, Any]:
    return {"facecolor": FACES[kind], "hatch": SIGNS[kind] if hatched else None, "edgecolor": EDGES[kind]}


def _draw_spans(axes: Axes, spans: Mapping[int, Sequence[Span]], last: float, unit: float, *, hatched: bool) -> None:
    """A box for each span."""
    split = _beside(spans)
    for kind in KINDS:
        boxes = []
        for rank, row in spans.items():
            for each in row:
                if each.kind == kind:
                    top, bottom = _place(rank, each.lane, split=split)
                    left, right = each.start / unit, each.end / unit
                    boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
        axes.add_collection(PolyCollection(boxes, linewidth=0.5 if hatched else 0, **_style(kind, hatched=hatched)))


def _draw_columns(axes: Axes, spans: Mapping[int, Sequence[Span]], last: float, unit: float, *, hatched: bool) -> None:
    """Each lane in columns of time, filled from below, compute first, by the share that each kind has of the time."""
    edges = np.linspace(0, last, COLUMNS + 1)
    split = _beside(spans)
    for rank, row in spans.items():
        for lane in LANES[: 1 + split]:
            top, bottom = _place(rank, lane, split=split)
            height = np.full(COLUMNS, bottom)
            for kind in KINDS:
                chosen = [each for each in row if (each.lane, each.kind) == (lane, kind)]
                above = height - (bottom - top) * _filled(chosen, edges)
                low, high = (np.append(each, each[-1]) for each in (height, above))
                axes.fill_between(edges / unit, low, high, step="post", linewidth=0, **_style(kind, hatched=hatched))
                height = above


def _filled(spans: Iterable[Span], edges: np.ndarray) -> np.ndarray:
    """The share of the time between two edges in which at least one span lasts: (len(edges) - 1,)."""
    stretches = covered(spans)
    if not stretches:
        return np.zeros(len(edges) - 1)
    times = np.array(stretches)  # (stretches, 2)
    sums = np.cumsum(times[:, 1] - times[:, 0])
    before = np.stack([sums - (times[:, 1] - times[:, 0]), sums], axis=1)
    lasting: np.ndarray = np.diff(np.interp(edges, times.ravel(), before.ravel()))
    return lasting / np.diff(edges)


def _write_labels(axes: Axes, spans: Mapping[int, Sequence[Span]], last: float, unit: float) -> None:
    """The label of each span in which it has room, and no other in its lane; of a transfer at least its verb."""
    split = _beside(spans)
    for rank, row in spans.items():
        for span in (each for each in row if not any(_overlap(each, other) for other in row)):
            room = (span.end - span.start) / last * ACROSS / LETTER - 0.3
            choices = (span.label, span.label.split(" #")[0] if span.kind == "communication" else "")
            words = next((each for each in choices if len(each) <= room), "")
            if words and span.kind != "waiting":
                middle = sum(_place(rank, span.lane, split=split)) / 2
                _write(axes, (span.start + span.end) / 2 / unit, middle, words, span)


def _overlap(span: Span, other: Span) -> bool:
    return span is not other and span.lane == other.lane and span.start < other.end and other.start < span.end


def _write(axes: Axes, x: float, y: float, words: str, span: Span) -> None:
    ground = {"facecolor": FACES[span.kind], "edgecolor": "none", "pad": 0.8}  # so that no hatch crosses the letters
    axes.text(
        *(x, y, words),
        fontsize=7 if span.lane == "beside" else 8,
        color="white" if span.kind == "compute" else "black",
        bbox=ground if span.kind == "communication" else None,
        horizontalalignment="center",
        verticalalignment="center_baseline",
        clip_on=True,
    )


def _finish(figure: Picture, axes: Axes, spans: Mapping[int, Sequence[Span]], *, hatched: bool) -> None:
    every = -(-len(spans) // 32)
    axes.set_yticks(range(0, len(spans), every), [f"rank {rank}" for rank in range(0, len(spans), every)])
    axes.tick_params(axis="y", length=0, labelsize=10 if hatched else 7)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    notes = {"communication": "; in the lower part beside other work"} if _beside(spans) else {}
    handles = [Patch(label=kind + notes.get(kind, ""), **_style(kind, hatched=hatched)) for kind in KINDS]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
