"""Other right ways to write `factored_second_moment`."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Alternative


def lerps_and_divides_first(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """lerp_; each row's share of the size, times the columns; the norm instead of the square."""
    r, c = g.shape
    if not 0 <= beta2 < 1 or rows.shape != (r,) or cols.shape != (c,):
        raise ValueError("beta2 or a shape")
    rows.lerp_(g.norm(dim=1).square() / c, 1 - beta2)
    cols.lerp_(g.norm(dim=0).square() / r, 1 - beta2)
    return (rows / rows.mean())[:, None] * cols


def normalises_by_the_columns(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """The mean of cols is that of rows; slices are assigned, in float64 inside."""
    if beta2 < 0 or beta2 >= 1:
        raise ValueError("beta2 must lie in [0, 1)")
    if len(rows) != g.size(0) or len(cols) != g.size(1):
        raise ValueError("a length differs")
    squares = g.double() ** 2
    rows[:] = beta2 * rows.double() + (1 - beta2) * squares.mean(-1)
    cols[:] = beta2 * cols.double() + (1 - beta2) * squares.mean(-2)
    return torch.einsum("i,j->ij", rows, cols).div_(cols.mean())


def sums_in_plain_numbers(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Entry by entry; the normaliser is a sum over a count."""
    if not 0.0 <= beta2 < 1.0:
        raise ValueError("beta2 must lie in [0, 1)")
    if [*g.shape] != [rows.numel(), cols.numel()]:
        raise ValueError("a shape differs")
    numbers = g.tolist()
    for i, row in enumerate(numbers):
        rows[i] = rows[i] * beta2 + sum(x * x for x in row) / len(row) * (1 - beta2)
    for j, column in enumerate(zip(*numbers, strict=True)):
        cols[j] = cols[j] * beta2 + sum(x * x for x in column) / len(column) * (1 - beta2)
    size = sum(rows.tolist()) / len(rows)
    return torch.tensor([[a * b / size for b in cols.tolist()] for a in rows.tolist()], dtype=g.dtype)


ALTERNATIVES = (
    Alternative(name="lerps_and_divides_first", answer=lerps_and_divides_first),
    Alternative(name="normalises_by_the_columns", answer=normalises_by_the_columns),
    Alternative(name="sums_in_plain_numbers", answer=sums_in_plain_numbers),
)
