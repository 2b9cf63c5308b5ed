"""The bytes that ranks hold over a run, for several runs under one another."""

from __future__ import annotations

from collections.abc import Mapping

from course.cluster.account.ledger import Ledger
from course.lessons.figures.charts import Picture, picture
from course.lessons.figures.memory import memory_lines
from course.lessons.figures.spans import time_unit


def ledgers(found: Mapping[str, Ledger], *, title: str) -> Picture:
    """A panel for each run, by its name: bytes of tensors that each rank holds over time."""
    figure = picture(title, 0.6 + 1.75 * len(found))
    panels = figure.subplots(len(found), 1, squeeze=False).ravel()
    for (name, ledger), axes in zip(found.items(), panels, strict=True):
        word, unit = time_unit(ledger.makespan)
        memory_lines(axes, ledger, last=ledger.makespan, unit=unit)
        axes.set_title(name, loc="right", fontsize=10)
        axes.set_xlabel(f"time ({word})")
    return figure
