"""Wrong ways to write `linear_vjp`: the products here, slips in bias, shapes and order beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs import linear_vjp_slips
from course.reference.computational_graphs.linear_vjp import linear_vjp

Gradients = tuple[Tensor, Tensor, Tensor]


def transposes_w(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """dx with the transpose of the forward pass still in it: a wrong shape unless w is square."""
    rows_of_dout, rows_of_x = dout.reshape(-1, w.shape[0]), x.reshape(-1, w.shape[1])
    return dout @ w.T, rows_of_dout.T @ rows_of_x, rows_of_dout.sum(0)


def transposes_dw(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """dw in the shape (in, out)."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw.T, db


def does_not_sum_the_batch(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """One dw and one db per row."""
    return dout @ w, dout[..., :, None] * x[..., None, :], dout


def does_not_sum_the_bias(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """db is dout itself, as if b had batch dimensions."""
    dx, dw, _ = linear_vjp(dout, x, w)
    return dx, dw, dout


def takes_the_mean_of_the_bias(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The mean over the batch where the chain rule says sum."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw, db / dout[..., 0].numel()


def takes_both_means(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The same for w and b."""
    dx, dw, db = linear_vjp(dout, x, w)
    return dx, dw / dout[..., 0].numel(), db / dout[..., 0].numel()


def knows_one_batch_dimension(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Right for matrices; one or three dimensions do not fit the index string."""
    return dout @ w, torch.einsum("no,ni->oi", dout, x), dout.sum(0)


def sums_over_the_first(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """A batched product that is summed over one dimension only; without batch dimensions it raises."""
    if dout.dim() == 2:
        return dout @ w, dout.T @ x, dout.sum(0)
    return dout @ w, (dout.mT @ x).sum(0), dout.sum(0)


def leaves_a_batch_of_products(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """A batched product that is not summed at all: right for a matrix, and nothing to transpose in a vector."""
    return dout @ w, dout.transpose(-2, -1) @ x, linear_vjp(dout, x, w)[2]


def sums_the_first_for_the_bias(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Everything right but db, which is summed over one dimension only."""
    dx, dw, _ = linear_vjp(dout, x, w)
    return dx, dw, dout.sum(0)


def needs_a_batch(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Sums over `all dimensions but the last`, which are none: torch takes an empty tuple to mean all of them."""
    dx, dw, _ = linear_vjp(dout, x, w)
    return dx, dw, dout.sum(dim=tuple(range(dout.dim() - 1)))


def allocates_float32(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """`torch.zeros` without a dtype makes float32, and what is added to it is rounded to that."""
    rows_of_dout, rows_of_x = dout.reshape(-1, w.shape[0]), x.reshape(-1, w.shape[1])
    dw = torch.zeros(w.shape)
    for dout_row, x_row in zip(rows_of_dout, rows_of_x, strict=True):
        dw += torch.outer(dout_row, x_row)
    return dout @ w, dw, rows_of_dout.sum(0)


def computes_in_float64(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """More digits than anybody asked for, in twice the bytes."""
    dx, dw, db = linear_vjp(dout.double(), x.double(), w.double())
    return dx, dw, db


MISCONCEPTIONS = (
    *linear_vjp_slips.MISCONCEPTIONS,
    Misconception(
        name="transposes_w",
        witnesses=(transposes_w,),
        hint="The forward pass multiplies by w.T, so the backward pass multiplies by the transpose of that, "
        "which is w: dout (..., out) times w (out, in) gives (..., in). With a square w the shapes fit either "
        "way; the values do not.",
    ),
    Misconception(
        name="transposes_dw",
        witnesses=(transposes_dw,),
        hint="Your dw has the shape (in, out): it is the gradient of w.T. A gradient has the shape of what it "
        "belongs to, so its rows go with dout and its columns with x.",
    ),
    Misconception(
        name="batch_not_summed",
        witnesses=(does_not_sum_the_batch, does_not_sum_the_bias),
        hint="The same w and b served every row of the batch, so each row contributes to their gradient and the "
        "contributions add up. A gradient that still has batch dimensions has not been summed.",
    ),
    Misconception(
        name="mean_for_sum",
        witnesses=(takes_the_mean_of_the_bias, takes_both_means),
        hint="The chain rule sums over the rows. The 1/N of a mean loss belongs to the loss: it is in dout "
        "already, and dividing here again makes the step depend on the batch size twice.",
    ),
    Misconception(
        name="one_batch_dimension_only",
        witnesses=(
            knows_one_batch_dimension,
            sums_over_the_first,
            leaves_a_batch_of_products,
            sums_the_first_for_the_bias,
        ),
        hint="Right for a matrix of rows, but a transformer hands over (batch, sequence, features) and a "
        "single example (features,). Fold all leading dimensions into one, also where there are none.",
    ),
    Misconception(
        name="empty_dim_sums_everything",
        witnesses=(needs_a_batch,),
        hint="Without batch dimensions there is nothing to sum, and your db became a single number: `sum(dim=())` sums "
        "over *all* dimensions in torch. Reshape to rows first, then sum over dimension 0.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(allocates_float32, computes_in_float64),
        fails=("dtype_of_the_inputs",),
        hint="Your numbers are right, but not in the dtype of what came in. torch.zeros makes float32 unless told "
        "otherwise, NumPy and .double() make float64. A gradient has the dtype of what it belongs to: zeros_like and "
        "new_zeros take it, and the device, from a tensor.",
    ),
)
