"""Wrong ways to write `factored_second_moment`: what is kept in rows and cols, then the estimate, then g and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.reference.optimizers.factored_second_moment import factored_second_moment as right

Step: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Means: TypeAlias = Callable[[Tensor], Tensor]
Weights: TypeAlias = Callable[[float], tuple[float, float]]  # beta2 -> of what was there, and of what is new
Estimate: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # from g, and from rows and cols after their update


def row_means(g: Tensor) -> Tensor:
    """What rows take."""
    return g.square().mean(1)


def col_means(g: Tensor) -> Tensor:
    """What cols take."""
    return g.square().mean(0)


def moving_average(beta2: float) -> tuple[float, float]:
    """The right weights."""
    return beta2, 1 - beta2


def rank_one(g: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The right estimate."""
    return torch.outer(rows, cols) / rows.mean()


def stepping(
    into_rows: Means = row_means,
    into_cols: Means = col_means,
    *,
    weights: Weights = moving_average,
    estimate: Estimate = rank_one,
) -> Step:
    """The right step but for what is given; it refuses nothing."""

    def step(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
        old, new = weights(beta2)
        rows.mul_(old).add_(into_rows(g), alpha=new)
        cols.mul_(old).add_(into_cols(g), alpha=new)
        return estimate(g, rows, cols)

    return step


def new_tensors(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The names are bound to new tensors; the caller's stay as they are."""
    rows = beta2 * rows + (1 - beta2) * row_means(g)
    cols = beta2 * cols + (1 - beta2) * col_means(g)
    return rank_one(g, rows, cols)


def estimate_first(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """From what is there before this gradient: 0 / 0 at the first step."""
    estimate = rank_one(g, rows, cols)
    stepping()(g, rows, cols, beta2)
    return estimate


def squares_in_place(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """g is squared where it lies."""
    estimate = right(g, rows, cols, beta2)
    g.square_()
    return estimate


def in_float64(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Right, and in another dtype than g."""
    return right(g, rows, cols, beta2).double()


def in_float32(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """A result that was made without a dtype."""
    return right(g, rows, cols, beta2).float()


MISCONCEPTIONS = (
    Misconception(
        name="sums_for_means",
        witnesses=(
            stepping(lambda g: g.square().sum(1)),
            stepping(into_cols=lambda g: g.square().sum(0)),
            stepping(lambda g: g.square().sum(1), lambda g: g.square().sum(0)),
        ),
        hint="There is a sum where a mean belongs: rows hold the mean of g**2 along each row, cols the mean along each "
        "column. With sums in one of them the estimate grows with the size of the matrix.",
    ),
    Misconception(
        name="keeps_sums",
        witnesses=(
            stepping(
                lambda g: g.square().sum(1),
                lambda g: g.square().sum(0),
                estimate=lambda g, rows, cols: torch.outer(rows, cols) / rows.sum(),
            ),
        ),
        hint="Your estimate is right, and rows and cols hold sums, as the paper has it. Here, as in torch, they hold "
        "means, which do not grow with the other dimension; divide by the mean of rows then.",
    ),
    Misconception(
        name="square_forgotten",
        witnesses=(
            stepping(lambda g: g.mean(1), lambda g: g.mean(0)),
            stepping(lambda g: g.mean(1).square(), lambda g: g.mean(0).square()),
        ),
        hint="The second moment is the mean of the squares. The mean of g, or the square of that mean, is another "
        "number: entries of either sign cancel in it. Square entry by entry first.",
    ),
    Misconception(
        name="dimensions_exchanged",
        witnesses=(
            stepping(col_means, row_means),
            stepping(estimate=lambda g, rows, cols: torch.outer(cols, rows) / rows.mean()),
        ),
        hint="Rows and columns have changed places. rows have one number for each row, the mean along it, over "
        "dimension 1, and are the first factor of the outer product; cols have the means over dimension 0. Only for a "
        "square g does the other way fit at all.",
    ),
    Misconception(
        name="no_moving_average",
        witnesses=(
            stepping(weights=lambda beta2: (1 - beta2, beta2)),
            stepping(weights=lambda beta2: (0.0, 1.0)),
            stepping(weights=lambda beta2: (1.0, 1.0)),
            stepping(weights=lambda beta2: (beta2, 1.0)),
            stepping(weights=lambda beta2: (beta2, beta2 - 1)),
        ),
        hint="A moving average is beta2 times the old *plus* 1 - beta2 times the new: beta2, near 1, is the share of "
        "what was there before (torch's lerp_ takes the share of the new). Without one of the two weights it becomes a "
        "sum, which grows, or forgets; with a minus it goes below 0, and its root is nan.",
    ),
    Misconception(
        name="not_in_place",
        witnesses=(new_tensors,),
        hint="`rows = ...` gives a name in your function to a new tensor; the caller's rows stay what they were, and "
        "the next step begins anew. Change the tensors themselves: mul_, add_, lerp_, copy_.",
    ),
    Misconception(
        name="rows_twice",
        witnesses=(
            stepping(estimate=lambda g, rows, cols: torch.outer(rows, rows) / rows.mean()),
            stepping(into_cols=row_means),
        ),
        hint="rows are in your result twice, and the columns of g**2 nowhere. Entry (i, j) needs the mean of row i, "
        "along dimension 1, and the mean of column j, along dimension 0.",
    ),
    Misconception(
        name="no_normaliser",
        witnesses=(stepping(estimate=lambda g, rows, cols: torch.outer(rows, cols)),),
        hint="rows times cols holds the overall size of g**2 twice: where all of g is 3, every entry becomes 81 in "
        "place of 9. Divide by the mean of rows, once.",
    ),
    Misconception(
        name="root_of_the_product",
        witnesses=(stepping(estimate=lambda g, rows, cols: torch.outer(rows, cols).sqrt()),),
        hint="The root brings the unit of rows times cols back to that of g**2, but it flattens the matrix: a row "
        "whose squares are four times as large gets an estimate that is twice as large. Divide by the mean of rows in "
        "place of the root; then g**2 of rank one comes out exactly.",
    ),
    Misconception(
        name="normalised_by_the_sum",
        witnesses=(
            stepping(estimate=lambda g, rows, cols: torch.outer(rows, cols) / rows.sum()),
            stepping(estimate=lambda g, rows, cols: torch.outer(rows, cols) / cols.sum()),
        ),
        hint="The sum as denominator belongs to row and column *sums*, which the paper keeps. For means it must be the "
        "mean; else the estimate shrinks as the matrix grows.",
    ),
    Misconception(
        name="not_from_the_updated_averages",
        witnesses=(
            estimate_first,
            stepping(estimate=lambda g, rows, cols: torch.outer(rows, cols) / g.square().mean()),
            stepping(estimate=lambda g, rows, cols: torch.outer(row_means(g), col_means(g)) / g.square().mean()),
        ),
        hint="First update rows and cols, then estimate from these two and nothing else. From what they were before, "
        "the estimate does not know this g, and at the first step it is 0 / 0, nan; and this step's squares by "
        "themselves, as factors or as what you divide by, know nothing of the steps before.",
    ),
    Misconception(
        name="more_than_the_estimate",
        witnesses=(
            stepping(estimate=lambda g, rows, cols: rank_one(g, rows, cols).sqrt()),
            stepping(estimate=lambda g, rows, cols: g / rank_one(g, rows, cols).sqrt()),
        ),
        hint="What is asked for is the second moment itself. The root and the division of g by it are the caller's.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(in_float64, in_float32),
        fails=("dtype_of_g",),
        hint="Your numbers are right, but not in the dtype of g. A product of rows and cols has it by itself; "
        "torch.zeros makes float32 unless told otherwise, .double() float64.",
    ),
    Misconception(
        name="changes_the_gradient",
        witnesses=(squares_in_place,),
        fails=("gradient_unchanged",),
        hint="Your estimate is right, and g is gone: square_, or an out= that writes into it. The step still has to be "
        "made with g. Square into a new tensor.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(stepping(),),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in torch's own error. With beta2 = 1 nothing "
        "ever moves, below 0 it swings, and rows of one number would be broadcast without a word. Raise a ValueError, "
        "before anything is changed.",
    ),
)
