"""Wrong ways to write `running_mean`."""

from __future__ import annotations

import itertools
from itertools import accumulate

from autograder.bank import Misconception
from course.reference.start_here.running_mean import running_mean as right


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


def halves_after_the_first(xs: list[float]) -> list[float]:
    """The same, with the first number taken out before the loop."""
    means = [xs[0]]
    for x in xs[1:]:
        means.append((means[-1] + x) / 2)
    return means


def window_of_two(xs: list[float]) -> list[float]:
    """The mean of each number and the one before it."""
    return [xs[0]] + [(a + b) / 2 for a, b in itertools.pairwise(xs)]


def window_of_two_guarded(xs: list[float]) -> list[float]:
    """The same, with nothing for an empty list."""
    return window_of_two(xs) if xs else []


def weighs_the_newest_a_tenth(xs: list[float]) -> list[float]:
    """An exponential moving average, from 0."""
    return list(accumulate(xs, lambda mean, x: 0.9 * mean + 0.1 * x, initial=0.0))[1:]


def weighs_the_newest_a_tenth_after_the_first(xs: list[float]) -> list[float]:
    """The same, from the first number."""
    return list(accumulate(xs, lambda mean, x: 0.9 * mean + 0.1 * x))


def two_decimals(xs: list[float]) -> list[float]:
    """Rounded for reading."""
    return [round(mean, 2) for mean in right(xs)]


def one_decimal(xs: list[float]) -> list[float]:
    """The same, more roughly."""
    return [round(mean, 1) for mean in right(xs)]


def whole_numbers(xs: list[float]) -> list[float]:
    """`//` in place of `/`."""
    return [total // count for count, total in enumerate(accumulate(xs), start=1)]


def cut_to_whole_numbers(xs: list[float]) -> list[int]:
    """`int` of each mean."""
    return [int(mean) for mean in right(xs)]


def returns_in_the_loop(xs: list[float]) -> list[float] | None:
    """`return` stands one level too deep: an empty list gets None."""
    return right(xs)[:1] if xs else None


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
        witnesses=(halves_with_the_last_mean, halves_from_zero, halves_after_the_first),
        hint="You take the mean of the last mean and the newest number, as if each counted the same. The "
        "mean so far stands for all earlier numbers and must weigh as much as they do: keep the sum and the "
        "count instead.",
    ),
    Misconception(
        name="window_of_two",
        witnesses=(window_of_two, window_of_two_guarded),
        hint="You take the mean of the newest two numbers. Asked for is the mean of all numbers so far: the third "
        "mean is of three numbers, the fourth of four.",
    ),
    Misconception(
        name="moving_average",
        witnesses=(weighs_the_newest_a_tenth, weighs_the_newest_a_tenth_after_the_first),
        hint="You give the newest number a tenth of the weight, always: an exponential moving average, which forgets. "
        "In a mean all numbers so far weigh the same: divide their sum by their count.",
    ),
    Misconception(
        name="rounds",
        witnesses=(two_decimals, one_decimal, whole_numbers, cut_to_whole_numbers),
        hint="Your means are right but for the digits that you cut off, by `round`, `//` or `int`. Return them as they "
        "are; rounding belongs where a number is shown.",
    ),
    Misconception(
        name="returns_in_the_loop",
        witnesses=(returns_in_the_loop,),
        hint="Your function ends in its first round: `return` stands inside the loop. Move it one level out, so that "
        "it comes after the last number, and for an empty list too.",
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
