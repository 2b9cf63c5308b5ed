"""Right and wrong ways to write `running_mean`."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.start_here.running_mean import running_mean


def numpys_sums(xs: list[float]) -> list[Any]:
    """A list of numpy's numbers in place of Python's."""
    return list(np.cumsum(xs) / np.arange(1, len(xs) + 1))


def torchs_default_dtype(xs: list[float]) -> list[float]:
    """Computes in float32."""
    return [float(mean) for mean in torch.tensor(xs).cumsum(0) / torch.arange(1, len(xs) + 1)]


def fractions(xs: list[float]) -> tuple[Fraction, ...]:
    """Exact fractions in a tuple."""
    return tuple(total / count for count, total in enumerate(accumulate(map(Fraction, xs)), start=1))


def sums_each_slice(xs: list[float]) -> list[float]:
    """Every mean from scratch: quadratic, and right."""
    return [sum(xs[:count]) / count for count in range(1, len(xs) + 1)]


def moves_the_mean(xs: list[float]) -> list[float]:
    """Each number moves the mean by its share (Welford's update), and no sum is kept."""
    means: list[float] = []
    mean = 0.0
    for count, x in enumerate(xs, start=1):
        mean += (x - mean) / count
        means.append(mean)
    return means


RIGHT = (
    right(numpys_sums, independent="numpy.cumsum"),
    right(torchs_default_dtype),
    right(fractions),
    right(sums_each_slice),
    right(moves_the_mean),
)

sums = partial(edited, running_mean)
slices = partial(edited, sums_each_slice)
moves = partial(edited, moves_the_mean)

MEAN, FROM_ONE = "total / count", ", start=1"
HALVED = ("total += x", "total = (total + x) / 2 if means else x"), (MEAN, "total")
FIRST_APART = (
    ("means = []", "means = [xs[0]]"),
    ("total = 0.0", "total = xs[0]"),
    ("enumerate(xs, start=1)", "enumerate(xs[1:], start=2)"),
)

WRONG = (
    wrong(
        "divides_by_all",
        "Your sums are right, and only the last mean is. The sum of the first k numbers holds k numbers, not all of "
        "them: divide by how many you have added so far.",
        sums((MEAN, "total / len(xs)")),
    ),
    wrong(
        "running_sum",
        "These are sums, not means: each must still be divided by how many numbers it holds.",
        sums((MEAN, "total")),
    ),
    wrong(
        "off_by_one",
        "Sum and count do not go together: one is a step behind the other, or never grows. The first mean is one "
        "number divided by 1, the last is all n divided by n; but Python counts from 0: `enumerate(xs)` starts at 0, "
        "`range(1, n)` ends at n - 1, and `xs[:i]` leaves out xs[i].",
        sums((FROM_ONE, "")),
        sums((FROM_ONE, ""), (MEAN, "total / max(count, 1)")),
        slices(("len(xs) + 1", "len(xs)")),
        slices(("xs[:count]", "xs[:count - 1]")),
    ),
    wrong(
        "halves_with_the_last_mean",
        "You take the mean of the last mean and the newest number, as if each counted the same. The mean so far stands "
        "for all earlier numbers and must weigh as much as they do: keep the sum and the count instead.",
        sums(*HALVED),
        sums(*FIRST_APART, *HALVED),
        moves(("/ count", "/ 2")),
    ),
    wrong(
        "rounds",
        "Your means are right but for the digits that you cut off, by `round`, `//` or `int`. Return them as they are; "
        "rounding belongs where a number is shown.",
        sums((MEAN, "round(total / count, 2)")),
        sums((MEAN, "round(total / count, 1)")),
        sums((MEAN, "total // count")),
        sums((MEAN, "int(total / count)")),
    ),
    wrong(
        "returns_in_the_loop",
        "Your function ends in its first round: `return` stands inside the loop. Move it one level out, so that it "
        "comes after the last number, and for an empty list too.",
        sums(("    return means", "        return means")),
    ),
    wrong(
        "restarts_the_sum",
        "Each of your means knows only its newest number: the sum is not carried on to the next round. Set it to 0 "
        "once, before the loop, and add to it inside.",
        sums(("total += x", "total = 0.0\n        total += x")),
    ),
    wrong(
        "one_mean_only",
        "You return one number, the mean of the whole list. What is asked for is a list: the mean after the first "
        "number, after the second, and so on, as many means as there are numbers.",
        sums(("return means", "return total / len(xs)")),
        sums(("return means", "return total / max(len(xs), 1)")),
    ),
    wrong(
        "needs_a_first_number",
        "All means are right, but an empty list breaks your function: xs[0] does not exist there, and there is "
        "nothing to divide by. Start with a sum of 0 and an empty result, and let the loop do all the work.",
        sums(*FIRST_APART),
    ),
    wrong(
        "looks_up_the_place",
        "Where a number comes a second time, your count is that of its first place: `xs.index(x)` finds the first that "
        "is equal. Count the numbers as they come, with `enumerate(xs, start=1)`.",
        sums(("for count, x in enumerate(xs, start=1):", "for x in xs:\n        count = xs.index(x) + 1")),
    ),
    wrong(
        "overwrites_xs",
        "Your means are right, but they stand in `xs`, and the caller's numbers are gone. Start with an empty list, "
        "append to it, and return that one.",
        sums(("means.append(total / count)", "xs[count - 1] = total / count"), ("return means", "return xs")),
        sums(("means = []", "means = xs"), ("means.append(total / count)", "means[count - 1] = total / count")),
    ),
    wrong(
        "one_list_for_all_calls",
        "You keep one list, outside of the function or as a default argument, and fill it in every call: what an "
        "earlier caller holds changes with it. Begin with a new list inside of the function.",
        sums(("means = []", 'means = running_mean.__dict__.setdefault("means", [])\n    means.clear()')),
    ),
    wrong(
        "hands_xs_back",
        "For an empty list you return `xs` itself. The same means belong into a new list: start with `[]`, and let the "
        "loop fill it.",
        sums(("    means = []", "    if not xs:\n        return xs\n    means = []")),
    ),
)
