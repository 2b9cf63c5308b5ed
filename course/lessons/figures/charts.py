"""Bars, curves and images, by matplotlib: plain data in, a figure out.

A figure here belongs to no pyplot window. A notebook shows it once, as the value that ends a cell, and nothing has
to be closed. Its ground is white in both themes. Whatever differs in colour also differs in hatch, line or marker.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

# By M. Okabe and K. Ito: told apart by readers with any colour vision.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")
WIDTH = 8.0  # inches
DPI = 100  # so that a figure is 800 pixels wide in the notebook
SHARP = 2  # pixels drawn for each of them, for screens that have more
SIDE, PIXEL = 8, 0.09  # of a digit: pixels of its sides, inches of a pixel
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


class Picture(Figure):
    """A figure that knows how a notebook shows it: as one image, 100 pixels to the inch."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=DPI * SHARP)
        width, height = self.get_size_inches() * DPI
        return stream.getvalue(), {"width": round(width), "height": round(height)}


def as_image(figure: Picture, words: str) -> str:
    """The figure as HTML, for a widget; `words` say it to who cannot see it."""
    png, _ = figure._repr_png_()
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    style = "display: block; width: 100%; max-width: 800px"
    return f'<img src="{source}" alt="{escape(words, quote=True)}" style="{style}">'


def picture(title: str, height: float) -> Picture:
    """An empty figure, `height` inches high, under its title."""
    figure = Picture(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    figure.suptitle(textwrap.fill(title, 84), fontsize=12, fontweight="bold")
    return figure


def saved_bytes_bars(
    rows: Mapping[str, int] | Sequence[tuple[str, int]], title: str, *, kinds: Sequence[str] | None = None
) -> Figure:
    """A bar for each operation, first row on top: the bytes it keeps from its forward for its backward pass.

    rows    bytes by the name of the operation; as pairs where a name comes twice
    kinds   what the bytes of each row are, such as "activation" or "weight": each kind has a colour and a hatch
    """
    rows = list(rows.items()) if isinstance(rows, Mapping) else rows
    groups = list(kinds) if kinds is not None else [""] * len(rows)
    unit, size = byte_unit(max((count for _, count in rows), default=0))
    figure = picture(title, 1.3 + 0.36 * len(rows))
    axes = figure.subplots()
    for (kind, color), hatch in zip(_coloured(groups).items(), cycle(HATCHES), strict=False):
        chosen = [place for place, group in enumerate(groups) if group == kind]
        lengths = [rows[place][1] / size for place in chosen]
        bars = axes.barh(chosen, lengths, color=color, hatch=hatch, edgecolor="white", label=kind)
        axes.bar_label(bars, [in_bytes(rows[place][1]) for place in chosen], padding=4)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlabel(f"kept for the backward pass ({unit})")
    axes.spines[["top", "right"]].set_visible(False)
    if kinds is not None:
        axes.legend(frameon=False)
    return figure


def _coloured(groups: Sequence[str]) -> dict[str, str]:
    """A colour for each group, in the order in which they first stand."""
    return dict(zip(dict.fromkeys(groups), cycle(COLOURS), strict=False))


def in_bytes(count: int) -> str:
    """`900 B`, `1.5 KiB`, `32 MiB`: three significant digits, more where the number has them before the point."""
    unit, size = byte_unit(count)
    return f"{count / size:.0f} {unit}" if count >= 1000 * size else f"{count / size:.3g} {unit}"


def byte_unit(count: int) -> tuple[str, int]:
    """The greatest unit that `count` bytes fill, and its bytes."""
    return next(((unit, size) for unit, size in UNITS if count >= size), ("B", 1))


def training_curves(
    losses: Mapping[str, Sequence[float]],
    accuracies: Mapping[str, Mapping[int, float]] | None = None,
    *,
    title: str,
    floor: float | None = None,
) -> Figure:
    """Loss over the steps of training, and beside it accuracy where it is given.

    losses      by name of the curve: the loss of each step, in nats; the first step is 1
    accuracies  by name of the curve: {step: share of right answers, 0 to 1}
    floor       the least loss that any model can reach, in nats
    """
    figure = picture(title, 3.6)
    left, *right = figure.subplots(1, 2 if accuracies else 1, squeeze=False).ravel()
    for (name, loss), color, line in zip(losses.items(), cycle(COLOURS), cycle(LINES), strict=False):
        left.plot(range(1, len(loss) + 1), loss, line, color=color, linewidth=1.4, label=name)
    if floor is not None:
        left.axhline(
            floor, color="black", linewidth=1, linestyle=(0, (1, 2)), label="perfect model: the lowest possible mean"
        )
    _label(left, "loss (nats)", legend=len(losses) > 1 or floor is not None)
    left.set_ylim(bottom=0)
    if accuracies:
        _accuracy(right[0], accuracies)
    return figure


def _accuracy(axes: Axes, accuracies: Mapping[str, Mapping[int, float]]) -> None:
    styles = zip(accuracies.items(), cycle(COLOURS), cycle(LINES), cycle(MARKERS), strict=False)
    for (name, shares), color, line, marker in styles:
        percent = [100 * share for share in shares.values()]
        axes.plot(list(shares), percent, line, color=color, marker=marker, markersize=5, label=name)
    _label(axes, "right answers (%)", legend=len(accuracies) > 1)
    axes.set_ylim(0, 103)


def _label(axes: Axes, quantity: str, *, legend: bool) -> None:
    axes.set_xlabel("step")
    axes.set_ylabel(quantity)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False)


def digit_grid(
    images: Tensor, labels: Tensor, predictions: Tensor | None = None, *, title: str = "", across: int = 10
) -> Figure:
    """Digits in rows of `across`, each under its label; with predictions, a wrong one stands in a frame.

    images       (N, 64) or (N, 8, 8), 0 is white and 1 is black
    labels       (N,)
    predictions  (N,): what a model said
    """
    rows = -(-len(images) // across)
    standard = f"{len(images)} digits, each under its label" + ("" if predictions is None else "; wrong ones framed")
    wide, high = round(WIDTH / across / PIXEL), SIDE + 4  # pixels from one digit to the next, room for a label included
    mosaic = torch.zeros(rows * high, across * wide)
    figure = picture(title or standard, 0.6 + 1.05 * rows)
    axes = figure.subplots()
    axes.set_axis_off()
    for number, image in enumerate(images.detach().cpu().reshape(-1, SIDE, SIDE)):
        top, left = number // across * high + high - SIDE, number % across * wide + (wide - SIDE) // 2
        mosaic[top : top + SIDE, left : left + SIDE] = image
        label = int(labels[number])
        said = label if predictions is None else int(predictions[number])
        words = f"{label}" if said == label else f"{label} read as {said}"
        axes.text(left + SIDE / 2, top - 1, words, fontsize=10, horizontalalignment="center")
        if said != label:
            frame = Rectangle((left, top), SIDE, SIDE, fill=False, color=COLOURS[5], linewidth=3, clip_on=False)
            axes.add_patch(frame)
    axes.imshow(mosaic.numpy(), cmap="gray_r", vmin=0, vmax=1, extent=(0, across * wide, rows * high, 0))
    return figure
