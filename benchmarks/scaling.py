"""Whether time and memory stay flat when the class grows, and what a second judge process brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import classes
from measuring import Cost, run, table
from rich.table import Table

MIB = 2**20


def by_size(root: Path, sizes: Sequence[int]) -> Table:
    """Classes of several sizes, each made of the same ten submissions again and again."""
    made = table(
        "graded calls, by size of the class",
        *("submissions", "CPU each", "wall each", "CPU of each further one", "coordinator's peak, MiB"),
        caption="each further one: beyond the class in the line above; it and the peak shall grow by less than 10%",
    )
    before: tuple[int, Cost] | None = None
    for size in sorted(sizes):
        cost = _graded(root, size, jobs=1)
        further = f"{(cost.cpu - before[1].cpu) / (size - before[0]):.3f}" if before else ""
        row = (f"{cost.cpu / size:.3f}", f"{cost.wall / size:.3f}", further, f"{cost.peak / MIB:.0f}")
        made.add_row(str(size), *row)
        before = (size, cost)
    return made


def by_jobs(root: Path, size: int, jobs: int = 2) -> Table:
    """The same class with one judge process and with several, in turns."""
    runs = [(number, _graded(root, size, jobs=number)) for number in (1, jobs, 1, jobs)]
    alone, shared = (sum(cost.wall for number, cost in runs if number == wanted) for wanted in (1, jobs))
    made = table(
        f"graded calls, {size} submissions, by jobs",
        *("jobs", "CPU each", "wall each"),
        caption=f"{jobs} jobs are {alone / shared:.2f} times as fast as one; wanted: 1.8",
    )
    for number, cost in runs:
        made.add_row(str(number), f"{cost.cpu / size:.3f}", f"{cost.wall / size:.3f}")
    return made


def _graded(root: Path, size: int, *, jobs: int) -> Cost:
    kinds = classes.samples()
    ten = [*classes.solved(kinds, 3), *classes.mixed(kinds, 7)]
    given = {f"s{number:05d}": ten[number % len(ten)] for number in range(size)}
    return run(classes.command(classes.make(root / "scaling", given), display=False, jobs=jobs), cwd=root)
