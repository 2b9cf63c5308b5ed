"""Logarithmic axes whose numbers are written in full: 0.5 and 2,000 instead of powers of ten."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

MOST_TICKS = 8  # of those that are given


def in_full(axis: Axis, ticks: Sequence[float] = (), subs: Sequence[float] = (1, 2, 5)) -> None:
    """Ticks at some of `ticks`, or at `subs` times powers of ten; the scale itself is set by the caller."""
    every = -(-len(ticks) // MOST_TICKS)
    axis.set_major_locator(FixedLocator(ticks[::every]) if ticks else LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_locator(NullLocator())
