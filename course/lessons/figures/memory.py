"""The bytes that ranks held over time: lines under a timeline."""

from __future__ import annotations

from itertools import cycle

from matplotlib.axes import Axes

from course.cluster.account.ledger import Ledger
from course.lessons.figures.charts import COLOURS, LINES, byte_unit, in_bytes

FEW = 6  # lines that can be told apart; of more, only the highest stands out
Line = tuple[tuple[float, int], ...]


def held(ledger: Ledger) -> dict[Line, list[int]]:
    """Lines of (seconds, bytes), and which ranks have them; a line keeps its bytes until the next point.

    Of many changes at one time the greatest and the last are kept.
    """
    points: dict[int, dict[float, tuple[int, int]]] = {}
    for rank, time, count in ledger.live:
        own = points.setdefault(rank, {})
        own[time] = max(own.get(time, (0, 0))[0], count), count
    found: dict[Line, list[int]] = {}
    for rank, own in sorted(points.items()):
        line = tuple((time, count) for time, counts in own.items() for count in counts)
        found.setdefault(line, []).append(rank)
    return found


def memory_lines(axes: Axes, ledger: Ledger, *, last: float, unit: float) -> None:
    """The bytes of tensors that each rank holds, until `last` seconds; ranks that hold the same share a line."""
    lines = held(ledger)
    most = max(count for line in lines for _, count in line)
    name, size = byte_unit(most)
    highest = max(lines, key=lambda line: max(count for _, count in line))
    for (line, ranks), colour, dashes in zip(lines.items(), cycle(COLOURS), cycle(LINES), strict=False):
        told = len(lines) <= FEW or line is highest
        times, counts = zip(*line, (last, line[-1][1]), strict=True)
        axes.plot(
            [time / unit for time in times],
            [count / size for count in counts],
            dashes if len(lines) <= FEW else "-",
            drawstyle="steps-post",
            color=colour if len(lines) <= FEW else COLOURS[5] if told else "0.7",
            linewidth=1.6 if told else 0.7,
            zorder=3 if told else 2,
            label=f"{_names(ranks)}: at most {in_bytes(max(counts))}" if told else None,
        )
    axes.set_ylabel(f"held ({name})")
    axes.set_ylim(0, 1.15 * most / size)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0)


def _names(ranks: list[int]) -> str:
    """`rank 3`, `ranks 0 to 3`, `4 ranks`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"{len(ranks)} ranks"
