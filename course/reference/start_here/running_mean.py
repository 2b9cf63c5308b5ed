"""The mean after each number: one sum, one count, one pass."""

from __future__ import annotations


def running_mean(xs: list[float]) -> list[float]:
    """Means of the first 1, 2, ..., n numbers: n floats in a new list, an empty one for an empty list. O(n)."""
    means = []
    total = 0.0
    for count, x in enumerate(xs, start=1):
        total += x
        means.append(total / count)
    return means
