"""Wrong ways to write `factored_second_moment`: what is kept in rows and cols, and what is done to g.

Most come twice: with the refusals, and without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from autograder.bank import Misconception

Step: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def update(rows: Tensor, cols: Tensor, squared: Tensor, beta2: float) -> None:
    """The right update in place."""
    rows.mul_(beta2).add_(squared.mean(1), alpha=1 - beta2)
    cols.mul_(beta2).add_(squared.mean(0), alpha=1 - beta2)


def demand(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> None:
    """All refusals."""
    if not 0 <= beta2 < 1:
        raise ValueError(f"beta2 must lie in [0, 1), got {beta2}")
    if g.shape != (len(rows), len(cols)):
        raise ValueError("rows and cols must be as long as g has rows and columns")


def both(step: Step) -> tuple[Step, Step]:
    """An answer with refusals and without."""

    @functools.wraps(step)
    def refusing(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
        demand(g, rows, cols, beta2)
        return step(g, rows, cols, beta2)

    return refusing, step


def _keeping(row_means: Callable[[Tensor], Tensor], col_means: Callable[[Tensor], Tensor]) -> Step:
    """Right but for what goes into rows and cols, as functions of g."""

    def step(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
        rows.mul_(beta2).add_(row_means(g), alpha=1 - beta2)
        cols.mul_(beta2).add_(col_means(g), alpha=1 - beta2)
        return torch.outer(rows, cols) / rows.mean()

    return step


sums_in_rows = _keeping(lambda g: g.square().sum(1), lambda g: g.square().mean(0))
sums_in_cols = _keeping(lambda g: g.square().mean(1), lambda g: g.square().sum(0))
sums_in_both = _keeping(lambda g: g.square().sum(1), lambda g: g.square().sum(0))
means_of_g = _keeping(lambda g: g.mean(1), lambda g: g.mean(0))
means_of_sizes = _keeping(lambda g: g.abs().mean(1), lambda g: g.abs().mean(0))
squares_of_means = _keeping(lambda g: g.mean(1).square(), lambda g: g.mean(0).square())
dimensions_exchanged = _keeping(lambda g: g.square().mean(0), lambda g: g.square().mean(1))


def keeps_sums(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The paper's form: sums over the sum give the same estimate."""
    rows.mul_(beta2).add_(g.square().sum(1), alpha=1 - beta2)
    cols.mul_(beta2).add_(g.square().sum(0), alpha=1 - beta2)
    return torch.outer(rows, cols) / rows.sum()


