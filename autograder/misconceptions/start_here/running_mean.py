"""Wrong ways to write `running_mean`."""

from __future__ import annotations

from itertools import accumulate

from autograder.bank import Misconception


def divides_by_all(xs: list[float]) -> list[float]:
    """Every sum is divided by the length of the whole list."""
    return [total / len(xs) for total in accumulate(xs)]


def running_sum(xs: list[float]) -> list[float]:
    """The division is missing."""
    return list(accumulate(xs))


def counts_from_zero(xs: list[float]) -> list[float]:
    """`enumerate` without a start: the first sum is divided by 0."""
    return [total / index for index, total in enumerate(accumulate(xs))]


def counts_from_zero_guarded(xs: list[float]) -> list[float]:
    """The same, with a guard against the division by 0: sums of 2 numbers are divided by 1, of 3 by 2."""
    return [total / max(index, 1) for index, total in enumerate(accumulate(xs))]


def never_counts(xs: list[float]) -> list[float]:
    """The count starts at 0 and stays there."""
    means = []
    total, count = 0.0, 0
    for x in xs:
        total += x
        means.append(total / count)
    return means


def stops_one_early(xs: list[float]) -> list[float]:
    """`range(1, n)` ends at n - 1: the mean of all numbers is missing."""
    return [sum(xs[:count]) / count for count in range(1, len(xs))]


def leaves_out_the_newest(xs: list[float]) -> list[float]:
    """`xs[:index]` ends before the number at `index`: the sum is one number behind its count."""
    return [sum(xs[:index]) / (index + 1) for index in range(len(xs))]


def halves_with_the_last_mean(xs: list[float]) -> list[float]:
    """The mean of the last mean and the newest number."""
    means: list[float] = []
    for x in xs:
        means.append((means[-1] + x) / 2 if means else x)
    return means


def halves_from_zero(xs: list[float]) -> list[float]:
    """The same, with a mean of 0 before the first number."""
    means: list[float] = []
    mean = 0.0
    for x in xs:
        mean = (mean + x) / 2
        means.append(mean)
    return means


def restarts_the_sum(xs: list[float]) -> list[float]:
    """`total = 0` stands inside the loop, so only the newest number is left in it."""
    means = []
    for count, x in enumerate(xs, start=1):
        total = 0.0
        total += x
        means.append(total / count)
    return means


def divides_each_number(xs: list[float]) -> list[float]:
    """No sum at all."""
    return [x / count for count, x in enumerate(xs, start=1)]


def starts_with_the_first_number(xs: list[float]) -> list[float]:
    """Takes the first number out before the loop: an empty list has none."""
    total = xs[0]
    means = [total]
    for count, x in enumerate(xs[1:], start=2):
        total += x
        means.append(total / count)
    return means


def mean_of_all(xs: list[float]) -> float:
    """One number, the mean of the whole list, in place of a list of means."""
    return sum(xs) / len(xs)


def mean_of_all_guarded(xs: list[float]) -> float:
    """The same, with 0 for an empty list."""
    return sum(xs) / max(len(xs), 1)


MISCONCEPTIONS = (
    Misconception(
        name="divides_by_all",
        witnesses=(divides_by_all,),
        hint="Your sums are right, and only the last mean is. The sum of the first k numbers holds k "
        "numbers, not all of them: divide by how many you have added so far.",
    ),
    Misconception(
        name="running_sum",
        witnesses=(running_sum,),
        hint="These are sums, not means: each must still be divided by how many numbers it holds.",
    ),
    Misconception(
        name="off_by_one",
        witnesses=(counts_from_zero, counts_from_zero_guarded, never_counts, stops_one_early, leaves_out_the_newest),
        hint="Sum and count do not go together: one is a step behind the other, or never grows. The first mean is "
        "one number divided by 1, the last is all n divided by n; but Python counts from 0: `enumerate(xs)` starts at "
        "0, `range(1, n)` ends at n - 1, and `xs[:i]` leaves out xs[i].",
    ),
    Misconception(
        name="halves_with_the_last_mean",
        witnesses=(halves_with_the_last_mean, halves_from_zero),
        hint="You take the mean of the last mean and the newest number, as if each counted the same. The "
        "mean so far stands for all earlier numbers and must weigh as much as they do: keep the sum and the "
        "count instead.",
    ),
    Misconception(
        name="restarts_the_sum",
        witnesses=(restarts_the_sum, divides_each_number),
        hint="Each of your means knows only its newest number: the sum is not carried on to the next round. Set it to "
        "0 once, before the loop, and add to it inside.",
    ),
    Misconception(
        name="one_mean_only",
        witnesses=(mean_of_all, mean_of_all_guarded),
        hint="You return one number, the mean of the whole list. What is asked for is a list: the mean "
        "after the first number, after the second, and so on, as many means as there are numbers.",
    ),
    Misconception(
        name="needs_a_first_number",
        witnesses=(starts_with_the_first_number,),
        hint="All means are right, but an empty list breaks your function: xs[0] does not exist there, and "
        "there is nothing to divide by. Start with a sum of 0 and an empty result, and let the loop do all "
        "the work.",
    ),
)
