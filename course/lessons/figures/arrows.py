"""Arrows between ranks and bars over them: the marks of a picture of messages.

Ranks stand side by side at 0, 1, 2, ...; down the page everything is in inches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.path import Path

from course.lessons.figures.charts import COLOURS, HATCHES, WIDTH, in_bytes
from course.lessons.figures.exchanges import Collective, Message

FEW_RANKS = 16  # with more, marks are smaller and not every rank has its name
LETTER = 0.066  # inches of a letter of 8 points
ACROSS = WIDTH - 0.9  # inches of all ranks
STYLES: Mapping[str, tuple[str, str]] = {
    "send": (COLOURS[0], HATCHES[0]),
    "all_reduce": (COLOURS[1], HATCHES[0]),
    "all_gather": (COLOURS[2], HATCHES[1]),
    "reduce_scatter": (COLOURS[3], HATCHES[2]),
    "all_to_all": (COLOURS[4], HATCHES[3]),
    "broadcast": (COLOURS[5], HATCHES[4]),
    "reduce": (COLOURS[1], HATCHES[5]),
    "gather": (COLOURS[2], HATCHES[5]),
    "scatter": (COLOURS[3], HATCHES[1]),
    "barrier": ("0.8", HATCHES[0]),
}


def handle(verb: str) -> Patch | Line2D:
    """What stands for a verb in the legend."""
    colour, hatch = STYLES[verb]
    if verb == "send":
        return Line2D([], [], color=colour, marker=">", label="message (# of the pair)")
    return Patch(label=verb, facecolor=colour, hatch=hatch, edgecolor="white")


def draw_arrow(axes: Axes, message: Message, y: float, size: int) -> None:
    """From one of `size` ranks to another: to the right above the line at `y`, to the left below it."""
    way = 1 if message.dst > message.src else -1
    distance, few = way * (message.dst - message.src), size <= FEW_RANKS
    high = way * swing(distance, size)
    away = min(0.25, 0.09 * size / ACROSS)
    start, end = message.src + way * away, message.dst - way * away
    bend = way * min(0.3 * distance, 0.4 * size / ACROSS)
    low, top = y - high / 6, y - 23 / 18 * high  # a curve is a quarter low and three quarters top in its middle: high
    path = Path([(start, low), (start + bend, top), (end - bend, top), (end, low)], [1, 4, 4, 4])
    colour, _ = STYLES[message.verb]
    axes.add_patch(
        FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=10 if few else 5, color=colour, linewidth=1.3)
    )
    words = fitting((f"#{message.number}: {in_bytes(message.bytes)}", in_bytes(message.bytes)), (1 - 2 * away) / size)
    if words:
        _write(axes, (start + end) / 2, y - high, words, beside=way if distance == 1 else 0)


def _write(axes: Axes, x: float, y: float, words: str, *, beside: int) -> None:
    """Words above the height `y` (beside = 1) or below it (-1), or on it (0), with a white ground to be read on."""
    place = {1: "bottom", 0: "center", -1: "top"}[beside]
    text = axes.text(x, y - 0.04 * beside, words, fontsize=8, horizontalalignment="center", zorder=4)
    text.set(verticalalignment=place, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def room(distance: int, size: int) -> float:
    """How far from the line the arrow and its words reach, in inches; without an arrow (distance 0 or less) little."""
    return 0.19 if distance <= 1 else swing(distance, size) + 0.08


def draw_nodes(axes: Axes, ranks: Sequence[int], heights: Sequence[float], size: int) -> None:
    """The ranks that send or receive, each at its height."""
    axes.plot(ranks, heights, "o", color="white", markeredgecolor="0.3", markersize=8 if size <= FEW_RANKS else 2)


def swing(distance: int, size: int) -> float:
    """How far from the line an arrow passes, in inches: neighbours' arrows are nearly straight."""
    if distance == 1:
        return 0.03 if size <= FEW_RANKS else 0.0
    return 0.26 + 0.2 * (distance - 2) / max(1, size - 2)


def draw_bar(axes: Axes, each: Collective, y: float, size: int) -> None:
    """Boxes over the ranks of the group, of `size` in all, with a line between them."""
    colour, hatch = STYLES[each.verb]
    left, right = each.group[0], each.group[-1]
    axes.plot([left, right], [y, y], color=colour, linewidth=2)
    for start, end in runs(each.group):
        box = Rectangle((start - 0.3, y - 0.14), end - start + 0.6, 0.28, facecolor=colour, hatch=hatch)
        box.set(edgecolor="white", linewidth=0.5, zorder=2)
        axes.add_patch(box)
    name = f"{each.call} #{each.number}"
    sent = in_bytes(each.bytes)
    words = fitting((f"{name}: {sent} sent", f"{name}: {sent}", name, str(each.call)), (right - left + 0.5) / size)
    if words:
        _write(axes, (left + right) / 2, y, words, beside=0)


def runs(group: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of the neighbours that a group has: (0, 1, 4) has (0, 1) and (4, 4)."""
    found: list[tuple[int, int]] = []
    for rank in group:
        if found and found[-1][1] == rank - 1:
            found[-1] = found[-1][0], rank
        else:
            found.append((rank, rank))
    return found


def fitting(choices: Sequence[str], share: float) -> str:
    """The first of the choices that has room in a share of the picture's width; else nothing."""
    return next((words for words in choices if len(words) * LETTER <= share * ACROSS), "")
