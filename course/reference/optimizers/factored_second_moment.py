"""Adafactor's second moment of a matrix: a number for each row and each column in place of one for each entry.

g**2 --mean over columns--> rows (r,)        outer(rows / mean(rows), cols) ~ moving average of g**2 (r, c)
     --mean over rows-----> cols (c,)
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.errors import BadArgument
from course.reference.optimizers.demands import below_one


def factored_second_moment(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The rank-one estimate, shape (r, c), of the moving average of g**2, from r + c kept numbers.

    g           (r, c), this step's gradient, of any size at which its dtype holds the sum of all squares
    rows, cols  (r,) and (c,), updated in place: moving averages of the means of g**2 along each row and each column
    Exact where g**2 keeps one rank-one shape over time. Not a number where all of g has been zero so far.
    Raises BadArgument on a beta2 outside of [0, 1) and on shapes that do not fit.
    Source: Shazeer and Stern, Adafactor (arXiv:1804.04235), section 3. They keep sums, which gives the same estimate.
    """
    below_one(beta2=beta2)
    if rows.shape != g.shape[:1] or cols.shape != g.shape[1:]:
        raise BadArgument(
            f"rows and cols must hold one number for each row and column of g {tuple(g.shape)}, "
            f"got {tuple(rows.shape)} and {tuple(cols.shape)}"
        )
    squared = g.square()
    rows.mul_(beta2).add_(squared.mean(dim=1), alpha=1 - beta2)  # R <- beta2 R + (1 - beta2) mean over columns
    cols.mul_(beta2).add_(squared.mean(dim=0), alpha=1 - beta2)  # C <- beta2 C + (1 - beta2) mean over rows
    return torch.outer(rows / rows.mean(), cols)  # both hold the overall size: divide it out before their product
