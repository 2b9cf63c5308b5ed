"""Right and wrong ways to write `linear_vjp`."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.exercises.computational_graphs.tensors import DIGITS, EVERY_DIGIT
from course.reference.computational_graphs.linear_vjp import linear_vjp

Gradients = tuple[Tensor, ...]


def torchs_own(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Autograd, through torch's own linear layer."""
    leaves = [each.detach().requires_grad_() for each in (x, w, torch.zeros_like(w[:, 0]))]
    return torch.autograd.grad(torch.nn.functional.linear(*leaves), leaves, dout)


def einsum(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """The index notation says which dimensions are summed."""
    return (
        torch.einsum("...o,oi->...i", dout, w),
        torch.einsum("...o,...i->oi", dout, x),
        torch.einsum("...o->o", dout),
    )


def adds_row_by_row(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Every row of the batch on its own, in float64: an outer product for w, itself for b."""
    dtype, dx = x.dtype, torch.zeros_like(x)
    dw, db = torch.zeros_like(w, dtype=torch.float64), torch.zeros_like(w[:, 0], dtype=torch.float64)
    for row in itertools.product(*[range(size) for size in x.shape[:-1]]):
        dx[row] = w.T @ dout[row]
        dw += torch.outer(dout[row].double(), x[row].double())
        db += dout[row]
    return dx, dw.to(dtype), db.to(dtype)


def broadcasts_then_sums(dout: Tensor, x: Tensor, w: Tensor) -> Gradients:
    """Every product of an element of dout and one of x, then sums over leading dimensions one at a time."""
    dx = (dout[..., :, None] * w).sum(-2)
    dw, db = dout[..., :, None] * x[..., None, :], dout
    while db.dim() > 1:
        dw, db = dw.sum(0), db.sum(0)
    return dx, dw, db


RIGHT = (
    right(torchs_own, independent="torch.autograd"),
    right(einsum),
    right(adds_row_by_row),
    right(broadcasts_then_sums),
)

in_rows = partial(edited, linear_vjp)
in_einsum = partial(edited, einsum)
row_by_row = partial(edited, adds_row_by_row)
one_at_a_time = partial(edited, broadcasts_then_sums)

IN_FLOAT32 = (("= dout.reshape", "= dout.float().reshape"), ("= x.reshape", "= x.float().reshape"))
IN_FLOAT64 = "torch.zeros_like(w, dtype=torch.float64), torch.zeros_like(w[:, 0], dtype=torch.float64)"
ZEROS = "(torch.zeros_like(each, dtype={} if x.dim() > 2 else torch.float64) for each in (w, w[:, 0]))"
ONLY_BFLOAT16 = "torch.float32 if w.dtype == torch.bfloat16 else w.dtype"
RETURN = "return dx, dw, db"
DX, DW, DB = "dout @ w", "rows_of_dout.T @ rows_of_x", "rows_of_dout.sum(dim=0)"

WRONG = (
    wrong(
        "no_single_example",
        "Right for any number of batch dimensions but none: a single example has dout (out,) and x (in,), and nothing "
        "to transpose. Fold the leading dimensions into one before the product; where there are none, that makes one "
        "row.",
        in_rows((DW, "(dout.transpose(-2, -1) @ x).reshape(-1, *w.shape).sum(0)")),
        in_rows((DW, "(dout.mT @ x).reshape(-1, *w.shape).sum(0)")),
    ),
    wrong(
        "bias_summed_over_the_outputs",
        "Your db has one number for each row: you sum over the outputs. Each output has a bias of its own, which all "
        "rows share, so db has one number for each output: sum over the rows.",
        in_rows((DB, "rows_of_dout.sum(dim=-1)")),
        in_rows((DB, "dout.sum(dim=-1)")),
    ),
    wrong(
        "bias_keeps_a_row",
        "The numbers of your db are right, but its shape is (1, out), where b has (out,): a dimension that is summed "
        "with keepdim stays, with size 1. A gradient has the shape of what it belongs to.",
        in_rows((DB, "rows_of_dout.sum(dim=0, keepdim=True)")),
    ),
    wrong(
        "dx_not_reshaped_back",
        "Your numbers are right, but dx is still folded: (rows, in), where x has all its batch dimensions, or none. "
        "Give dx the shape of x.",
        in_rows((DX, "rows_of_dout @ w")),
    ),
    wrong(
        "another_order",
        "Your three gradients are right and in another order: return (dx, dw, db), as the docstring says.",
        in_rows((RETURN, "return dw, dx, db")),
        in_rows((RETURN, "return dx, db, dw")),
        in_rows((RETURN, "return dw, db, dx")),
        in_rows((RETURN, "return db, dx, dw")),
        in_rows((RETURN, "return db, dw, dx")),
    ),
    wrong(
        "transposes_w",
        "The forward pass multiplies by w.T, so the backward pass multiplies by the transpose of that, which is w: "
        "dout (..., out) times w (out, in) gives (..., in). With a square w the shapes fit either way; the values do "
        "not.",
        in_rows((DX, "dout @ w.T")),
    ),
    wrong(
        "transposes_dw",
        "Your dw has the shape (in, out): it is the gradient of w.T. A gradient has the shape of what it belongs to, "
        "so its rows go with dout and its columns with x.",
        in_rows((DW, "rows_of_x.T @ rows_of_dout")),
    ),
    wrong(
        "batch_not_summed",
        "The same w and b served every row of the batch, so each row contributes to their gradient and the "
        "contributions add up. A gradient that still has batch dimensions has not been summed.",
        one_at_a_time(("    while db.dim() > 1:\n        dw, db = dw.sum(0), db.sum(0)\n", "")),
        in_rows((DB, "dout")),
    ),
    wrong(
        "mean_for_sum",
        "The chain rule sums over the rows. The 1/N of a mean loss belongs to the loss: it is in dout already, and "
        "dividing here again makes the step depend on the batch size twice.",
        in_rows((DB, "rows_of_dout.mean(dim=0)")),
        in_rows((DW, f"{DW} / len(rows_of_x)"), (DB, "rows_of_dout.mean(dim=0)")),
    ),
    wrong(
        "one_batch_dimension_only",
        "Right for a matrix of rows, but a transformer hands over (batch, sequence, features) and a single example "
        "(features,). Fold all leading dimensions into one, also where there are none.",
        in_einsum(("...o,...i->oi", "no,ni->oi"), ("...o->o", "no->o")),
        in_rows((DW, "dout.T @ x if dout.dim() == 2 else (dout.mT @ x).sum(0)"), (DB, "dout.sum(0)")),
        in_rows((DW, "dout.transpose(-2, -1) @ x")),
        in_rows((DB, "dout.sum(0)")),
    ),
    wrong(
        "sums_one_batch_dimension",
        "Right for a matrix of rows and for a single example. With more batch dimensions a gradient of w or b still "
        "has some of them: one was summed, and every one must be. Fold them into one first.",
        in_rows((DB, "dout.sum(0) if dout.dim() > 1 else dout")),
        in_rows((DB, "dout.sum(-2) if dout.dim() > 1 else dout")),
        one_at_a_time(("while db.dim() > 1", "if db.dim() > 1")),
    ),
    wrong(
        "view_of_scattered_numbers",
        "Right for tensors whose numbers lie in a row, and an exception for one where they do not: a transpose, or a "
        "slice of a wider tensor. `view` cannot fold those; `reshape` copies where it must.",
        in_rows(("x.reshape", "x.view")),
        in_rows(("dout.reshape", "dout.view")),
    ),
    wrong(
        "drops_dimensions_of_size_1",
        "Right until there is one row, one input or one output: `squeeze()` drops every dimension of size 1, also one "
        "that the gradient has. Name the dimension that shall vanish, or reshape to the shape that is wanted.",
        in_rows((DX, f"({DX}).squeeze()")),
        in_rows((DW, f"({DW}).squeeze()")),
        in_rows((DB, f"{DB}.squeeze()")),
        in_rows((RETURN, "return dx.squeeze(), dw.squeeze(), db.squeeze()")),
    ),
    wrong(
        "empty_dim_sums_everything",
        "Without batch dimensions there is nothing to sum, and your db became a single number: `sum(dim=())` sums over "
        "*all* dimensions in torch. Reshape to rows first, then sum over dimension 0.",
        in_rows((DB, "dout.sum(dim=tuple(range(dout.dim() - 1)))")),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but not all gradients are tensors in the dtype of what came in. torch.zeros makes "
        "float32 unless told otherwise, NumPy and .double() make float64. A gradient has the dtype of what it belongs "
        "to: zeros_like and new_zeros take it, and the device, from a tensor.",
        row_by_row(("dw.to(dtype)", "dw.float()")),
        row_by_row(("dw.to(dtype)", "dw.to(dtype) if x.dim() > 1 else dw.float()")),
        in_rows((DX, "dout.double() @ w.double()")),
        in_rows((RETURN, "return (dx, dw, db) if x.numel() else (dx.float(), dw.float(), db.float())")),
        in_rows((RETURN, "return dx, dw, db.detach().double().numpy()")),
        fails=("dtype_of_the_inputs",),
    ),
    wrong(
        "digits_lost_in_float64",
        DIGITS,
        in_rows((RETURN, f"{RETURN.replace(', ', '.to(x.dtype), ')}.to(x.dtype)"), *IN_FLOAT32),
        row_by_row((IN_FLOAT64, ZEROS.format("torch.float32"))),
        fails=(EVERY_DIGIT,),
    ),
    wrong(
        "added_up_in_half_precision",
        "You add rows one by one in the dtype of the inputs. In bfloat16, 256 + 1 is 256, and in float16, 2048 + 1 is "
        "2048: a sum of many rows stands still there. torch's sum and `@` add up in float32, NumPy's do not; where you "
        "add yourself, convert first, and back at the end.",
        row_by_row((IN_FLOAT64, "torch.zeros_like(w), torch.zeros_like(w[:, 0])")),
        row_by_row((IN_FLOAT64, ZEROS.format("dtype"))),
        row_by_row((IN_FLOAT64, f"(torch.zeros_like(each, dtype={ONLY_BFLOAT16}) for each in (w, w[:, 0]))")),
    ),
    wrong(
        "takes_the_gradient_away",
        "Your result is right, but afterwards a tensor that was handed in requires no gradient any more, and the next "
        "backward pass leaves it out. `detach()` makes a tensor of your own with the same numbers.",
        in_rows((RETURN, f"w.requires_grad_(False)\n    {RETURN}")),
        in_rows((RETURN, f"for each in (dout, x, w):\n        each.requires_grad_(False)\n    {RETURN}")),
    ),
)
