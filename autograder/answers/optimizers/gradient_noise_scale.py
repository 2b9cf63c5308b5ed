"""Right and wrong ways to write `gradient_noise_scale`."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from autograder.bank import Alternative, right, wrong
from autograder.edits import edited

Estimates = tuple[float, float, float]


def a_line_through_two_points(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """Mean squared norms lie on a line over 1 / batch size: its slope is S, and |G|^2 is where it begins."""
    if b_small >= b_large:
        raise ValueError("b_small must be less than b_large")
    norms = [np.linalg.norm(rows.double().numpy(), axis=1) for rows in (small, large)]
    noise, gradient = np.polyfit([1 / b_small, 1 / b_large], [np.mean(each**2) for each in norms], 1).tolist()
    if gradient <= 0:
        raise ValueError("take more draws or larger batches")
    return noise, gradient, noise / gradient


def two_formulas(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """In Python's numbers."""
    if b_small >= b_large:
        raise ValueError("b_small must be less than b_large")
    one, other = mean_square(small), mean_square(large)
    noise = (one - other) / (1 / b_small - 1 / b_large)
    gradient = (b_large * other - b_small * one) / (b_large - b_small)
    if gradient <= 0:
        raise ValueError("take more draws or larger batches")
    return noise, gradient, noise / gradient


def mean_square(rows: Tensor) -> float:
    """The mean of the squared norms."""
    return rows.double().square().sum(dim=1).mean().item()


