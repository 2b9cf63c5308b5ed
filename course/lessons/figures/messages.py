"""The messages of a run, step by step, as a figure: ranks side by side, steps from top to bottom.

ledger --exchanges.steps--> steps --messages--> arrows and bars, under them the bytes that each rank sends
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.cluster.account.ledger import Ledger, checked
from course.errors import BadArgument
from course.lessons.figures import exchanges
from course.lessons.figures.arrows import FEW_RANKS, STYLES, draw_arrow, draw_bar, draw_nodes, fitting, handle, room
from course.lessons.figures.charts import byte_unit, in_bytes, picture
from course.lessons.figures.exchanges import Collective, Message, Step

MOST_STEPS = 14  # unless more are asked for
BAR, GAP = 0.36, 0.1  # inches: room for a bar, and between steps
PALE: dict[str, Any] = {"facecolor": "0.9", "edgecolor": "0.6", "linewidth": 0.5}


class _Line(NamedTuple):
    """Messages of one step, or collectives that do not overlap. y, end: of its middle and its end, inches from the top.

    step  from 0
    """

    step: int
    y: float
    end: float
    held: Step


def messages(ledger: Ledger, *, steps: tuple[int, int] | None = None, title: str = "") -> Figure:
    """An arrow for each message, a bar over the ranks of each collective, and below them the bytes that ranks send.

    For the meaning of a step see `exchanges`. Bytes of collectives are those of the algorithm that is assumed.

    steps  the first to be shown, counted from 0, and the first that is not; None: all, but at most 14
    title  what is to be seen; by default how many messages, and who sends most

    Raises BadArgument where `steps` are none of the run's. The second may lie beyond its end.
    """
    found = exchanges.steps(checked(ledger))
    if not found:
        return _nothing(title or f"no message and no collective among {ledger.size} ranks")
    first, stop = _checked(steps, len(found))
    lines = _lines(found[first:stop], first, ledger.size)
    high = lines[-1].end
    figure = picture(title or headline(found, ledger.size, (first, stop)), 2.2 + high)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(high, 1.0))
    _draw_ranks(upper, ledger.size, high)
    _draw_lines(upper, lines, ledger.size)
    _draw_totals(lower, ledger.size, found, stop)
    verbs = {each.verb for step in found for each in step}
    handles = [handle(verb) for verb in STYLES if verb in verbs]
    later = [Patch(label="sent later", **PALE)] if stop < len(found) else []
    figure.legend(handles=[*handles, *later], loc="outside lower center", ncols=4, frameon=False)
    return figure


def headline(found: Sequence[Step], size: int, shown: tuple[int, int]) -> str:
    """`24 messages in 6 steps; every rank sends 6 KiB`, or `steps 1 to 6 of 14; in the whole run rank 0 sends ...`."""
    count = len(found)
    kinds = Counter(isinstance(each, Message) for step in found for each in step)
    what = " and ".join(
        f"{number:,} {name}{'s' * (number > 1)}"
        for name, number in (("message", kinds[True]), ("collective", kinds[False]))
        if number
    )
    sent = _sent(found, size)
    if min(sent) == max(sent):
        who = f"every rank sends {in_bytes(sent[0])}"
    elif in_bytes(min(sent)) == in_bytes(max(sent)):
        who = f"every rank sends about {in_bytes(max(sent))}"
    elif sent.count(max(sent)) == 1:
        who = f"rank {sent.index(max(sent))} sends the most, {in_bytes(max(sent))}"
    else:
        who = f"no rank sends more than {in_bytes(max(sent))}"
    if shown == (0, count):
        return f"{what} in {count} step{'s' * (count > 1)}; {who}"
    return f"steps {shown[0] + 1} to {shown[1]} of {count}; in the whole run {who}"


def _nothing(title: str) -> Figure:
    """A figure that says that there is nothing to draw."""
    figure = picture(title, 1.2)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing was sent", horizontalalignment="center", transform=axes.transAxes)
    return figure


def _checked(steps: tuple[int, int] | None, count: int) -> tuple[int, int]:
    if steps is None:
        return 0, min(count, MOST_STEPS)
    first, stop = steps
    if not 0 <= first < min(stop, count):
        raise BadArgument(f"steps must be (first, stop) with 0 <= first < stop and first < {count}, got {steps}")
    return first, min(stop, count)


def _sent(steps: Sequence[Step], size: int) -> list[int]:
    """Bytes that each rank sends in these steps."""
    found: Counter[int] = Counter()
    for step in steps:
        for each in step:
            found.update(each.sent)
    return [found[rank] for rank in range(size)]


def _lines(steps: Sequence[Step], first: int, size: int) -> list[_Line]:
    """The lines of steps from number `first` on: one for all messages of a step, below it those of its collectives."""
    lines: list[_Line] = []
    end = 0.0
    for number, step in enumerate(steps, first):
        end += GAP
        arrows = [each for each in step if isinstance(each, Message)]
        if arrows:
            farthest = [max(way * (each.dst - each.src) for each in arrows) for way in (1, -1)]
            above, below = (room(distance, size) for distance in farthest)
            lines.append(_Line(number, end + above, end + above + below, list(arrows)))
            end += above + below
        for row in _apart([each for each in step if isinstance(each, Collective)]):
            lines.append(_Line(number, end + BAR / 2, end + BAR, list(row)))
            end += BAR
    return lines


def _apart(bars: Sequence[Collective]) -> list[list[Collective]]:
    """Collectives in as few rows as keep them from overlapping."""
    rows: list[list[Collective]] = []
    for bar in sorted(bars, key=lambda each: each.group):
        row = next((row for row in rows if row[-1].group[-1] < bar.group[0]), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    return rows


def _draw_ranks(axes: Axes, size: int, high: float) -> None:
    shown = range(0, size, -(-size // FEW_RANKS))
    axes.set_xlim(-0.6, size - 0.4)
    axes.set_ylim(high + 0.1, 0)
    axes.vlines(range(size), 0, high + 0.1, color="0.85", linewidth=1, zorder=0)
    axes.set_xticks(shown, [f"rank {rank}" if size <= 10 else f"{rank}" for rank in shown])
    axes.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)


def _draw_lines(axes: Axes, lines: Sequence[_Line], size: int) -> None:
    nodes: list[tuple[int, float]] = []
    for line in lines:
        for each in line.held:
            if isinstance(each, Message):
                draw_arrow(axes, each, line.y, size)
                nodes += [(each.src, line.y), (each.dst, line.y)]
            else:
                draw_bar(axes, each, line.y, size)
    draw_nodes(axes, [rank for rank, _ in nodes], [y for _, y in nodes], size)
    first: dict[int, float] = {}
    for line in lines:
        first.setdefault(line.step, line.y)
    axes.set_yticks(list(first.values()), [f"step {step + 1}" for step in first])


def _draw_totals(axes: Axes, size: int, found: Sequence[Step], stop: int) -> None:
    """A bar for each rank: what it sends until the last step that is shown; pale: what it sends in the whole run."""
    totals, until = _sent(found, size), _sent(found[:stop], size)
    name, unit = byte_unit(max(totals))
    axes.bar(range(size), [total / unit for total in totals], 0.6, **PALE)
    axes.bar(range(size), [sent / unit for sent in until], 0.6, color="0.4")
    for rank, (sent, total) in enumerate(zip(until, totals, strict=True)):
        part = f"{in_bytes(sent)} of {in_bytes(total)}" if sent < total else in_bytes(total)
        words = fitting((part, in_bytes(sent)), 1 / size)
        axes.annotate(words, (rank, total / unit), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    axes.set_ylim(0, 1.3 * max(1, *totals) / unit)
    axes.set_ylabel(f"sent ({name})")
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    axes.spines[["top", "right"]].set_visible(False)
