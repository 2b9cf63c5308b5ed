"""Roofs of a machine, one for each format, and operators under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from course.lessons.experiments.roofline import Machine, Point
from course.lessons.figures.charts import COLOURS, LINES, Picture, picture

SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LEFT, RIGHT = 0.04, 4000.0  # FLOP/byte


def roofs(machine: Machine, points: Sequence[Point], *, title: str) -> Picture:
    """Reached FLOP/s over FLOP/byte, both logarithmic: formats differ in colour, line and filling, operators in shape.

    points  in any order; a marker stands for the operator of that name in each format
    """
    figure = picture(title, 4.6)
    axes = figure.subplots()
    forms = _styles(machine.peaks)
    _draw_roofs(axes, machine, forms)
    names = list(dict.fromkeys(point.work.name for point in points))
    for name, shape in zip(names, SHAPES, strict=False):
        for point in (each for each in points if each.work.name == name):
            colour, _, filled = forms[point.form]
            face = colour if filled else "white"
            axes.plot(point.intensity, point.rate, shape, color=colour, markerfacecolor=face, markersize=8, zorder=3)
        axes.plot([], [], shape, color="dimgray", markerfacecolor="white", linestyle="none", label=name)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel("rate (FLOP/s)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    return figure


def _styles(peaks: Mapping[str, float]) -> dict[str, tuple[str, str, bool]]:
    """Colour, line, and whether markers are filled, by format."""
    fixed = {
        "fp32": (COLOURS[0], LINES[0], False),
        "tf32": (COLOURS[2], LINES[2], False),
        "bf16": (COLOURS[5], LINES[1], True),
    }
    return {form: fixed[form] for form in peaks}


def _draw_roofs(axes: Axes, machine: Machine, forms: Mapping[str, tuple[str, str, bool]]) -> None:
    x = np.geomspace(LEFT, RIGHT, 400)
    for form, (colour, line, _) in forms.items():
        y = [machine.reachable(each, form) for each in x]
        label = f"{form}: {machine.peaks[form] / 1e12:.3g} TFLOP/s,\nridge at {machine.ridge(form):.0f} FLOP/byte"
        axes.plot(x, y, line, color=colour, linewidth=1.8, label=label)
    top = max(machine.peaks.values())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(LEFT, RIGHT)
    axes.set_ylim(machine.reachable(LEFT, "fp32") / 2, 2 * top)
