"""Wrong ways to write `gradient_noise_scale`: slips in the two formulas, then in what is done with the draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from autograder.bank import Misconception
from course.reference.optimizers.gradient_noise_scale import gradient_noise_scale as right

Estimates: TypeAlias = tuple[float, float, float]
Estimate: TypeAlias = Callable[[Tensor, Tensor, int, int], Estimates]
Formula: TypeAlias = Callable[[float, float, int, int], tuple[float, float]]  # mean squared norms, b, B -> S, |G|^2


def solve(one: float, other: float, b: int, B: int) -> tuple[float, float]:
    """S and |G|^2, rightly, from the mean squared norms of the small and of the large batches."""
    return (one - other) / (1 / b - 1 / B), (B * other - b * one) / (B - b)


def with_ratio(noise: float, gradient: float) -> Estimates:
    """All three numbers; a ratio of 0 where there is none."""
    return noise, gradient, noise / gradient if gradient else 0.0


def mean_square(rows: Tensor) -> Tensor:
    """The mean of the squared norms."""
    return rows.square().sum(1).mean()


def estimate(formula: Formula = solve, size: Callable[[Tensor], Tensor] = mean_square) -> Estimate:
    """The answer that puts these sizes of the draws into this formula; it refuses nothing."""

    def answer(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
        return with_ratio(*formula(float(size(small.double())), float(size(large.double())), b, B))

    return answer


def refusing(wrong: Estimate) -> Estimate:
    """The same, where the mistake itself brings about a |G|^2 below 0, which is then refused."""

    def answer(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
        found = wrong(small, large, b, B)
        if found[1] <= 0:
            raise ValueError("the estimate of |G|^2 must be positive: take more draws or larger batches")
        return found

    return answer


def sum_over_draws(rows: Tensor) -> Tensor:
    """Totals where means belong."""
    return rows.square().sum()


def ratio_of_each_pair(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """S and |G|^2 from one draw of each, divided at once; then means over the pairs."""
    pairs = zip(small.double().square().sum(1).tolist(), large.double().square().sum(1).tolist(), strict=False)
    found = [with_ratio(*solve(one, other, b, B)) for one, other in pairs]
    noise, gradient, ratio = (sum(each) / len(each) for each in zip(*found, strict=True))
    return noise, gradient, ratio


def ratio_of_rows(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """The same without a loop: raises where the numbers of draws differ."""
    one, other = small.double().square().sum(1), large.double().square().sum(1)
    gradient, noise = (B * other - b * one) / (B - b), (one - other) / (1 / b - 1 / B)
    return float(noise.mean()), float(gradient.mean()), float((noise / gradient).mean())


def ratio_upside_down(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """|G|^2 over S."""
    noise, gradient, _ = estimate()(small, large, b, B)
    return noise, gradient, gradient / noise if noise else 0.0


def gradient_first(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """Right numbers in another order."""
    noise, gradient, ratio = estimate()(small, large, b, B)
    return gradient, noise, ratio


def mean_of_the_large_only(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """S is right; the gradient is the squared norm of the mean over the large draws."""
    return with_ratio(estimate()(small, large, b, B)[0], float(large.double().mean(0).square().sum()))


def variance_over_draws(small: Tensor, large: Tensor, b: int, B: int, correction: int = 1) -> Estimates:
    """b times the variance over the small draws: right on average, undefined for one draw, and no use of B."""
    noise = float(b * small.double().var(dim=0, correction=correction).sum())
    return with_ratio(noise, float(mean_square(small.double())) - noise / b)


def variance_over_n(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """The same, divided by the number of draws."""
    return variance_over_draws(small, large, b, B, correction=0)


def variance_for_the_noise_only(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """|G|^2 from both sizes, rightly."""
    return with_ratio(variance_over_draws(small, large, b, B)[0], estimate()(small, large, b, B)[1])


def variance_and_large_norm(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """S from the small draws alone, |G|^2 from the large ones alone, with their noise in it."""
    return with_ratio(variance_over_draws(small, large, b, B)[0], float(mean_square(large.double())))


def noise_refused(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """An error where it is negative."""
    found = estimate()(small, large, b, B)
    if found[0] < 0:
        raise ValueError("the estimate of S must not be negative: take more draws")
    return found


def in_float32(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """Rounds what came."""
    return right(small.float(), large.float(), b, B)


MISCONCEPTIONS = (
    Misconception(
        name="sizes_exchanged",
        witnesses=(
            estimate(lambda one, other, b, B: solve(other, one, b, B)),
            estimate(lambda one, other, b, B: (solve(one, other, b, B)[0], (b * other - B * one) / (B - b))),
            estimate(lambda one, other, b, B: (solve(one, other, b, B)[0], (B * one - b * other) / (B - b))),
            estimate(lambda one, other, b, B: (-solve(one, other, b, B)[0], solve(one, other, b, B)[1])),
        ),
        hint="The batch sizes have changed places. The norms of the large batches belong to B, and B times the large "
        "norm less b times the small one makes S cancel. Small batches are noisier: their norm is the larger one, and "
        "1/b is larger than 1/B, so that S is positive if both differences are taken in the same order.",
    ),
    Misconception(
        name="divided_by_something_else",
        witnesses=(
            estimate(lambda one, other, b, B: (one - other, solve(one, other, b, B)[1])),
            estimate(lambda one, other, b, B: (solve(one, other, b, B)[0], B * other - b * one)),
            estimate(lambda one, other, b, B: (one - other, B * other - b * one)),
            estimate(lambda one, other, b, B: ((one - other) * (1 / b - 1 / B), solve(one, other, b, B)[1])),
            estimate(lambda one, other, b, B: ((one - other) / (B - b), solve(one, other, b, B)[1])),
        ),
        hint="The difference of the squared norms is S / b - S / B, that is S times (1/b - 1/B), not yet S; and B "
        "times one less b times the other is (B - b) |G|^2. Divide each by just what stands in front. S is the noise "
        "of one example, not of a batch.",
    ),
    Misconception(
        name="another_order",
        witnesses=(gradient_first,),
        hint="Your numbers are right, and stand in another order: the noise S first, then |G|^2, then S / |G|^2.",
    ),
    Misconception(
        name="ratio_per_draw",
        witnesses=(ratio_of_each_pair, refusing(ratio_of_each_pair), ratio_of_rows),
        hint="You divide for each draw and average the ratios. One draw's |G|^2 is near 0 or below it now and then, "
        "and its ratio is then huge or negative: the mean of such ratios says nothing. Average the squared norms of "
        "all draws first, and divide once. The two kinds of batches need not even have equally many draws.",
    ),
    Misconception(
        name="ratio_inverted",
        witnesses=(ratio_upside_down,),
        hint="Your ratio is |G|^2 / S. The noise scale is S / |G|^2, a number of examples: that many make the noise of "
        "a batch as large as the gradient. It grows with the noise.",
    ),
    Misconception(
        name="biased_by_the_noise",
        witnesses=(
            estimate(lambda one, other, b, B: (solve(one, other, b, B)[0], other)),
            estimate(lambda one, other, b, B: (solve(one, other, b, B)[0], one)),
        ),
        hint="You take the squared norm of a batch gradient for |G|^2. It is too large by S / b, or S / B, on average, "
        "however many draws there are: noise squared does not cancel. Use both sizes to take it out.",
    ),
    Misconception(
        name="norm_of_the_mean",
        witnesses=(
            estimate(size=lambda rows: rows.mean(0).square().sum()),
            refusing(estimate(size=lambda rows: rows.mean(0).square().sum())),
            mean_of_the_large_only,
        ),
        hint="You average the gradients over the draws and take the norm of the mean. That averages away the very "
        "noise which is to be measured. Square first: the norm of each draw, then the mean over the draws.",
    ),
    Misconception(
        name="variance_over_draws",
        witnesses=(
            variance_over_draws,
            refusing(variance_over_draws),
            variance_over_n,
            variance_for_the_noise_only,
            variance_and_large_norm,
        ),
        hint="The variance over the draws of one batch size estimates S too, but it is another estimate: it has no use "
        "for the second size, and from one draw it has nothing to say. Here S comes from the difference of the two "
        "sizes.",
    ),
    Misconception(
        name="noise_cut_off_at_0",
        witnesses=(
            estimate(lambda one, other, b, B: (max(solve(one, other, b, B)[0], 0.0), solve(one, other, b, B)[1])),
            noise_refused,
        ),
        hint="A variance is not negative, but an estimate of it may be: it is too low by chance as it is too high. If "
        "you cut it off at 0, or refuse it, what is left is too high on average. Return it as it is; only |G|^2, by "
        "which you divide, must be positive.",
    ),
    Misconception(
        name="sum_or_mean_in_the_wrong_place",
        witnesses=(
            estimate(size=sum_over_draws),
            refusing(estimate(size=sum_over_draws)),
            estimate(size=lambda rows: rows.square().mean()),
        ),
        hint="A squared norm is a sum over the d numbers of a row, dimension 1; then comes a mean over the rows, which "
        "are the draws. `.sum()` without a dimension adds up the draws too, so that twice the draws give twice the "
        "noise; `.mean()` without one makes S and |G|^2 d times too small, and only their ratio is right.",
    ),
    Misconception(
        name="norms_not_squared",
        witnesses=(
            estimate(size=lambda rows: rows.norm(dim=1).mean()),
            estimate(size=lambda rows: rows.norm(dim=1).mean().square()),
        ),
        hint="The equation |G|^2 + S / b holds for the mean of the squared norm. For norms there is none, and the "
        "square of a mean is less than the mean of the squares: square each draw's norm before anything else.",
    ),
    Misconception(
        name="rounded_to_float32",
        witnesses=(in_float32,),
        fails=("digits_of_float64",),
        hint="Your numbers are right to seven digits, though the draws have sixteen: somewhere they are rounded to "
        "float32, by .float() or by a torch.tensor made of Python numbers without a dtype.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(estimate(),),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in another error. b_small must be less than "
        "b_large: else 1/b - 1/B is 0 or negative. And an estimate of |G|^2 that is 0 or negative must be refused with "
        "a ValueError that says what to do: take more draws or larger batches. A ratio would look like a measurement.",
    ),
)