def weights_exchanged(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """beta2 on the new, 1 - beta2 on the old."""
    update(rows, cols, g.square(), 1 - beta2)
    return torch.outer(rows, cols) / rows.mean()


def old_ones_forgotten(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """What was there is overwritten."""
    update(rows, cols, g.square(), 0.0)
    return torch.outer(rows, cols) / rows.mean()


def adds_up(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Adagrad: nothing decays."""
    rows.add_(g.square().mean(1))
    cols.add_(g.square().mean(0))
    return torch.outer(rows, cols) / rows.mean()


def new_ones_in_full(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The old decays, the new is added without its 1 - beta2."""
    rows.mul_(beta2).add_(g.square().mean(1))
    cols.mul_(beta2).add_(g.square().mean(0))
    return torch.outer(rows, cols) / rows.mean()


def minus_in_the_average(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The slip of some lecture notes: rows and cols go below 0."""
    rows.mul_(beta2).sub_(g.square().mean(1), alpha=1 - beta2)
    cols.mul_(beta2).sub_(g.square().mean(0), alpha=1 - beta2)
    return torch.outer(rows, cols) / rows.mean()


def new_tensors(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The names are bound to new tensors; the caller's stay as they are."""
    rows = beta2 * rows + (1 - beta2) * g.square().mean(1)
    cols = beta2 * cols + (1 - beta2) * g.square().mean(0)
    return torch.outer(rows, cols) / rows.mean()


def normalises_what_is_kept(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The division goes into rows, and into the next step."""
    update(rows, cols, g.square(), beta2)
    rows /= rows.mean()
    return torch.outer(rows, cols)


def squares_in_place(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """g is squared where it lies."""
    demand(g, rows, cols, beta2)
    update(rows, cols, g.square_(), beta2)
    return torch.outer(rows, cols) / rows.mean()


def writes_into_the_gradient(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The estimate is made in g's memory, and handed back."""
    demand(g, rows, cols, beta2)
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols, out=g).div_(rows.mean())


def refuses_nothing(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Right where everything is right."""
    update(rows, cols, g.square(), beta2)
    return torch.outer(rows, cols) / rows.mean()


def refuses_beta2_only(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Shapes are left to torch, which raises a RuntimeError."""
    if not 0 <= beta2 < 1:
        raise ValueError("beta2 must lie in [0, 1)")
    return refuses_nothing(g, rows, cols, beta2)


MISCONCEPTIONS = (
    Misconception(
        name="sums_for_means",
        witnesses=(*both(sums_in_rows), *both(sums_in_cols), *both(sums_in_both)),
        hint="There is a sum where a mean belongs: rows hold the mean of g**2 along each row, cols the mean along each "
        "column. With sums in one of them the estimate grows with the size of the matrix.",
    ),
    Misconception(
        name="keeps_sums",
        witnesses=both(keeps_sums),
        hint="Your estimate is right, and rows and cols hold sums, as the paper has it. Here, as in torch, they hold "
        "means, which do not grow with the other dimension; divide by the mean of rows then.",
    ),
    Misconception(
        name="square_forgotten",
        witnesses=(*both(means_of_g), *both(means_of_sizes), *both(squares_of_means)),
        hint="The second moment is the mean of the squares. The mean of g, of its size, or the square of a mean is "
        "another number: entries of either sign cancel in a mean. Square entry by entry first.",
    ),
    Misconception(
        name="dimensions_exchanged",
        witnesses=both(dimensions_exchanged),
        hint="rows have one number for each row: the mean along it, over dimension 1. You average over dimension 0 for "
        "rows, and over dimension 1 for cols; only for a square g do the lengths fit.",
    ),
    Misconception(
        name="weights_exchanged",
        witnesses=both(weights_exchanged),
        hint="beta2 is the share of what was there before, near 1; this step's squares get 1 - beta2. You have it the "
        "other way round. torch's lerp_ takes the share of the new.",
    ),
    Misconception(
        name="forgets_what_was",
        witnesses=both(old_ones_forgotten),
        hint="rows and cols hold this step's means only. Of what they held before, the share beta2 must stay.",
    ),
    Misconception(
        name="no_moving_average",
        witnesses=(*both(adds_up), *both(new_ones_in_full), *both(minus_in_the_average)),
        hint="A moving average is beta2 times the old *plus* 1 - beta2 times the new. Without one of the two weights "
        "it becomes a sum, which grows; with a minus it goes below 0, and its root is nan.",
    ),
    Misconception(
        name="not_in_place",
        witnesses=both(new_tensors),
        hint="`rows = ...` gives a name in your function to a new tensor; the caller's rows stay what they were, and "
        "the next step begins anew. Change the tensors themselves: mul_, add_, lerp_, copy_.",
    ),
    Misconception(
        name="normalises_what_is_kept",
        witnesses=both(normalises_what_is_kept),
        hint="Your first estimate is right. But rows are divided in place, so that they are no moving average any more "
        "when the next step comes. Divide the result.",
    ),
    Misconception(
        name="changes_the_gradient",
        witnesses=(squares_in_place, writes_into_the_gradient),
        fails=("gradient_unchanged",),
        hint="Your estimate is right, and g is gone: square_, or an out= that writes into it. The step still has to be "
        "made with g. Square into a new tensor.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(refuses_nothing, refuses_beta2_only),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in torch's own error. With beta2 = 1 nothing "
        "ever moves, below 0 it swings, and rows of one number would be broadcast without a word. Raise a ValueError, "
        "before anything is changed.",
    ),
)
