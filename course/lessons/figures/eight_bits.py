"""The error of a product in 8 bits over the size of one outlier; and how far numbers lie from the largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course.lessons.figures.charts import COLOURS, HATCHES, LINES, MARKERS, picture

DEEPEST = -40  # powers of two below the largest that are drawn
SMALLEST = {"e4m3": -17.8, "e5m2": -31.8}  # log2 of the smallest number over the largest: 2^-9 / 448, 2^-16 / 57,344


def error_over_outlier(sizes: Sequence[float], errors: Mapping[str, Sequence[float]]) -> Figure:
    """A curve for each way to scale, both axes logarithmic.

    sizes   of the outlier, in standard deviations of the other numbers
    errors  by way: the error of the product in the rows without it, as a share
    """
    figure = picture("An outlier of 1,000 ruins integers, and e4m3 hardly notices it", 3.9)
    axes = figure.subplots()
    for (way, values), colour, line, marker in zip(errors.items(), COLOURS, LINES, MARKERS, strict=False):
        axes.loglog(sizes, [100 * each for each in values], line, marker=marker, color=colour, markersize=5, label=way)
    axes.set(xlabel="size of the outlier (standard deviations of the other numbers)", ylabel="error of the product (%)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


def below_the_largest(tensors: Mapping[str, Tensor]) -> Figure:
    """A histogram for each tensor: how many powers of two its numbers lie below the largest, and where formats end."""
    figure = picture("Gradients reach farther below their largest number than activations do", 3.6)
    panels = figure.subplots(1, len(tensors), sharey=True, squeeze=False).ravel()
    edges = [*range(DEEPEST, 1)]
    for axes, (name, x), colour, hatch in zip(panels, tensors.items(), COLOURS, HATCHES, strict=False):
        numbers = x[x != 0].abs()
        powers = (numbers / numbers.max()).log2().clamp(min=DEEPEST + 0.5)
        shares = torch.histogram(powers.float().cpu(), torch.tensor(edges, dtype=torch.float32)).hist / len(powers)
        axes.bar(edges[:-1], (100 * shares).tolist(), 1.0, align="edge", color=colour, hatch=hatch, edgecolor="white")
        for (form, end), line in zip(SMALLEST.items(), LINES, strict=False):
            axes.axvline(end, color="black", linestyle=line, linewidth=1.4, label=f"smallest of {form}")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("log2(|x| / amax)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(edgecolor="none", framealpha=1, fontsize=9, loc="upper left")
    panels[0].set_ylabel("share of the numbers (%)")
    return figure
