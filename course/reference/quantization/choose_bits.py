"""Bits and groups of each layer under a budget: errors measured on calibration inputs, then a knapsack.

layer --each plan--> size, squared change of the loss --knapsack--> {bits spent: least error, and the plans}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

BITS, SHORT, STEP_BITS = (2, 3, 4, 6, 8), 8, 16
Plan: TypeAlias = tuple[int, int]  # bits, group


def choose_bits(layers: Sequence[tuple[Tensor, Tensor, Tensor]], budget: int) -> list[Plan]:
    """A plan for each (w, x, g), at most `budget` bits together, with the least sum of squared changes of the loss.

    w (m, n), x (k, n) and g (k, m): a plan changes a token's loss by g' (W - Q) x, to first order. The mean square is
    what the empirical Fisher information makes of W - Q, and stands for twice the rise of the mean loss.
    Exact for these tokens; sums that another one beats in both size and error are dropped.
    Source: Kellerer, Pferschy and Pisinger, Knapsack Problems (2004), chapter 11, on multiple choice.
    """
    front: list[tuple[int, float, list[Plan]]] = [(0, 0.0, [])]
    for w, x, g in layers:
        offers = list(_offers(w.double(), x.double(), g.double()))
        longer = [
            (spent + size, error + more, [*plans, plan])
            for spent, error, plans in front
            for size, more, plan in offers
            if spent + size <= budget
        ]
        front, least = [], float("inf")
        for each in sorted(longer):
            if each[1] < least:
                front.append(each)
                least = each[1]
    return front[-1][2]


def _offers(w: Tensor, x: Tensor, g: Tensor) -> Iterator[tuple[int, float, Plan]]:
    """Size in bits, mean squared change of a token's loss, and the plan."""
    m, n = w.shape
    for bits in BITS:
        for group in sorted({SHORT, n}):
            near = torch.cat([_rounded(part, bits) for part in torch.split(w, group, dim=1)], dim=1)
            error = float(((x @ (w - near).T) * g).sum(1).square().mean())
            yield m * (n * bits + STEP_BITS * -(-n // group)), error, (bits, group)


def _rounded(part: Tensor, bits: int) -> Tensor:
    """The nearest multiples of a step for each row, whose largest entry has the last code."""
    step = part.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(step > 0, (part / step).round() * step, 0.0)
