"""Right and wrong ways to write `choose_ranks`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.lora.choose_ranks import choose_ranks

Changes = Sequence[tuple[tuple[int, int], Sequence[float], float]]


def a_table(changes: Changes, budget: int) -> list[int]:
    """NumPy's table: for every budget up to this one the most that is gained, and the last matrix's r for it."""
    gained = np.zeros(budget + 1)
    taken = []
    for (m, n), values, h in changes:
        gains = h * np.concatenate([[0.0], np.cumsum(np.square(values))])
        ways = np.full((len(gains), budget + 1), -np.inf)
        for r, more in enumerate(gains):
            cost = r * (m + n)
            if cost <= budget:
                ways[r, cost:] = gained[: budget + 1 - cost] + more
        gained = ways.max(axis=0)
        taken.append(ways.argmax(axis=0))
    chosen, room = [], budget
    for ((m, n), _, _), best in zip(reversed(changes), reversed(taken), strict=True):
        chosen.append(int(best[room]))
        room -= chosen[-1] * (m + n)
    return chosen[::-1]


def for_all_that_follow(changes: Changes, budget: int) -> list[int]:
    """Each matrix tries its ranks, and asks what the matrices after it make of the rest."""

    @functools.cache
    def best(at: int, room: int) -> tuple[float, tuple[int, ...]]:
        if at == len(changes):
            return 0.0, ()
        (m, n), values, h = changes[at]
        found = []
        for r in range(min(len(values), room // (m + n)) + 1):
            loss, others = best(at + 1, room - r * (m + n))
            found.append((loss + h * sum(value * value for value in values[r:]), (r, *others)))
        return min(found)

    return [*best(0, budget)[1]]


RIGHT = (right(a_table, independent="NumPy's table over all budgets"), right(for_all_that_follow))


def greedy_alone(changes: Changes, budget: int) -> list[int]:
    """The best ratio that fits, again and again."""
    ranks, room = [0] * len(changes), budget
    while True:
        ratios = []
        for index, ((m, n), values, h) in enumerate(changes):
            if ranks[index] < len(values) and m + n <= room:
                ratios.append((h * values[ranks[index]] ** 2 / (m + n), index))
        if not ratios:
            return ranks
        index = max(ratios)[1]
        ranks[index] += 1
        room -= sum(changes[index][0])


def one_for_all(changes: Changes, budget: int) -> list[int]:
    """The largest r for all."""
    r = budget // sum(m + n for (m, n), _, _ in changes)
    return [min(r, len(values)) for _, values, _ in changes]


def equal_shares(changes: Changes, budget: int) -> list[int]:
    """As many numbers for each matrix."""
    share = budget // len(changes)
    return [min(share // (m + n), len(values)) for (m, n), values, _ in changes]


def to_an_energy(changes: Changes, budget: int) -> list[int]:
    """Each matrix keeps the same part of its squares, as large a part as fits."""
    ranks = [0] * len(changes)
    for percent in range(1, 101):
        wanted = []
        for _, values, _ in changes:
            squares = np.cumsum(np.square(values))
            wanted.append(min(int(np.searchsorted(squares, squares[-1] * percent / 100)) + 1, len(values)))
        if sum(r * sum(shape) for r, (shape, _, _) in zip(wanted, changes, strict=True)) > budget:
            return ranks
        ranks = wanted
    return ranks


def one_after_another(changes: Changes, budget: int) -> list[int]:
    """All directions of the first matrix, then of the second."""
    ranks, room = [], budget
    for (m, n), values, _ in changes:
        ranks.append(min(len(values), room // (m + n)))
        room -= ranks[-1] * (m + n)
    return ranks


edit, by_ratio = partial(edited, choose_ranks), partial(edited, greedy_alone)
SQUARES, FITS = "h * sum(value**2 for value in values[r:])", "if spent + r * (m + n) <= budget"
RATIO, ROOM = "h * values[ranks[index]] ** 2 / (m + n)", " and m + n <= room"
PAYS = "room -= sum(changes[index][0])"


def leaving(loss: str, ratio: str) -> Answer:
    """Another loss, in the sums and in the ratios."""
    return edit((SQUARES, loss)) if loss else by_ratio((RATIO, ratio))


def both(loss: str, ratio: str) -> tuple[Answer, Answer]:
    """In both ways to write it."""
    return leaving(loss, ""), leaving("", ratio)


WRONG = (
    wrong(
        "greedy_alone",
        "You always take the direction that gains most for its numbers, and never look back. At the end room is left "
        "that nothing fills, where two cheaper directions would have been better than a dear one. Compare sums over "
        "all matrices.",
        greedy_alone,
    ),
    wrong(
        "stops_at_the_first",
        "You stop at the first direction that does not fit. A cheaper one of another matrix may still fit.",
        by_ratio(
            (ROOM, ""),
            (
                "index = max(ratios)[1]",
                "index = max(ratios)[1]\n        if sum(changes[index][0]) > room:\n            return ranks",
            ),
        ),
    ),
    wrong(
        "one_r_for_all",
        "You give the same r to all matrices. Some changes lie in few directions and others in many.",
        one_for_all,
        by_chance=True,  # whether the drawn ends have room for it
    ),
    wrong(
        "equal_shares",
        "You give as many numbers to each matrix. They differ in what a number gains.",
        equal_shares,
        one_after_another,
    ),
    wrong(
        "the_same_part_of_each",
        "You keep the same part of each matrix's squares. A part of a large change is worth more than the same part "
        "of a small one, and it may cost less.",
        to_an_energy,
        by_chance=True,  # whether one r for all is better still
    ),
    wrong(
        "sizes_ignored",
        "A direction costs m + n numbers, and you count each direction alike. Divide what it gains by what it costs.",
        by_ratio((RATIO, "h * values[ranks[index]] ** 2")),
    ),
    wrong(
        "price_of_the_product",
        "You take m n for the price. An adapter has r (m + n) numbers.",
        by_ratio((RATIO, "h * values[ranks[index]] ** 2 / (m * n)")),
    ),
    wrong(
        "sensitivity_ignored",
        "h is missing in your loss. The same error is worse in some matrices than in others.",
        *both("sum(value**2 for value in values[r:])", "values[ranks[index]] ** 2 / (m + n)"),
    ),
    wrong(
        "sensitivity_squared",
        "h stands in the loss once: it multiplies the squares, and is not squared itself.",
        *both("sum((h * value) ** 2 for value in values[r:])", "(h * values[ranks[index]]) ** 2 / (m + n)"),
    ),
    wrong(
        "sensitivity_upside_down",
        "You divide by h. Where it is large, what is left out costs more.",
        *both("sum(value**2 for value in values[r:]) / h", "values[ranks[index]] ** 2 / h / (m + n)"),
    ),
    wrong(
        "not_squared",
        "The squared error of a matrix is the sum of the squares of the singular values left out, not of the values.",
        *both("h * sum(values[r:])", "h * values[ranks[index]] / (m + n)"),
        by_chance=True,  # how much the drawn matrices punish it
    ),
    wrong(
        "the_smallest_kept",
        "You leave the largest singular values in the loss. The best factors of rank r keep the first r of them.",
        edit((SQUARES, "h * sum(value**2 for value in values[: len(values) - r])")),
        by_chance=True,  # whether one r for all is better still
    ),
    wrong(
        "one_factor_paid",
        "You pay for one of the two factors. Both A and B have numbers: r (m + n) together.",
        edit(("(spent + r * (m + n),", "(spent + r * m,"), (FITS, "if spent + r * m <= budget")),
        edit(("(spent + r * (m + n),", "(spent + r * n,"), (FITS, "if spent + r * n <= budget")),
    ),
    wrong(
        "square_assumed",
        "You take matrices to be square. Count m + n.",
        edit(("(spent + r * (m + n),", "(spent + r * 2 * m,"), (FITS, "if spent + r * 2 * m <= budget")),
        edit(
            ("(spent + r * (m + n),", "(spent + r * 2 * min(m, n),"), (FITS, "if spent + r * 2 * min(m, n) <= budget")
        ),
    ),
    wrong(
        "the_last_number_unused",
        "Ranks that need exactly the budget fit: compare with <=.",
        edit((FITS, FITS.replace("<=", "<"))),
        by_ratio((ROOM, " and m + n < room")),
    ),
    wrong(
        "a_number_too_many",
        "Your adapters may have more numbers than the budget. Ask whether a direction fits before you take it.",
        edit((FITS, FITS + " + 1")),
        by_ratio((ROOM, " and room > 0")),
    ),
    wrong(
        "never_all_directions",
        "You never give a matrix all of its directions. r may be as large as the smaller of m and n.",
        edit(("range(len(values) + 1)", "range(len(values))")),
        by_ratio(("< len(values)", "< len(values) - 1")),
        by_chance=True,  # whether the drawn budgets want all of one
    ),
    wrong(
        "never_none",
        "You give each matrix one direction at least. Some gain too little for their price: r = 0 is allowed.",
        edit(
            ("<= budget\n", "<= budget and r > 0\n"),
            ("return front[-1][2]", "return front[-1][2] if front else [0] * len(changes)"),
        ),
        by_chance=True,  # how much the drawn matrices punish it
    ),
)
