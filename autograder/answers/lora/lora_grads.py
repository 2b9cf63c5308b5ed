"""Right and wrong ways to write `lora_grads`."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.lora.lora_grads import lora_grads

Gradients = tuple[Tensor, ...]


def torchs_own(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> Gradients:
    """Autograd, through two linear layers."""
    a, b = A.detach().requires_grad_(), B.detach().requires_grad_()
    y = scale * torch.nn.functional.linear(torch.nn.functional.linear(x.detach(), a), b)
    return torch.autograd.grad(y, (a, b), dy)


def two_einsums(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> Gradients:
    """The index notation says which dimensions are summed; pairs of tensors, so that the order is ours."""
    into_b = torch.einsum("...n,rn->...r", x, A)
    from_b = torch.einsum("...m,mr->...r", dy, B)
    return scale * torch.einsum("...r,...n->rn", from_b, x), scale * torch.einsum("...m,...r->mr", dy, into_b)


def row_by_row(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> Gradients:
    """Every row on its own, in float64: two outer products."""
    dA, dB = torch.zeros_like(A, dtype=torch.float64), torch.zeros_like(B, dtype=torch.float64)
    a, b = A.detach().double(), B.detach().double()
    for row in itertools.product(*[range(size) for size in x.shape[:-1]]):
        one, d = x.detach()[row].double(), dy.detach()[row].double()
        dB += torch.outer(d, a @ one)
        dA += torch.outer(b.T @ d, one)
    return (scale * dA).to(A.dtype), (scale * dB).to(B.dtype)


def scaled_once_at_the_end(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> Gradients:
    """flatten needs a dimension; both results are multiplied in place."""
    rows, back = x[None].flatten(0, -2), dy[None].flatten(0, -2)
    dA, dB = torch.mm((back @ B).mT, rows), torch.mm(back.mT, rows @ A.mT)
    return tuple(each.detach().mul_(scale) for each in (dA, dB))


RIGHT = (
    right(torchs_own, independent="torch.autograd"),
    right(two_einsums),
    right(row_by_row),
    right(scaled_once_at_the_end),
)

folded = partial(edited, lora_grads)
in_einsum = partial(edited, two_einsums)
by_row = partial(edited, row_by_row)
flattened = partial(edited, scaled_once_at_the_end)

DB, DA = "scale * dy.T @ (x @ A.T)", "scale * (dy @ B).T @ x"
RETURN = "return dA, dB"
FOLD = "x, dy = x.reshape(rows, A.shape[1]), dy.reshape(rows, B.shape[0])"

WRONG = (
    wrong(
        "scale_lost",
        "The adapter adds scale times B A, so that scale is a factor of both gradients. Without it a change of alpha "
        "changes the forward pass and not the step.",
        folded((DB, "dy.T @ (x @ A.T)"), (DA, "(dy @ B).T @ x")),
        folded((DB, "dy.T @ (x @ A.T)")),
        folded((DA, "(dy @ B).T @ x")),
    ),
    wrong(
        "scale_twice",
        "scale stands in y once, and once in each gradient. Where you scale what flows back and then the result, it "
        "is squared.",
        folded((DB, f"scale * {DB}"), (DA, f"scale * {DA}")),
        folded((FOLD, f"{FOLD}\n    dy = scale * dy")),
        folded((DA, f"scale * {DA}")),
    ),
    wrong(
        "divided_by_scale",
        "You divide by scale, as if the adapter had to be undone. A factor of y is a factor of its gradients.",
        folded((DB, "dy.T @ (x @ A.T) / scale"), (DA, "(dy @ B).T @ x / scale")),
    ),
    wrong(
        "divided_by_r",
        "You divide by r. The scale that comes in is alpha / r already.",
        folded((DB, f"{DB} / len(A)"), (DA, f"{DA} / len(A)")),
    ),
    wrong(
        "no_gradient_of_a",
        "Your gradient of A is 0. It is so as long as B is 0, in the first step; B moves, and then A has one too.",
        folded((DA, "A.new_zeros(A.shape)")),
    ),
    wrong(
        "rows_summed_first",
        "You sum x, or dy, over the rows and multiply the sums. Each row's x belongs to its own dy: multiply first, "
        "and sum the products.",
        folded((FOLD, f"{FOLD}\n    x, dy = x.sum(0, keepdim=True), dy.sum(0, keepdim=True)")),
    ),
    wrong(
        "another_order",
        "Your two gradients are right and in another order: return (dA, dB), as the docstring says.",
        folded((RETURN, "return dB, dA")),
    ),
    wrong(
        "mean_for_sum",
        "The chain rule sums over the rows. The 1/N of a mean loss belongs to the loss: it is in dy already.",
        folded((RETURN, "return dA / rows, dB / rows")),
        folded((FOLD, f"{FOLD}\n    dy = dy / len(dy)")),
    ),
    wrong(
        "transposed_factor",
        "With sizes that are equal every transpose fits, and yours is one too many: x (N, n) goes through A by x A', "
        "and dy (N, m) goes back through B by dy B.",
        folded(("(x @ A.T)", "(x @ A)")),
        folded(("(dy @ B)", "(dy @ B.T)")),
        folded(("(x @ A.T)", "(x @ A)"), ("(dy @ B)", "(dy @ B.T)")),
    ),
    wrong(
        "factors_swapped",
        "You send x through B, or dy back through A. x meets A first, and what comes back meets B first: A belongs to "
        "the input's side, (r, n), B to the output's, (m, r).",
        folded(("(x @ A.T)", "(x @ B.T)"), ("(dy @ B)", "(dy @ A)")),
    ),
    wrong(
        "transposed_results",
        "Your gradients are the transposes of the right ones. A gradient has the shape of what it belongs to: dA is "
        "(r, n) and dB is (m, r).",
        folded((RETURN, "return dA.T, dB.T")),
        folded((RETURN, "return dA.T, dB")),
        folded((RETURN, "return dA, dB.T")),
    ),
    wrong(
        "one_leading_dimension_only",
        "Right for a matrix of rows, but a transformer hands over (batch, sequence, n) and a single example (n,). Fold "
        "all leading dimensions into one, also where there are none.",
        folded((f"    {FOLD}\n", "")),
        in_einsum(("...r,...n->rn", "br,bn->rn"), ("...m,...r->mr", "bm,br->mr")),
        folded((f"    {FOLD}\n", ""), (DB, "scale * dy.mT @ (x @ A.T)"), (DA, "scale * (dy @ B).mT @ x")),
        folded((f"    {FOLD}\n", ""), (DB, "scale * (dy.T @ x) @ A.T"), (DA, "scale * B.T @ (dy.T @ x)")),
    ),
    wrong(
        "sums_one_leading_dimension",
        "With more leading dimensions than one your gradients still have some of them: every one must be summed. Fold "
        "them into one first.",
        folded(
            (FOLD, "x, dy = (each if each.dim() > 1 else each[None] for each in (x, dy))"),
            (DB, "scale * dy.mT @ (x @ A.T)"),
            (DA, "scale * (dy @ B).mT @ x"),
        ),
    ),
    wrong(
        "no_single_example",
        "Right for any number of leading dimensions but none: a single example has x (n,) and dy (m,). Fold what there "
        "is into rows, which makes one row of it.",
        flattened(("x[None].flatten", "x.flatten"), ("dy[None].flatten", "dy.flatten")),
        folded((FOLD, "x, dy = (each.flatten(0, -2) if each.dim() > 1 else each for each in (x, dy))")),
    ),
    wrong(
        "first_row_only",
        "You use the first entry of a leading dimension and drop the others. All rows used the same A and B: their "
        "shares add up.",
        folded((FOLD, f"{FOLD}\n    x, dy = x[:1], dy[:1]")),
    ),
    wrong(
        "forms_the_large_matrix",
        "Your numbers are right, and on the way you make a matrix (m, n): the gradient of the whole weight, or B A. "
        "That is the memory and the work which the adapter should save. Multiply x by A' first, and dy by B first: "
        "nothing is then wider than r.",
        folded((DB, "scale * (dy.T @ x) @ A.T")),
        folded((DA, "scale * B.T @ (dy.T @ x)")),
        folded((DB, "scale * (dy.T @ x) @ A.T"), (DA, "scale * B.T @ (dy.T @ x)")),
        by_row(("torch.outer(d, a @ one)", "torch.outer(d, one) @ a.T")),
        fails=("no_large_matrix",),
    ),
    wrong(
        "view_of_scattered_numbers",
        "Right for tensors whose numbers lie in a row, and an exception for one where they do not: a transpose, or a "
        "slice of a wider tensor. `view` cannot fold those; `reshape` copies where it must.",
        folded(("x.reshape", "x.view")),
        folded(("dy.reshape", "dy.view")),
    ),
    wrong(
        "drops_dimensions_of_size_1",
        "Right until r, n or m is 1: `squeeze()` drops every dimension of size 1, also one that the gradient has.",
        folded((RETURN, "return dA.squeeze(), dB.squeeze()")),
        folded((RETURN, "return dA.squeeze(), dB")),
        folded((RETURN, "return dA, dB.squeeze()")),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but not both gradients are tensors in the dtype of A. torch.zeros makes float32 "
        "unless told otherwise, .double() and NumPy make float64.",
        by_row((").to(A.dtype), ", ").float(), "), (".to(B.dtype)", ".float()")),
        by_row((").to(A.dtype), ", "), "), (".to(B.dtype)", "")),
        folded((RETURN, "return dA, dB.double()")),
        folded((RETURN, "return (dA, dB) if rows else (dA.float(), dB.float())")),
        fails=("dtype_of_A",),
    ),
    wrong(
        "digits_lost_in_float64",
        "With numbers in float64 you compute in float32 on the way, which keeps 7 digits of 15, whatever it is "
        "converted to at the end. Leave the tensors in their dtype.",
        folded(
            (FOLD, f"dtype = A.dtype\n    {FOLD}\n    x, dy, A, B = (each.float() for each in (x, dy, A, B))"),
            (RETURN, "return dA.to(dtype), dB.to(dtype)"),
        ),
        fails=("every_digit_in_float64",),
    ),
    wrong(
        "takes_the_gradient_away",
        "Your result is right, but afterwards a tensor that was handed in requires no gradient any more, and the next "
        "backward pass leaves it out. `detach()` makes a tensor of your own with the same numbers.",
        folded((RETURN, f"for each in (A, B):\n        each.requires_grad_(False)\n    {RETURN}")),
    ),
)
