"""Wrong ways to write `factored_second_moment`: the estimate here, what is kept beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import factored_second_moment_kept
from autograder.misconceptions.optimizers.factored_second_moment_kept import both, demand, update


def rows_with_rows(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """An outer product of rows with itself."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, rows) / rows.mean()


def row_means_into_both(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The means along the rows go into cols too: of a wrong length unless g is square."""
    mean = g.square().mean(1)
    rows.mul_(beta2).add_(mean, alpha=1 - beta2)
    cols.mul_(beta2).add_(mean, alpha=1 - beta2)
    return torch.outer(rows, cols) / rows.mean()


def not_normalised(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The outer product alone: the size of g**2 is in it twice."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols)


def normalised_by_the_sum(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The paper's denominator, which belongs to sums."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / rows.sum()


def normalised_by_the_columns_sum(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The same with the other sum."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / cols.sum()


def normalised_by_both_means(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Divides each factor by its mean: no size is left."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows / rows.mean(), cols / cols.mean())


def normalised_by_the_root(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The root of the mean."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / rows.mean().sqrt()


def normalised_by_this_gradient(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The mean of this step's squares, where rows and cols remember others."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / g.square().mean()


def of_this_gradient_only(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The averages are kept and not used."""
    squared = g.square()
    update(rows, cols, squared, beta2)
    return torch.outer(squared.mean(1), squared.mean(0)) / squared.mean()


def estimate_first(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """From what is there before this gradient: 0 / 0 at the first step."""
    estimate = torch.outer(rows, cols) / rows.mean()
    update(rows, cols, g.square(), beta2)
    return estimate


def columns_by_rows(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The outer product the other way round: shape (c, r)."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(cols, rows) / rows.mean()


def takes_the_root(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The root that the step will divide by."""
    update(rows, cols, g.square(), beta2)
    return (torch.outer(rows, cols) / rows.mean()).sqrt()


def divides_the_gradient(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The step itself."""
    update(rows, cols, g.square(), beta2)
    return g / (torch.outer(rows, cols) / rows.mean()).sqrt()


def corrects_a_bias(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Adam's correction at its first step, every time."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / rows.mean() / (1 - beta2)


def in_float64(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Right, and finer than asked."""
    demand(g, rows, cols, beta2)
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows.double(), cols.double()) / rows.double().mean()


def in_float32(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """A result that was made without a dtype."""
    demand(g, rows, cols, beta2)
    update(rows, cols, g.square(), beta2)
    estimate = torch.zeros(g.shape, dtype=torch.float32)
    estimate.copy_(torch.outer(rows, cols) / rows.mean())
    return estimate


MISCONCEPTIONS = (
    *factored_second_moment_kept.MISCONCEPTIONS,
    Misconception(
        name="rows_twice",
        witnesses=(*both(rows_with_rows), *both(row_means_into_both)),
        hint="rows are in your result twice, and the columns of g**2 nowhere. Entry (i, j) needs the mean of row i, "
        "along dimension 1, and the mean of column j, along dimension 0.",
    ),
    Misconception(
        name="no_normaliser",
        witnesses=both(not_normalised),
        hint="rows times cols holds the overall size of g**2 twice: where all of g is 3, every entry becomes 81 in "
        "place of 9. Divide by the mean of rows, once.",
    ),
    Misconception(
        name="normalised_by_the_sum",
        witnesses=(*both(normalised_by_the_sum), *both(normalised_by_the_columns_sum)),
        hint="The sum as denominator belongs to row and column *sums*, which the paper keeps. For means it must be the "
        "mean; else the estimate shrinks as the matrix grows.",
    ),
    Misconception(
        name="normalised_by_something_else",
        witnesses=(*both(normalised_by_both_means), *both(normalised_by_the_root)),
        hint="Of the two sizes in the product one must stay. Divide by the mean of rows once: not by the mean of cols "
        "as well, and not by its root.",
    ),
    Misconception(
        name="normaliser_of_this_gradient",
        witnesses=both(normalised_by_this_gradient),
        hint="You divide by the mean of this step's squares. rows and cols are averages over many steps, so the size "
        "to divide out is that of the average: the mean of rows.",
    ),
    Misconception(
        name="this_gradient_only",
        witnesses=both(of_this_gradient_only),
        hint="You update rows and cols, and then estimate from this step's means. The estimate is of the moving "
        "average: use rows and cols.",
    ),
    Misconception(
        name="estimate_before_update",
        witnesses=both(estimate_first),
        hint="Your estimate does not know this g yet, and at the first step it is 0 / 0, nan. First update rows and "
        "cols, then multiply.",
    ),
    Misconception(
        name="transposed",
        witnesses=both(columns_by_rows),
        hint="Your estimate has the shape (c, r): the transpose. Its rows go with `rows`: that is the first factor of "
        "the outer product.",
    ),
    Misconception(
        name="more_than_the_estimate",
        witnesses=(*both(takes_the_root), *both(divides_the_gradient), *both(corrects_a_bias)),
        hint="What is asked for is the second moment itself. The root, the division of g by it, and any correction are "
        "the caller's; Adafactor needs no correction, because its beta2 is 0 at the first step.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(in_float64, in_float32),
        fails=("dtype_of_g",),
        hint="Your numbers are right, but not in the dtype of g. A product of rows and cols has it by itself; "
        "torch.zeros makes float32 unless told otherwise, .double() float64.",
    ),
)
