"""Stock nbgrader and this engine with one class, in turns.

Stock grades a group, then this engine the whole class twice, without and with the display run, then stock the next
group, and so on: a noisy minute of the machine meets both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import classes
import nbformat
from measuring import Cost, run
from nbgrader.api import Gradebook
from shares import shares
from stock import Stock
from stock_shares import shares as stock_shares

STOCK, LEAN, CALLS, DISPLAY = "stock", "stock, answers and tests only", "graded calls", "with display run"
WAYS = (STOCK, LEAN, CALLS, DISPLAY)


@dataclass(frozen=True)
class Way:
    """One way to grade a class of `count`: what starting costs, and the whole class, the start included (median run).

    pairs  CPU seconds per submission of each group or run, the start left out, in the order of measuring
    """

    start: Cost
    whole: Cost
    count: int
    pairs: tuple[float, ...]

    @property
    def cpu(self) -> float:
        """CPU seconds per submission, its part of the start included."""
        return self.whole.cpu / self.count

    @property
    def wall(self) -> float:
        """Wall seconds per submission, its part of the start included."""
        return self.whole.wall / self.count


class Comparison:
    """Both sides with one kind of class."""

    def __init__(self, root: Path, kind: str, submissions: Sequence[bytes], group: int) -> None:
        self.root, self.kind, self.submissions, self.group = root / kind, kind, submissions, group
        self.stocks = {
            STOCK: Stock(self.root / "stock", classes.LESSON),
            LEAN: Stock(self.root / "lean", classes.LESSON, lean=True),
        }
        for stock in self.stocks.values():
            stock.build(classes.source())
            for number, data in enumerate(submissions):
                stock.submit(self._student(number), nbformat.reads(data.decode(), as_version=4))  # type: ignore[no-untyped-call]

    def _student(self, number: int) -> str:
        return f"g{number // self.group}-{number:04d}"

    def measure(self) -> dict[str, Way]:
        """All ways, in turns."""
        groups = -(-len(self.submissions) // self.group)
        costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
        for number in range(groups):
            for way, stock in self.stocks.items():
                costs[way].append(stock.grade(f"g{number}-*"))
            for way in (CALLS, DISPLAY):
                costs[way].append(self._ours(way, self.submissions))
        return {
            **{way: self._stock_way(costs[way], self.stocks[way].grade("*")) for way in self.stocks},
            **{way: self._our_way(costs[way], self._ours(way, self.submissions[-1:])) for way in (CALLS, DISPLAY)},
        }

    def points(self) -> dict[str, list[float]]:
        """The scores of both sides, by student."""
        return {STOCK: _scores(self.stocks[STOCK].root), CALLS: _scores(self.root / CALLS)}

    def shares(self) -> dict[str, dict[str, float]]:
        """Where the time goes: CPU seconds of stock's kernel, and this engine's parts."""
        graded = self.stocks[STOCK].root / "autograded" / self._student(0) / classes.LESSON
        return {
            STOCK: stock_shares(graded / f"{classes.LESSON}.ipynb"),
            CALLS: dict(shares(self.root / "shares", self.submissions, display=False)),
            DISPLAY: dict(shares(self.root / "shares", self.submissions, display=True)),
        }

    def _ours(self, way: str, submissions: Sequence[bytes]) -> Cost:
        """The class graded anew, in a folder that knows nothing of earlier runs."""
        given = {self._student(number): data for number, data in enumerate(submissions)}
        root = classes.make(self.root / (way if len(given) > 1 else "one"), given)
        return run(classes.command(root, display=way == DISPLAY), cwd=self.root)

    def _stock_way(self, groups: Sequence[Cost], start: Cost) -> Way:
        """Each group has paid for a start of its own; a class pays one. `start` is a run in which all was graded."""
        again, count = len(groups) - 1, len(self.submissions)
        whole = Cost(
            cpu=sum(each.cpu for each in groups) - again * start.cpu,
            wall=sum(each.wall for each in groups) - again * start.wall,
            peak=max(each.peak for each in groups),
        )
        sizes = [min(self.group, count - self.group * number) for number in range(len(groups))]
        return Way(
            start, whole, count, tuple((each.cpu - start.cpu) / size for each, size in zip(groups, sizes, strict=True))
        )

    def _our_way(self, runs: Sequence[Cost], one: Cost) -> Way:
        """The start is what a class of one takes beyond its share of the others."""
        count = len(self.submissions)
        whole = Cost(
            cpu=statistics.median(each.cpu for each in runs),
            wall=statistics.median(each.wall for each in runs),
            peak=max(each.peak for each in runs),
        )
        start = Cost(
            cpu=(count * one.cpu - whole.cpu) / (count - 1),
            wall=(count * one.wall - whole.wall) / (count - 1),
            peak=one.peak,
        )
        return Way(start, whole, count, tuple((each.cpu - start.cpu) / count for each in runs))


def _scores(root: Path) -> list[float]:
    with Gradebook(f"sqlite:///{root}/gradebook.db") as gradebook:
        found = gradebook.find_assignment(classes.LESSON).submissions
        return [each.score for each in sorted(found, key=lambda each: each.student.id)]
