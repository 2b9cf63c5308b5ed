"""Sums on a machine that keeps two decimal digits of every number.

running sum --add a term--> exact --keep two digits, ties to even--> running sum
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

KEEP_TWO = Context(prec=2, rounding=ROUND_HALF_EVEN)
TERMS = {
    "3.3 + 3.3 + 3.3 + …": Decimal("3.3"),
    "1 + 1 + 1 + …": Decimal(1),
    "0.33 + 0.33 + 0.33 + …": KEEP_TWO.divide(Decimal(1), Decimal(3)),  # what it has for 1/3
    "0.45 + 0.45 + 0.45 + …": Decimal("0.45"),
}
MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Step:
    """One addition: what was there, what comes out without rounding, and what the machine keeps of it."""

    before: Decimal
    exact: Decimal
    kept: Decimal


def running_sum(term: Decimal, count: int) -> list[Step]:
    """The steps of term + term + ... from the left, one for each term; the first begins at 0."""
    steps: list[Step] = []
    for _ in range(count):
        before = steps[-1].kept if steps else Decimal(0)
        exact = before + term
        steps.append(Step(before=before, exact=exact, kept=KEEP_TWO.plus(exact)))
    return steps


def stalls_at(steps: list[Step]) -> int | None:
    """The number of the first step, from 1, that leaves the sum as it was; None if each moves it."""
    return next((at for at, step in enumerate(steps, 1) if step.kept == step.before), None)
