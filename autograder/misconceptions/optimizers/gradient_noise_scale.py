"""Wrong ways to write `gradient_noise_scale`: what is done with the draws here, slips in the two formulas beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import noise_scale_formulas
from autograder.misconceptions.optimizers.noise_scale_formulas import (
    Estimates,
    both,
    from_means,
    from_size,
    mean_square,
    refusing,
    right,
    solve,
)


def ratio_of_each_pair(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """S and |G|^2 from one draw of each, divided at once; then means over the pairs."""
    pairs = zip(small.double().square().sum(1).tolist(), large.double().square().sum(1).tolist(), strict=False)
    found = [solve(one, other, b, B) for one, other in pairs]
    noise, gradient, ratio = (sum(each) / len(each) for each in zip(*found, strict=True))
    return noise, gradient, ratio


def ratio_of_rows(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """The same without a loop: raises where the numbers of draws differ."""
    one, other = small.double().square().sum(1), large.double().square().sum(1)
    gradient, noise = (B * other - b * one) / (B - b), (one - other) / (1 / b - 1 / B)
    return float(noise.mean()), float(gradient.mean()), float((noise / gradient).mean())


@from_means
def ratio_upside_down(one: float, other: float, b: int, B: int) -> Estimates:
    """|G|^2 over S."""
    noise, gradient, _ = solve(one, other, b, B)
    return noise, gradient, gradient / noise if noise else 0.0


@from_means
def gradient_of_the_large_batch(one: float, other: float, b: int, B: int) -> Estimates:
    """The large batch's squared norm as it is: too large by S / B."""
    noise, _, _ = solve(one, other, b, B)
    return noise, other, noise / other if other else 0.0


@from_means
def gradient_of_the_small_batch(one: float, other: float, b: int, B: int) -> Estimates:
    """The small batch's: too large by S / b."""
    noise, _, _ = solve(one, other, b, B)
    return noise, one, noise / one if one else 0.0


@from_size
def norms_of_the_mean(rows: Tensor) -> Tensor:
    """The mean over the draws first, then its squared norm: the noise is averaged away."""
    return rows.mean(0).square().sum()


