"""Right and wrong ways to write `compensated_bound`."""

from __future__ import annotations

import math
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited


def all_losses_at_once(n: int, u: float) -> float:
    """With T the sum of all |lost| but the last, for a sum of magnitudes of 1: T <= (n - 1) u (1 + u + u T), solved."""
    carried = (n - 1) * u * (1 + u) / (1 - (n - 1) * u * u)
    last = u * (1 + u + u * carried)
    return u * (1 + carried) + last


def step_by_step(n: int, u: float) -> float:
    """What each step may lose, one after the other, for a sum of magnitudes of 1. No closed form."""
    error, lost, total = 0.0, 0.0, 0.0
    for _ in range(n):
        total += lost  # the losses that some y has taken up
        error = u * (1 + total)
        lost = u * (1 + error)
    return error + lost


def to_second_order(n: int, u: float) -> float:
    """In formats that round to nearest |d| is at most u / (1 + u), which pays for all terms of third order."""
    return 2 * u + n * u**2


def twice_the_second_order(n: int, u: float) -> float:
    """Each |s| at most 2 sum |x|, for short."""
    return 2 * u + 2 * n * u**2


def generous(n: int, u: float) -> float:
    """Each loss at most u (1 + n u) sum |x| by the size of s, and no geometric series."""
    return u * (1 + (1 + n * u) * (1 + u) / (1 - u - n * u * u))


RIGHT = (
    right(all_losses_at_once),
    right(step_by_step, independent="the step's own inequalities, applied n times: nothing is solved"),
    right(to_second_order),
    right(twice_the_second_order),
    right(generous),
)


def plain(n: int, u: float) -> float:
    """The bound of the plain sum."""
    return n * u


def pairwise(n: int, u: float) -> float:
    """The bound of the pairwise sum."""
    return math.ceil(math.log2(n)) * u


def loss_of_every_step(n: int, u: float) -> float:
    """As if the losses themselves added up."""
    return 2 * n * u


def first_order(n: int, u: float) -> float:
    """Without what is lost of the losses."""
    return 2 * u


def second_order(n: int, u: float) -> float:
    """Only what is lost of the losses."""
    return n * u * u


def squares_of_n(n: int, u: float) -> float:
    """Neumaier's second term."""
    return 2 * u + (n * u) ** 2


bound = partial(edited, all_losses_at_once)

WRONG = (
    wrong(
        "grows_like_n",
        "Your bound grows with n in its first term. In a plain sum every rounding of s stays in the result; here it is "
        "kept in `lost` and added again. Only the roundings of y, each of the size of one x, and the very last loss "
        "stay.",
        plain,
        edited(plain, ("n * u", "(n - 1) * u")),
        edited(plain, ("n * u", "n * u / (1 - n * u)")),
        loss_of_every_step,
    ),
    wrong(
        "grows_like_log_n",
        "log2(n) u bounds the pairwise sum. In a compensated sum a number goes through two roundings that count, "
        "however many others there are.",
        pairwise,
    ),
    wrong(
        "second_order_dropped",
        "2 u is what is left for u -> 0. A bound must hold for the u that is given. Which rounding sees lost, and how "
        "large may lost be?",
        first_order,
        edited(first_order, ("2 * u", "2 * u + u * u")),
        edited(first_order, ("2 * u", "2 * u + 4 * u * u")),
        bound(("u * (1 + carried) + last", "u + last")),
        bound(("(1 + carried)", "1")),
    ),
    wrong(
        "last_loss_forgotten",
        "Of the last step's loss nothing is added any more, and it may be u times the sum. Take s - sum x, not "
        "s + lost - sum x.",
        bound((" + last", "")),
        edited(first_order, ("2 * u", "u + n * u * u")),
    ),
    wrong(
        "roundings_of_y_forgotten",
        "Every y = fl(x + lost) is rounded too, and nothing keeps what this loses: at most u |x + lost| in each step.",
        bound(("u * (1 + carried) + last", "last")),
    ),
    wrong(
        "only_the_second_order",
        "n u^2 is how much may be lost of the losses. The roundings of y and the last loss come before it, each with "
        "one u.",
        second_order,
    ),
    wrong(
        "eps_for_u",
        "Your bound is twice as large as it has to be. u is the unit roundoff, half the distance eps from 1 to the "
        "next number: a rounding is off by at most half a distance.",
        bound(("carried = ", "u = 2 * u\n    carried = ")),
        edited(first_order, ("2 * u", "4 * u")),
        edited(first_order, ("2 * u", "4 * u + 4 * n * u * u")),
    ),
    wrong(
        "without_n",
        "Your bound is far from the best where n u is small: the error is near 2 u there. What is more than 2 u has to "
        "vanish with n u.",
        edited(first_order, ("2 * u", "3 * u")),
        edited(first_order, ("2 * u", "2.25 * u")),
    ),
    wrong(
        "n_squared",
        "n^2 u^2 bounds what is lost where all losses are added up apart, in a second sum. Here a loss is carried only "
        "to the next step. How large is one, and which part of it does the next step lose?",
        squares_of_n,
        edited(squares_of_n, ("2 * u", "u")),
    ),
)
