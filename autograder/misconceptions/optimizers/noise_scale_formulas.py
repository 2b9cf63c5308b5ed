"""Wrong ways to write `gradient_noise_scale`: slips in the two formulas that the mean squared norms go into.

Most come twice: with the refusals, and without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from autograder.bank import Misconception

Estimates: TypeAlias = tuple[float, float, float]
Estimate: TypeAlias = Callable[[Tensor, Tensor, int, int], Estimates]
Formula: TypeAlias = Callable[[float, float, int, int], Estimates]  # of the mean squared norms, small ones first


def solve(one: float, other: float, b: int, B: int) -> Estimates:
    """The right formulas; a ratio of 0 where there is none."""
    noise, gradient = (one - other) / (1 / b - 1 / B), (B * other - b * one) / (B - b)
    return noise, gradient, noise / gradient if gradient else 0.0


def mean_square(rows: Tensor) -> float:
    """The mean of the squared norms, rightly."""
    return float(rows.double().square().sum(1).mean())


def from_means(formula: Formula) -> Estimate:
    """The answer that puts the right means into this formula."""

    @functools.wraps(formula)
    def estimate(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
        return formula(mean_square(small), mean_square(large), b, B)

    return estimate


def from_size(size: Callable[[Tensor], Tensor]) -> Estimate:
    """The answer that puts something else than the means into the right formulas."""

    @functools.wraps(size)
    def estimate(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
        return solve(float(size(small.double())), float(size(large.double())), b, B)

    return estimate


def refusing(estimate: Estimate, *, lowest: float = 0.0, sizes: bool = True) -> Estimate:
    """The same answer, which refuses sizes in the wrong order, and a |G|^2 of `lowest` or less."""

    @functools.wraps(estimate)
    def answer(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
        if sizes and b >= B:
            raise ValueError(f"b_small must be less than b_large, got {b} and {B}")
        found = estimate(small, large, b, B)
        if found[1] <= lowest:
            raise ValueError("the estimate of |G|^2 must be positive: take more draws or larger batches")
        return found

    return answer


def both(estimate: Estimate) -> tuple[Estimate, Estimate]:
    """An answer with refusals and without."""
    return refusing(estimate), estimate


right = from_means(solve)


@from_means
def draws_exchanged(one: float, other: float, b: int, B: int) -> Estimates:
    """The small batches' norm is taken for the large ones'."""
    return solve(other, one, b, B)


@from_means
def weights_exchanged(one: float, other: float, b: int, B: int) -> Estimates:
    """b times the large norm less B times the small one: negative."""
    noise, gradient = solve(one, other, b, B)[0], (b * other - B * one) / (B - b)
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def weights_exchanged_sign_mended(one: float, other: float, b: int, B: int) -> Estimates:
    """The same, turned round so that it comes out positive."""
    noise, gradient = solve(one, other, b, B)[0], (B * one - b * other) / (B - b)
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def noise_not_divided(one: float, other: float, b: int, B: int) -> Estimates:
    """The difference of the norms is taken for S."""
    gradient = solve(one, other, b, B)[1]
    return one - other, gradient, (one - other) / gradient if gradient else 0.0


@from_means
def gradient_not_divided(one: float, other: float, b: int, B: int) -> Estimates:
    """B times one less b times the other is taken for |G|^2."""
    noise, gradient = solve(one, other, b, B)[0], B * other - b * one
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def nothing_divided(one: float, other: float, b: int, B: int) -> Estimates:
    """Both."""
    noise, gradient = one - other, B * other - b * one
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def noise_times_the_difference(one: float, other: float, b: int, B: int) -> Estimates:
    """Multiplies by 1/b - 1/B."""
    noise, gradient = (one - other) * (1 / b - 1 / B), solve(one, other, b, B)[1]
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def noise_over_the_sizes(one: float, other: float, b: int, B: int) -> Estimates:
    """Divides by B - b, as for |G|^2."""
    noise, gradient = (one - other) / (B - b), solve(one, other, b, B)[1]
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def noise_times_the_sizes(one: float, other: float, b: int, B: int) -> Estimates:
    """Multiplies by B - b: 1 / (1/b - 1/B) is not that."""
    noise, gradient = (one - other) * (B - b), solve(one, other, b, B)[1]
    return noise, gradient, noise / gradient if gradient else 0.0


@from_means
def noise_of_a_small_batch(one: float, other: float, b: int, B: int) -> Estimates:
    """S / b, the noise that one small batch has."""
    noise, gradient, _ = solve(one, other, b, B)
    return noise / b, gradient, noise / b / gradient if gradient else 0.0


@from_means
def noise_below_zero(one: float, other: float, b: int, B: int) -> Estimates:
    """The difference the other way round."""
    noise, gradient, ratio = solve(one, other, b, B)
    return -noise, gradient, -ratio


@from_means
def root_of_the_noise(one: float, other: float, b: int, B: int) -> Estimates:
    """A standard deviation where the variance belongs."""
    noise, gradient, _ = solve(one, other, b, B)
    root = max(noise, 0.0) ** 0.5
    return root, gradient, root / gradient if gradient else 0.0


@from_means
def root_of_both(one: float, other: float, b: int, B: int) -> Estimates:
    """A standard deviation over a norm."""
    noise, gradient = (max(each, 0.0) ** 0.5 for each in solve(one, other, b, B)[:2])
    return noise, gradient, noise / gradient if gradient else 0.0


def gradient_first(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """Right numbers in another order."""
    noise, gradient, ratio = refusing(right)(small, large, b, B)
    return gradient, noise, ratio


def gradient_first_unchecked(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """The same without refusals."""
    noise, gradient, ratio = right(small, large, b, B)
    return gradient, noise, ratio


MISCONCEPTIONS = (
    Misconception(
        name="sizes_exchanged",
        witnesses=(*both(draws_exchanged), weights_exchanged, *both(weights_exchanged_sign_mended)),
        hint="The batch sizes have changed places: the norms of the large batches belong to B, and B times the large "
        "norm less b times the small one makes S cancel. Small batches are noisier, so their norm is the larger one.",
    ),
    Misconception(
        name="not_divided",
        witnesses=(*both(noise_not_divided), *both(gradient_not_divided), *both(nothing_divided)),
        hint="The difference of the squared norms is S (1/b - 1/B), not yet S; and B times one less b times the other "
        "is (B - b) |G|^2. Divide by what stands in front.",
    ),
    Misconception(
        name="divided_by_something_else",
        witnesses=(
            *both(noise_times_the_difference),
            *both(noise_over_the_sizes),
            *both(noise_times_the_sizes),
            *both(noise_of_a_small_batch),
        ),
        hint="|G|^2 is right, S is not: the difference of the squared norms is S / b - S / B, that is S times (1/b - "
        "1/B). Divide by this number. S is the noise of one example, not of a batch.",
    ),
    Misconception(
        name="noise_below_zero",
        witnesses=both(noise_below_zero),
        hint="Your S is negative. The small batches have the larger squared norm, and 1/b is larger than 1/B: take "
        "both differences in the same order.",
    ),
    Misconception(
        name="deviation_for_variance",
        witnesses=(*both(root_of_the_noise), *both(root_of_both)),
        hint="S is a variance (the trace of the covariance of one example's gradient), and |G|^2 a squared norm. No "
        "root is taken of either.",
    ),
    Misconception(
        name="another_order",
        witnesses=(gradient_first, gradient_first_unchecked),
        hint="Your numbers are right, and stand in another order: the noise S first, then |G|^2, then S / |G|^2.",
    ),
)
