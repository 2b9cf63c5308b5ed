"""Wrong ways to write `linear_vjp`: the bias, the shapes of the results, and their order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.reference.computational_graphs.linear_vjp import linear_vjp

Gradients = tuple[Tensor, Tensor, Tensor]


def transposes_the_last_two(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """A batched product, summed over all that is left in front; a single example has no dimension to transpose."""
    dw = dout.transpose(-2, -1) @ x
    while dw.dim() > 2:
        dw = dw.sum(0)
    return dout @ w, dw, linear_vjp(dout, x, w)[2]


def transposes_with_mt(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The same with .mT, which raises another exception."""
    dw = dout.mT @ x
    while dw.dim() > 2:
        dw = dw.sum(0)
    return dout @ w, dw, linear_vjp(dout, x, w)[2]


def sums_before_the_product(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """dw from the sums of both: every row's dout with every row's x."""
    dx, _, db = linear_vjp(dout, x, w)
    return dx, torch.outer(db, x.reshape(-1, w.shape[1]).sum(0)), db


def sums_the_folded_outputs(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """db over the outputs of each row, with the rows folded into one dimension."""
    dx, dw, _ = linear_vjp(dout, x, w)
    return dx, dw, dout.reshape(-1, w.shape[0]).sum(-1)


def sums_the_outputs(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The same without folding."""
    dx, dw, _ = linear_vjp(dout, x, w)
    return dx, dw, dout.sum(-1)


def keeps_a_row(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """db is a matrix of one row."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw, db[None]


def bias_of_ones(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The slope of out in b, without the chain rule."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw, torch.ones_like(db)


def counts_rows_for_the_bias(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The same, summed over the rows."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw, torch.full_like(db, dout[..., 0].numel())


def leaves_dx_folded(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """dx (rows, in), whatever x was."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx.reshape(-1, w.shape[1]), dw, db


def in_the_order(places: tuple[int, int, int]) -> Callable[[Tensor, Tensor, Tensor], Gradients]:
    """The right gradients in another order."""

    def answer(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
        grads = linear_vjp(dout, x, w)
        first, second, third = (grads[place] for place in places)
        return first, second, third

    return answer


MISCONCEPTIONS = (
    Misconception(
        name="no_single_example",
        witnesses=(transposes_the_last_two, transposes_with_mt),
        hint="Right for any number of batch dimensions but none: a single example has dout (out,) and x (in,), and "
        "nothing to transpose. Fold the leading dimensions into one before the product; where there are none, that "
        "makes one row.",
    ),
    Misconception(
        name="sums_before_the_product",
        witnesses=(sums_before_the_product,),
        hint="You sum dout and x over the rows first and multiply then, so dw holds products of one row's dout with "
        "another row's x. Multiply row by row and sum then: that is a matrix product over the rows.",
    ),
    Misconception(
        name="bias_summed_over_the_outputs",
        witnesses=(sums_the_folded_outputs, sums_the_outputs),
        hint="Your db has one number for each row: you sum over the outputs. Each output has a bias of its own, which "
        "all rows share, so db has one number for each output: sum over the rows.",
    ),
    Misconception(
        name="bias_keeps_a_row",
        witnesses=(keeps_a_row,),
        hint="The numbers of your db are right, but its shape is (1, out), where b has (out,): a dimension that is "
        "summed with keepdim stays, with size 1. A gradient has the shape of what it belongs to.",
    ),
    Misconception(
        name="bias_without_dout",
        witnesses=(bias_of_ones, counts_rows_for_the_bias),
        hint="The derivative of out with respect to b is 1, and that is half of the chain rule: the other half is "
        "dout. db is the sum over the rows of dout times 1.",
    ),
    Misconception(
        name="dx_not_reshaped_back",
        witnesses=(leaves_dx_folded,),
        hint="Your numbers are right, but dx is still folded: (rows, in), where x has all its batch dimensions, or "
        "none. Give dx the shape of x.",
    ),
    Misconception(
        name="another_order",
        witnesses=(
            in_the_order((1, 0, 2)),
            in_the_order((0, 2, 1)),
            in_the_order((1, 2, 0)),
            in_the_order((2, 0, 1)),
            in_the_order((2, 1, 0)),
        ),
        hint="Your three gradients are right and in another order: return (dx, dw, db), as the docstring says.",
    ),
)