def mean_of_the_large_only(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """S is right; the gradient is the squared norm of the mean over the large draws."""
    noise, gradient = right(small, large, b, B)[0], float(large.double().mean(0).square().sum())
    return noise, gradient, noise / gradient if gradient else 0.0


def variance_over_draws(small: Tensor, large: Tensor, b: int, B: int, correction: int = 1) -> Estimates:
    """b times the variance over the small draws: right on average, undefined for one draw, and no use of B."""
    noise = float(b * small.double().var(dim=0, correction=correction).sum())
    gradient = mean_square(small) - noise / b
    return noise, gradient, noise / gradient if gradient else 0.0


def variance_over_n(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """The same, divided by the number of draws."""
    return variance_over_draws(small, large, b, B, correction=0)


@from_size
def sums_over_draws(rows: Tensor) -> Tensor:
    """Totals where means belong."""
    return rows.square().sum()


@from_size
def means_over_entries(rows: Tensor) -> Tensor:
    """`.square().mean()` is over rows and columns: everything is d times too small, the ratio is right."""
    return rows.square().mean()


@from_size
def norms_not_squared(rows: Tensor) -> Tensor:
    """Norms have no such equations."""
    return rows.square().sum(1).sqrt().mean()


@from_size
def squares_the_mean_norm(rows: Tensor) -> Tensor:
    """The square after the mean over the draws."""
    return rows.square().sum(1).sqrt().mean().square()


@from_size
def reads_columns(rows: Tensor) -> Tensor:
    """Sums over the draws and averages over the d numbers."""
    return rows.square().sum(0).mean()


@refusing
def in_float32(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """Rounds what came."""
    return right(small.float(), large.float(), b, B)


@refusing
def rounded_to_float32(small: Tensor, large: Tensor, b: int, B: int) -> Estimates:
    """`torch.tensor` makes float32 of Python numbers."""
    means = [torch.tensor(rows.double().square().sum(1).tolist()).mean() for rows in (small, large)]
    return solve(float(means[0]), float(means[1]), b, B)


MISCONCEPTIONS = (
    *noise_scale_formulas.MISCONCEPTIONS,
    Misconception(
        name="ratio_per_draw",
        witnesses=(*both(ratio_of_each_pair), *both(ratio_of_rows)),
        hint="You divide for each draw and average the ratios. One draw's |G|^2 is near 0 or below it now and then, "
        "and its ratio is then huge or negative: the mean of such ratios says nothing. Average the squared norms of "
        "all draws first, and divide once. The two kinds of batches need not even have equally many draws.",
    ),
    Misconception(
        name="ratio_inverted",
        witnesses=both(ratio_upside_down),
        hint="Your ratio is |G|^2 / S. The noise scale is S / |G|^2, a number of examples: that many make the noise of "
        "a batch as large as the gradient. It grows with the noise.",
    ),
    Misconception(
        name="biased_by_the_noise",
        witnesses=(*both(gradient_of_the_large_batch), *both(gradient_of_the_small_batch)),
        hint="You take the squared norm of a batch gradient for |G|^2. It is too large by S / b, or S / B, on average, "
        "however many draws there are: noise squared does not cancel. Use both sizes to take it out.",
    ),
    Misconception(
        name="norm_of_the_mean",
        witnesses=(*both(norms_of_the_mean), *both(mean_of_the_large_only)),
        hint="You average the gradients over the draws and take the norm of the mean. That averages away the very "
        "noise which is to be measured. Square first: the norm of each draw, then the mean over the draws.",
    ),
    Misconception(
        name="variance_over_draws",
        witnesses=(*both(variance_over_draws), *both(variance_over_n)),
        hint="The variance over the draws of one batch size estimates S too, but it is another estimate: it has no use "
        "for the second size, and from one draw it has nothing to say. Here S comes from the difference of the two "
        "sizes.",
    ),
    Misconception(
        name="sums_over_draws",
        witnesses=both(sums_over_draws),
        hint="Your squared norms are added up over the draws, so that twice the draws give twice the noise. Sum over "
        "the d numbers of a row, and take the mean over the rows.",
    ),
    Misconception(
        name="means_over_entries",
        witnesses=both(means_over_entries),
        hint="`.mean()` without a dimension also averages over the d numbers of a gradient: S and |G|^2 come out d "
        "times too small, and only their ratio is right. A squared norm is a sum over dimension 1.",
    ),
    Misconception(
        name="norms_not_squared",
        witnesses=(*both(norms_not_squared), *both(squares_the_mean_norm)),
        hint="The equation |G|^2 + S / b holds for the mean of the squared norm. For norms there is none, and the "
        "square of a mean is less than the mean of the squares: square each draw's norm before anything else.",
    ),
    Misconception(
        name="sums_the_draws_of_each_entry",
        witnesses=both(reads_columns),
        hint="Each row is a draw. You sum the squares over dimension 0, the draws, and average over the d numbers: it "
        "must be the other way round.",
    ),
    Misconception(
        name="rounded_to_float32",
        witnesses=(rounded_to_float32, in_float32),
        fails=("digits_of_float64",),
        hint="Your numbers are right to seven digits, though the draws have sixteen: somewhere they are rounded to "
        "float32, by .float() or by a torch.tensor made of Python numbers without a dtype.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(right, refusing(right, lowest=-1e-300), refusing(right, sizes=False)),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in another error. b_small must be less than "
        "b_large: else 1/b - 1/B is 0 or negative. And an estimate of |G|^2 that is 0 or negative must be refused with "
        "a ValueError that says what to do: take more draws or larger batches. A ratio would look like a measurement.",
    ),
)
