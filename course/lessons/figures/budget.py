"""What a run needs, in one bar per way of saving memory, against the memory of devices."""

from __future__ import annotations

from collections.abc import Mapping

from course.lessons.figures.charts import COLOURS, Picture, picture

GB = 10**9
DEVICES = {32: "right", 40: "left", 80: "center"}  # GB of a V100 and of both A100s, and where the number stands
STYLES = (  # colour, hatch, and the colour of both hatch and edge
    ("#0072b2", "", "white"),
    ("#3a93c7", "...", "white"),
    ("#7ab8dc", "///", "#00507d"),
    ("#c9e4f2", "xxx", "#3a93c7"),
    (COLOURS[1], "\\\\\\", "white"),
    (COLOURS[2], "++", "white"),
    (COLOURS[3], "ooo", "white"),
)


def budget_bars(bars: Mapping[str, Mapping[str, int]], *, chosen: str, title: str) -> Picture:
    """A horizontal bar of parts for each name, its total at the end, and a line for each device.

    bars    bytes by part, in the same order in each bar; states come first, in shades of one colour
    chosen  the bar whose name stands in bold
    """
    figure = picture(title, 1.7 + 0.55 * len(bars))
    axes = figure.subplots()
    parts = list(next(iter(bars.values())))
    for part, (colour, hatch, edge) in zip(parts, STYLES, strict=False):
        lengths = [bar[part] / GB for bar in bars.values()]
        lefts = [sum(bar[each] for each in parts[: parts.index(part)]) / GB for bar in bars.values()]
        rows = range(len(bars))
        axes.barh(rows, lengths, 0.6, lefts, color=colour, hatch=hatch, edgecolor=edge, linewidth=0.6, label=part)
    totals = [sum(bar.values()) / GB for bar in bars.values()]
    apart = max(totals) / 50  # further left the numbers of the devices would overlap
    devices = {size: side for size, side in DEVICES.items() if size > apart}
    for size, side in devices.items():
        axes.axvline(size, color="black", linewidth=1.2, linestyle=(0, (4, 2)))
        axes.text(size, -0.55, f"{size}", ha=side, va="bottom", fontsize=9)
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for row, total in enumerate(totals):
        words = f"{total:,.{int(total < 99.95)}f} GB"
        axes.annotate(words, (total, row), (5, 0), textcoords="offset points", va="center", bbox=ground)
    axes.set_yticks(range(len(bars)), list(bars))
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == chosen else "normal")
    axes.set(xlim=(0, 1.14 * max(*totals, max(DEVICES))), ylim=(len(bars) - 0.5, -0.55))
    told = "; dashed lines: devices of 32, 40 and 80 GB" if devices else ""
    axes.set_xlabel(f"memory of one device (GB){told}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
