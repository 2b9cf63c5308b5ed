"""Ranks of adapters under a budget: a knapsack, matrix by matrix.

{numbers spent: least loss left} --next matrix, each of its r--> the same, without those that cost more and leave more
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Change: TypeAlias = tuple[tuple[int, int], Sequence[float], float]  # shape, singular values, sensitivity


def choose_ranks(changes: Sequence[Change], budget: int) -> list[int]:
    """One r for each matrix, at most `budget` numbers together, with the least loss left. Exact.

    The squares that the best factors leave out are the loss: Eckart and Young (1936). Cost: at most budget + 1 sums for
    each matrix and r; those that another one beats in both numbers and loss are dropped.
    Source: Kellerer, Pferschy and Pisinger, Knapsack Problems (2004), chapter 11, on multiple choice.
    """
    front: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    for (m, n), values, h in changes:
        left = [h * sum(value**2 for value in values[r:]) for r in range(len(values) + 1)]
        longer = [
            (spent + r * (m + n), loss + more, [*ranks, r])
            for spent, loss, ranks in front
            for r, more in enumerate(left)
            if spent + r * (m + n) <= budget
        ]
        front, least = [], float("inf")
        for each in sorted(longer):
            if each[1] < least:
                front.append(each)
                least = each[1]
    return front[-1][2]
