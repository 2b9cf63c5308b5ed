"""Right and wrong ways to write `factored_second_moment`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.optimizers.factored_second_moment import factored_second_moment


def _refuse(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> None:
    if not 0 <= beta2 < 1:
        raise ValueError("beta2 must lie in [0, 1)")
    if (rows.shape, cols.shape) != (g.shape[:1], g.shape[1:]):
        raise ValueError("rows and cols must fit g")


def in_numpy(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Weighted averages of old and new in float64; the columns over their own mean, which is that of rows."""
    _refuse(g, rows, cols, beta2)
    for kept, axis in ((rows, 1), (cols, 0)):
        new = np.square(g.double().numpy()).mean(axis)
        kept.copy_(torch.from_numpy(np.average([kept.double().numpy(), new], axis=0, weights=[beta2, 1 - beta2])))
    columns = cols.double().numpy()
    return torch.from_numpy(np.outer(rows.double().numpy(), columns / columns.mean())).to(g.dtype)


def lerps_and_divides_first(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """lerp_; the norm instead of the square; each row's share of the size, times the columns."""
    _refuse(g, rows, cols, beta2)
    rows.lerp_(g.norm(dim=1).square() / g.shape[1], 1 - beta2)
    cols.lerp_(g.norm(dim=0).square() / g.shape[0], 1 - beta2)
    return (rows / rows.mean())[:, None] * cols


RIGHT = (
    right(in_numpy, independent="numpy.average and numpy.outer"),
    right(lerps_and_divides_first),
)

step = partial(edited, factored_second_moment)

ROW, COL = "squared.mean(dim=1)", "squared.mean(dim=0)"
ROWS, COLS = f"rows.mul_(beta2).add_({ROW}, alpha=1 - beta2)", f"cols.mul_(beta2).add_({COL}, alpha=1 - beta2)"
ESTIMATE = "torch.outer(rows / rows.mean(), cols)"
SQUARED = "squared = g.square()"
SUMS = (ROW, "squared.sum(dim=1)"), (COL, "squared.sum(dim=0)")


def weights(old: str, new: str) -> Answer:
    """Other weights in both averages."""
    return step(
        (ROWS, f"rows.mul_({old}).add_({ROW}, alpha={new})"), (COLS, f"cols.mul_({old}).add_({COL}, alpha={new})")
    )


WRONG = (
    wrong(
        "sums_for_means",
        "There is a sum where a mean belongs: rows hold the mean of g**2 along each row, cols the mean along each "
        "column. With sums in one of them the estimate grows with the size of the matrix.",
        step(SUMS[0]),
        step(SUMS[1]),
        step(*SUMS),
    ),
    wrong(
        "keeps_sums",
        "Your estimate is right, and rows and cols hold sums, as the paper has it. Here, as in torch, they hold "
        "means, which do not grow with the other dimension; divide by the mean of rows then.",
        step(*SUMS, ("rows.mean()", "rows.sum()")),
    ),
    wrong(
        "square_forgotten",
        "The second moment is the mean of the squares. The mean of g, or the square of that mean, is another "
        "number: entries of either sign cancel in it. Square entry by entry first.",
        step((SQUARED, "squared = g")),
        step((SQUARED, "squared = g"), (ROW, f"{ROW}.square()"), (COL, f"{COL}.square()")),
    ),
    wrong(
        "dimensions_exchanged",
        "Rows and columns have changed places. rows have one number for each row, the mean along it, over "
        "dimension 1, and are the first factor of the outer product; cols have the means over dimension 0. Only for a "
        "square g does the other way fit at all.",
        step((ROW, "squared.mean(0)"), (COL, "squared.mean(1)")),
        step((ESTIMATE, "torch.outer(cols / rows.mean(), rows)")),
    ),
    wrong(
        "no_moving_average",
        "A moving average is beta2 times the old *plus* 1 - beta2 times the new: beta2, near 1, is the share of "
        "what was there before (torch's lerp_ takes the share of the new). Without one of the two weights it becomes a "
        "sum, which grows, or forgets; with a minus it goes below 0, and its root is nan.",
        weights("1 - beta2", "beta2"),
        weights("0.0", "1.0"),
        weights("1.0", "1.0"),
        weights("beta2", "1.0"),
        weights("beta2", "beta2 - 1"),
    ),
    wrong(
        "not_in_place",
        "`rows = ...` gives a name in your function to a new tensor; the caller's rows stay what they were, and "
        "the next step begins anew. Change the tensors themselves: mul_, add_, lerp_, copy_.",
        step(("rows.mul_", "rows = rows.mul"), ("cols.mul_", "cols = cols.mul")),
    ),
    wrong(
        "rows_twice",
        "rows are in your result twice, and the columns of g**2 nowhere. Entry (i, j) needs the mean of row i, "
        "along dimension 1, and the mean of column j, along dimension 0.",
        step((ESTIMATE, "torch.outer(rows / rows.mean(), rows)")),
        step((COL, "squared.mean(1)")),
    ),
    wrong(
        "no_normaliser",
        "rows times cols holds the overall size of g**2 twice: where all of g is 3, every entry becomes 81 in "
        "place of 9. Divide by the mean of rows, once.",
        step((" / rows.mean()", "")),
    ),
    wrong(
        "product_before_the_quotient",
        "Your formula is right, but the mean of a row times that of a column has the size of g**4: where g is small, "
        "its dtype makes a 0 of it, where g is large, inf. Divide one of the two by the mean of rows first.",
        step((ESTIMATE, "torch.outer(rows, cols) / rows.mean()")),
        step((ESTIMATE, "(torch.outer(rows.double(), cols.double()) / rows.double().mean()).to(g.dtype)")),
    ),
    wrong(
        "root_of_the_product",
        "The root brings the unit of rows times cols back to that of g**2, but it flattens the matrix: a row "
        "whose squares are four times as large gets an estimate that is twice as large. Divide by the mean of rows in "
        "place of the root; then g**2 of rank one comes out exactly.",
        step((ESTIMATE, "torch.outer(rows, cols).sqrt()")),
    ),
    wrong(
        "normalised_by_the_sum",
        "The sum as denominator belongs to row and column *sums*, which the paper keeps. For means it must be the "
        "mean; else the estimate shrinks as the matrix grows.",
        step(("rows.mean()", "rows.sum()")),
        step(("rows.mean()", "cols.sum()")),
    ),
    wrong(
        "not_from_the_updated_averages",
        "First update rows and cols, then estimate from these two and nothing else. From what they were before, "
        "the estimate does not know this g, and at the first step it is 0 / 0, nan; and this step's squares by "
        "themselves, as factors or as what you divide by, know nothing of the steps before.",
        step((SQUARED, f"estimate = {ESTIMATE}\n    {SQUARED}"), (f"return {ESTIMATE}", "return estimate")),
        step(("rows.mean()", "squared.mean()")),
        step(("rows.mean()", "size"), (SQUARED, f"size = rows.mean()\n    {SQUARED}")),
        step(("outer(rows", "outer(old"), (SQUARED, f"old = rows.clone()\n    {SQUARED}")),
        step(("(), cols)", "(), old)"), (SQUARED, f"old = cols.clone()\n    {SQUARED}")),
        step((ESTIMATE, f"torch.outer({ROW}, {COL}) / squared.mean()")),
    ),
    wrong(
        "more_than_the_estimate",
        "What is asked for is the second moment itself. The root and the division of g by it are the caller's.",
        step((ESTIMATE, f"({ESTIMATE}).sqrt()")),
        step((ESTIMATE, f"g / ({ESTIMATE}).sqrt()")),
    ),
    wrong(
        "epsilon_added",
        "You add a small number, as the paper adds 1e-30 to g**2. Here nothing is added and nothing bounded: where g "
        "is small enough, that number is all that is left.",
        step((SQUARED, f"{SQUARED} + 1e-30")),
        step(("rows.mean()", "(rows.mean() + 1e-30)")),
        step(("rows.mean()", "rows.mean().clamp(min=1e-30)")),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but not in the dtype of g. A product of rows and cols has it by itself; "
        "torch.zeros makes float32 unless told otherwise, .double() float64.",
        step((ESTIMATE, f"({ESTIMATE}).double()")),
        step((ESTIMATE, f"({ESTIMATE}).float()")),
        fails=("dtype_of_g",),
    ),
    wrong(
        "changes_the_gradient",
        "Your estimate is right, but g is not what it was: square_, *= and an out= write into it. The step still "
        "has to be made with g. Square into a new tensor.",
        step((SQUARED, "squared = g.square_()")),
        fails=("gradient_unchanged",),
    ),
    wrong(
        "refuses_too_little",
        "Your numbers are right, but not all nonsense is refused with a ValueError. With beta2 = 1 nothing ever moves, "
        "below 0 it swings; rows of one number would be broadcast without a word, and len(rows) is r for rows of shape "
        "(r, 1) as well. Compare shapes.",
        edited(lerps_and_divides_first, ("    _refuse(g, rows, cols, beta2)\n", "")),
        edited(
            in_numpy, ("(rows.shape, cols.shape) != (g.shape[:1], g.shape[1:])", "g.shape != (len(rows), len(cols))")
        ),
        fails=("refuses_what_makes_no_sense",),
    ),
)
