"""What a run needs, in one bar per way of checkpointing, against the memory of devices."""

from __future__ import annotations

from collections.abc import Mapping

from course.lessons.figures.charts import COLOURS, HATCHES, Picture, picture

GB = 10**9
DEVICES = (32, 40, 80)  # GB: a V100, and both A100s
STATES = 4  # parts that are states come first: shades of one colour
SHADES = ("#0072b2", "#3a93c7", "#7ab8dc", "#b8dbee")


def budget_bars(bars: Mapping[str, Mapping[str, int]], *, chosen: str, title: str) -> Picture:
    """A horizontal bar of parts for each name, its total at the end, and a line for each device.

    bars    bytes by part, in the same order in each bar; the first STATES are states
    chosen  the bar whose name stands in bold
    """
    figure = picture(title, 1.7 + 0.55 * len(bars))
    axes = figure.subplots()
    parts = list(next(iter(bars.values())))
    styles = [*zip(SHADES, HATCHES[:1] * STATES, strict=True), *zip(COLOURS[1:], HATCHES[1:], strict=True)]
    for part, (colour, hatch) in zip(parts, styles, strict=False):
        lengths = [bar[part] / GB for bar in bars.values()]
        lefts = [sum(bar[each] for each in parts[: parts.index(part)]) / GB for bar in bars.values()]
        edge = {"edgecolor": "white", "linewidth": 0.6}
        axes.barh(range(len(bars)), lengths, 0.6, lefts, color=colour, hatch=hatch, label=part, **edge)  # type: ignore[arg-type]
    totals = [sum(bar.values()) / GB for bar in bars.values()]
    for row, total in enumerate(totals):
        axes.text(total, row, f" {total:,.0f} GB", va="center", fontsize=10)
    for size in DEVICES:
        axes.axvline(size, color="black", linewidth=1.2, linestyle=(0, (4, 2)))
        axes.text(size, -0.55, f"{size}", ha="center", va="bottom", fontsize=9)
    axes.set_yticks(range(len(bars)), list(bars))
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == chosen else "normal")
    axes.set(xlim=(0, 1.14 * max(*totals, max(DEVICES))), ylim=(len(bars) - 0.5, -0.55))
    axes.set_xlabel("memory of one device (GB); dashed lines: devices of 32, 40 and 80 GB")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
