"""Fine-tuning with few numbers: losses over steps and over what is trained, and the singular values of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.ticker import NullLocator

from course.lessons.experiments.fine_tuning import Measured
from course.lessons.figures.charts import COLOURS, MARKERS, Picture, picture
from course.lessons.figures.convergence import DASHES

BYTES_OF_STATE = 8  # for each number trained: two moments in float32


def tuning_curves(measured: Measured, *, title: str) -> Picture:
    """The loss of each method over the steps, down to the floor."""
    figure = picture(title, 4.0)
    axes = figure.subplots()
    for place, each in enumerate(measured.methods):
        style: dict[str, Any] = {"color": (*COLOURS, "dimgrey")[place], "ls": (*DASHES, "-")[place], "ms": 5}
        mark = (*MARKERS, "v", "P", "X")[place]
        axes.plot(measured.steps, each.losses, marker=mark, markevery=(place, 6), label=each.name, **style)
    axes.axhline(measured.least, color="black", lw=1, label="floor")
    axes.set(xlabel="steps", ylabel="loss on southern text (nats per character)", yscale="log")
    _plainly(axes.yaxis, [0.4, 0.5, 0.7, 1, 2, 4])
    _tidy(axes)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def loss_over_numbers(measured: Measured, *, title: str) -> Picture:
    """What is left above the floor over the numbers trained, and over the optimizer's bytes, which go with them."""
    figure = picture(title, 4.0)
    axes = figure.subplots()
    lora = [each for each in measured.methods if each.name.startswith("LoRA")]
    axes.loglog(
        [each.numbers for each in lora], [each.losses[-1] - measured.least for each in lora], color=COLOURS[0], lw=1
    )
    for each in measured.methods:
        style = {"LoRA": (COLOURS[0], "o"), "full": (COLOURS[5], "s"), "last layer": (COLOURS[2], "^")}
        color, mark = style[each.name.partition(",")[0]]
        above = each.losses[-1] - measured.least
        axes.plot(each.numbers, above, mark, color=color, ms=8)
        name = each.name.removeprefix("LoRA, ")
        axes.annotate(name, (each.numbers, above), xytext=(0, 9), textcoords="offset points", ha="center")
    axes.set(xlabel="numbers that are trained", ylabel="loss above the floor (nats per character)")
    axes.margins(0.12, 0.2)
    _plainly(axes.yaxis, [0.02, 0.05, 0.1, 0.2, 0.5])
    _plainly(axes.xaxis, [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000])
    _tidy(axes)
    above_axis = axes.secondary_xaxis("top", functions=(_kilobytes, _numbers))
    above_axis.set_xlabel("kB of AdamW's moments")
    _plainly(above_axis.xaxis, [20, 50, 100, 200, 500, 1_000])
    return figure


def singular_values(values: Mapping[str, Sequence[float]], width: int, *, title: str) -> Picture:
    """The singular values of each change, as shares of its largest, by kind; and of normal numbers, for comparison.

    values  by matrix, such as `blocks.0.mlp.up.weight`, largest first
    width   of the model; the MLP is 4 times as wide inside
    """
    figure = picture(title, 3.6)
    parts = {"attention": ("attention", width), "mlp": ("MLP", 4 * width)}
    for axes, (part, (name, height)) in zip(figure.subplots(1, 2, sharey=True), parts.items(), strict=True):
        for each in (values[matrix] for matrix in values if f".{part}." in matrix):
            axes.semilogy(range(1, len(each) + 1), [v / each[0] for v in each], color=COLOURS[0], lw=0.9, alpha=0.6)
        (added,) = axes.plot([], [], color=COLOURS[0])
        drawn = torch.randn(height, width, generator=torch.Generator().manual_seed(0))
        chance = torch.linalg.svdvals(drawn)
        (random,) = axes.semilogy(range(1, width + 1), chance / chance[0], color=COLOURS[5], ls="--", lw=1.6)
        axes.set(xlabel="k", title=name, ylabel=r"$\sigma_k / \sigma_1$" if part == "attention" else "")
        _tidy(axes)
    labels = ["what tuning added", "normal numbers"]
    figure.legend([added, random], labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _plainly(axis: Any, ticks: Sequence[float]) -> None:
    """These ticks of a logarithmic axis, as people write them."""
    axis.set_ticks(ticks, labels=[f"{each:,g}" for each in ticks])
    axis.set_minor_locator(NullLocator())


def _kilobytes(numbers: Any) -> Any:
    return numbers * BYTES_OF_STATE / 1e3


def _numbers(kilobytes: Any) -> Any:
    return kilobytes * 1e3 / BYTES_OF_STATE


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