def in_the_dtype_of_the_draws(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """Tensors to the end, with one matrix product for each size; |G|^2 is what the noise leaves of the large norm."""
    if b_large <= b_small:
        raise ValueError("b_small must be less than b_large")
    one, other = ((rows @ rows.mT).trace() / rows.shape[0] for rows in (small, large))
    noise = (one - other) * b_small * b_large / (b_large - b_small)
    gradient = other - noise / b_large
    if not gradient > 0:
        raise ValueError("the gradient is lost in the noise")
    return float(noise), float(gradient), float(noise / gradient)


RIGHT = (
    right(a_line_through_two_points, independent="numpy.polyfit"),
    right(two_formulas),
    right(in_the_dtype_of_the_draws),
    Alternative(
        name="one_sum_of_all_squares",
        answer=edited(in_the_dtype_of_the_draws, ("(rows @ rows.mT).trace()", "rows.flatten().dot(rows.flatten())")),
    ),
)


def ratio_of_each_pair(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """One division for each draw, and means over all that came of it."""
    found = []
    for a, b in zip(small.double(), large.double(), strict=False):
        one, other = a.square().sum().item(), b.square().sum().item()
        noise = (one - other) / (1 / b_small - 1 / b_large)
        gradient = (b_large * other - b_small * one) / (b_large - b_small)
        found.append((noise, gradient, noise / gradient))
    noise, gradient, ratio = (sum(each) / len(each) for each in zip(*found, strict=True))
    if gradient <= 0:
        raise ValueError("take more draws or larger batches")
    return noise, gradient, ratio


REFUSED = '    if gradient <= 0:\n        raise ValueError("take more draws or larger batches")\n'
SIZES = '    if b_small >= b_large:\n        raise ValueError("b_small must be less than b_large")\n'
BETWEEN, LEFT = " / (1 / b_small - 1 / b_large)", " / (b_large - b_small)"
NOISE, CROSSED = f"(one - other){BETWEEN}", "(b_large * other - b_small * one)"
GRADIENT = CROSSED + LEFT
RETURN = "return noise, gradient, noise / gradient"
MEAN_SQUARE = "square().sum(dim=1).mean()"
VARIANCE = "b_small * small.double().var(dim=0).sum().item()"

formulas = partial(edited, two_formulas)
lax = partial(edited, formulas((REFUSED, "")))  # does not yet refuse a |G|^2 below 0, where the slip brings one about

WRONG = (
    wrong(
        "sizes_exchanged",
        "The batch sizes have changed places. The norms of the large batches belong to B, and B times the large "
        "norm less b times the small one makes S cancel. Small batches are noisier: their norm is the larger one, and "
        "1/b is larger than 1/B, so that S is positive if both differences are taken in the same order.",
        formulas(("one, other =", "other, one =")),
        lax((CROSSED, "(b_small * other - b_large * one)")),
        formulas((CROSSED, "(b_large * one - b_small * other)")),
        formulas(("(one - other)", "(other - one)")),
        lax((BETWEEN, " / (1 / b_large - 1 / b_small)"), (GRADIENT, "one - noise / b_large")),
    ),
    wrong(
        "divided_by_something_else",
        "The difference of the squared norms is S / b - S / B, that is S times (1/b - 1/B), not yet S; and B "
        "times one less b times the other is (B - b) |G|^2. Divide each by just what stands in front. S is the noise "
        "of one example, not of a batch.",
        formulas((BETWEEN, "")),
        formulas((LEFT, "")),
        formulas((BETWEEN, ""), (LEFT, "")),
        formulas((BETWEEN, BETWEEN.replace("/", "*", 1))),
        formulas((BETWEEN, LEFT)),
        formulas((BETWEEN, " * b_small")),
        formulas((BETWEEN, " * b_large")),
        formulas((NOISE, "(one - gradient)")),
    ),
    wrong(
        "another_order",
        "Your numbers are right, and stand in another order: the noise S first, then |G|^2, then S / |G|^2.",
        formulas(("return noise, gradient", "return gradient, noise")),
    ),
    wrong(
        "ratio_per_draw",
        "You divide for each draw and average the ratios. One draw's |G|^2 is near 0 or below it now and then, "
        "and its ratio is then huge or negative: the mean of such ratios says nothing. Average the squared norms of "
        "all draws first, and divide once. The two kinds of batches need not even have equally many draws.",
        ratio_of_each_pair,
        edited(ratio_of_each_pair, (REFUSED, "")),
        lax((".mean().item()", ""), (RETURN, "return noise.mean(), gradient.mean(), (noise / gradient).mean()")),
    ),
    wrong(
        "ratio_inverted",
        "Your ratio is |G|^2 / S. The noise scale is S / |G|^2, a number of examples: that many make the noise of "
        "a batch as large as the gradient. It grows with the noise.",
        formulas(("noise / gradient", "gradient / noise")),
    ),
    wrong(
        "biased_by_the_noise",
        "You take the squared norm of a batch gradient for |G|^2. It is too large by S / b, or S / B, on average, "
        "however many draws there are: noise squared does not cancel. Use both sizes to take it out.",
        formulas((GRADIENT, "other")),
        formulas((GRADIENT, "one")),
    ),
    wrong(
        "norm_of_the_mean",
        "You average the gradients over the draws and take the norm of the mean. That averages away the very "
        "noise which is to be measured. Square first: the norm of each draw, then the mean over the draws.",
        formulas((MEAN_SQUARE, "mean(dim=0).square().sum()")),
        formulas((GRADIENT, "large.double().mean(dim=0).square().sum().item()")),
    ),
    wrong(
        "variance_over_draws",
        "The variance over the draws of one batch size estimates S too, but it is another estimate: it has no use "
        "for the second size, and from one draw it has nothing to say. Here S comes from the difference of the two "
        "sizes.",
        formulas((NOISE, VARIANCE), (GRADIENT, "one - noise / b_small")),
        lax((NOISE, VARIANCE), (GRADIENT, "one - noise / b_small")),
        formulas((NOISE, VARIANCE.replace("dim=0", "dim=0, correction=0")), (GRADIENT, "one - noise / b_small")),
        formulas((NOISE, VARIANCE)),
        formulas((NOISE, VARIANCE), (GRADIENT, "other")),
        formulas((NOISE, VARIANCE), (GRADIENT, "other - noise / b_large")),
    ),
    wrong(
        "noise_cut_off_at_0",
        "A variance is not negative, but an estimate of it may be: it is too low by chance as it is too high. If "
        "you cut it off at 0, take its absolute value or refuse it, what is left is too high on average. Return it and "
        "its ratio as they are; only |G|^2, by which you divide, must be positive.",
        formulas((NOISE, f"max({NOISE}, 0.0)")),
        formulas((NOISE, f"max({NOISE}, 1e-12)")),
        formulas((NOISE, f"abs({NOISE})")),
        formulas((NOISE, f"abs({NOISE})"), (GRADIENT, "other - noise / b_large")),
        formulas((RETURN, "return noise, gradient, max(noise, 0.0) / gradient")),
        formulas(("gradient <= 0", "gradient <= 0 or noise < 0")),
    ),
    wrong(
        "sum_or_mean_in_the_wrong_place",
        "A squared norm is a sum over the d numbers of a row, dimension 1; then comes a mean over the rows, which "
        "are the draws. `.sum()` without a dimension adds up the draws too, so that twice the draws give twice the "
        "noise; `.mean()` without one makes S and |G|^2 d times too small, and only their ratio is right.",
        formulas((MEAN_SQUARE, "square().sum()")),
        lax((MEAN_SQUARE, "square().sum()")),
        formulas((MEAN_SQUARE, "square().mean()")),
    ),
    wrong(
        "norms_not_squared",
        "The equation |G|^2 + S / b holds for the mean of the squared norm. For norms there is none, and the "
        "square of a mean is less than the mean of the squares: square each draw's norm before anything else.",
        formulas((MEAN_SQUARE, "norm(dim=1).mean()")),
        formulas((MEAN_SQUARE, "norm(dim=1).mean().square()")),
    ),
    wrong(
        "digits_lost_in_float64",
        "Only draws in float64 do not give all the digits that they should. .float() loses some, and so do a "
        "torch.tensor made of Python numbers without a dtype, round() and a constant that is slightly off: none of "
        "them belongs between the draws and the estimates.",
        formulas(("double", "float")),
        formulas((RETURN, "import torch\n    return tuple(torch.tensor([noise, gradient, noise / gradient]))")),
        formulas((RETURN, "import numpy\n    return float(numpy.float32(noise)), gradient, noise / gradient")),
        fails=("digits_of_float64", "every_scale"),
    ),
    wrong(
        "refuses_what_is_small",
        "You refuse a |G|^2 that is small, and above 0. There is no smallest one: float64 holds what float32 does not, "
        "and with small gradients the noise is small as well. Refuse 0 and less.",
        formulas(("if gradient <= 0", "import torch\n    if gradient < torch.finfo(torch.float32).tiny")),
        formulas(("if gradient <= 0", "if gradient < 1e-12")),
        fails=("every_scale",),
    ),
    wrong(
        "bounded_from_below",
        "A |G|^2 near 1e-16 does not come out as it is, and nonsense is not always refused. A bound from below, like "
        "max(..., 1e-12), does both: it makes a tiny estimate larger, and a negative one positive. Put no bound on it; "
        "refuse what is 0 or negative with a ValueError.",
        lax((GRADIENT, f"max({GRADIENT}, 1e-12)")),
        fails=("every_scale", "refuses_what_makes_no_sense"),
    ),
    wrong(
        "refuses_too_little",
        "Your numbers are right, but nonsense goes through, or ends in another error. b_small must be less than "
        "b_large: else 1/b - 1/B is 0 or negative. And an estimate of |G|^2 that is 0 or negative must be refused with "
        "a ValueError that says what to do: take more draws or larger batches. A ratio would look like a measurement.",
        lax((SIZES, "")),
        edited(in_the_dtype_of_the_draws, ("b_large <= b_small", "b_large < b_small")),
        fails=("refuses_what_makes_no_sense",),
    ),
)
