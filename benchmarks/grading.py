"""What grading costs: stock `nbgrader autograde` and this engine, on the same submissions to lesson 01.

    autograder build; python benchmarks/grading.py [--count 20] [--group 5] [--kinds solved mixed]
    python benchmarks/grading.py --scaling [--sizes 10 100 1000]

The first prints CPU and wall seconds per submission, the ratios, and where the time goes. Stock grades a group, then
this engine the whole class twice, without and with the display run, then stock the next group, and so on: a noisy
minute of the machine meets both. The second prints whether the time per submission and the coordinator's memory grow
with the class, and what a second judge process brings.

A start is paid once per command, by stock and by this engine alike: it is measured, shown, and shared by the whole
class. CPU seconds are the kernel's account of a control group that holds all processes of a command.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import classes
from comparison import STOCK, Comparison, Way
from measuring import machine, table
from rich.console import Console
from rich.table import Table
from scaling import by_jobs, by_size

NOTE = "ratio: CPU of stock / CPU of this. Wanted: 16 without start, 12 at 20, 15 at 100; 9 with the display run"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="submissions of each kind")
    parser.add_argument("--group", type=int, default=5, help="stock submissions between two runs of this engine")
    parser.add_argument("--kinds", nargs="+", choices=("solved", "mixed"), default=["solved", "mixed"])
    parser.add_argument("--scaling", action="store_true", help="measure classes of several sizes instead")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000], help="multiples of 10")
    given = parser.parse_args()
    console = Console(width=130)
    console.print(f"{machine()}; load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="hpml-benchmark-") as folder:
        if given.scaling:
            console.print(by_size(Path(folder), given.sizes))
            console.print(by_jobs(Path(folder), sorted(given.sizes)[len(given.sizes) // 2]))
        else:
            compare(console, Path(folder), given.kinds, given.count, given.group)


def compare(console: Console, root: Path, wanted: Sequence[str], count: int, group: int) -> None:
    """The tables of each kind of class. Raises RuntimeError where right answers did not get the same full marks."""
    kinds = classes.samples()
    for kind in wanted:
        submissions = {"solved": classes.solved, "mixed": classes.mixed}[kind](kinds, count)
        comparison = Comparison(root, kind, submissions, group)
        console.print(costs(kind, comparison.measure()))
        points = comparison.points()
        if kind == "solved" and len({score for scores in points.values() for score in scores}) != 1:
            raise RuntimeError(f"solved submissions must get the same points everywhere, got {points}")
        full = {side: sum(score == max(scores) for score in scores) for side, scores in points.items()}
        console.print(
            f"highest score of the class: {', '.join(f'{side} {number} times' for side, number in full.items())}"
        )
        console.print(where(kind, comparison.shares()))


def costs(kind: str, ways: dict[str, Way]) -> Table:
    """Seconds per submission of each way, and the ratios to stock."""
    count = ways[STOCK].count
    made = table(
        f"{count} {kind} submissions, seconds per submission (start shared by all)",
        *("way", "start: CPU", "CPU", "wall", "ratio", "ratio without start", "by pairs", "ratio of wall"),
        caption=NOTE,
    )
    for name, way in ways.items():
        stock = ways[STOCK]
        pairs = [one / other for one, other in zip(stock.pairs, way.pairs, strict=True)]
        each = statistics.mean(stock.pairs) / statistics.mean(way.pairs)
        made.add_row(
            *(name, f"{way.start.cpu:.2f}", f"{way.cpu:.2f}", f"{way.wall:.2f}", f"{stock.cpu / way.cpu:.1f}"),
            *(f"{each:.1f}", f"{min(pairs):.1f} to {max(pairs):.1f}", f"{stock.wall / way.wall:.1f}"),
        )
    return made


def where(kind: str, parts: dict[str, dict[str, float]]) -> Table:
    """Milliseconds per submission by part."""
    made = table(
        f"where the time goes, {kind}, milliseconds per submission",
        *("part", *parts),
        caption="stock: CPU of the kernel. This engine: load, clear up, perform and display are wall around the "
        "sandbox, the others CPU of the judge; the gradebook is not among them",
    )
    for part in dict.fromkeys(part for column in parts.values() for part in column):
        made.add_row(part, *[f"{1000 * column[part]:.0f}" if part in column else "" for column in parts.values()])
    return made


if __name__ == "__main__":
    main()
