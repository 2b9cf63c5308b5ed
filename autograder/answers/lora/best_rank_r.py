"""Right and wrong ways to write `best_rank_r`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.lora.best_rank_r import best_rank_r

Factors = tuple[Tensor, Tensor]


def eigenvectors(delta: Tensor, r: int) -> Factors:
    """NumPy's eigenvectors of delta delta'; A is delta seen along them."""
    exact = delta.detach().double().numpy()
    vectors = np.linalg.eigh(exact @ exact.T).eigenvectors[:, ::-1][:, :r].copy()
    return torch.from_numpy(vectors).to(delta.dtype), torch.from_numpy(vectors.T @ exact).to(delta.dtype)


def one_at_a_time(delta: Tensor, r: int) -> Factors:
    """Each time the largest singular vector of what is left, found by the eigenvectors of a Gram matrix."""
    m, n = delta.shape
    left = delta.detach().double().clone()
    columns, rows = [torch.zeros(m, 0, dtype=left.dtype)], [torch.zeros(0, n, dtype=left.dtype)]
    for _ in range(r):
        direction = torch.linalg.eigh(left.T @ left).eigenvectors[:, -1:]
        image = left @ direction
        columns.append(image)
        rows.append(direction.T)
        left = left - image @ direction.T
    return torch.cat(columns, 1).to(delta.dtype), torch.cat(rows).to(delta.dtype)


def shared_out(delta: Tensor, r: int) -> Factors:
    """The root of the singular values in both factors."""
    left, values, right = torch.svd(delta)
    roots = values[:r].sqrt().diag()
    return left[:, :r].mm(roots), roots.mm(right.mT[:r])


RIGHT = (right(eigenvectors, independent="numpy.linalg.eigh"), right(one_at_a_time), right(shared_out))


def orthogonal_columns(delta: Tensor, r: int) -> Factors:
    """Gram and Schmidt, from the first column on."""
    Q, R = torch.linalg.qr(delta)
    return Q[:, :r], R[:r]


def by_gram_matrix(delta: Tensor, r: int) -> Factors:
    """The smaller of A' A and A A', in float64, has the squares of the singular values, in rising order."""
    fine = delta.double()
    if len(delta) <= len(delta.T):
        U = torch.linalg.eigh(fine @ fine.T).eigenvectors[:, :r].to(delta.dtype)
        return U, U.T @ delta
    V = torch.linalg.eigh(fine.T @ fine).eigenvectors[:, :r].to(delta.dtype)
    return delta @ V, V.T


def by_largest_squares(delta: Tensor, r: int) -> Factors:
    """The Gram matrix of the columns, in the dtype of delta, and its largest eigenvectors."""
    V = torch.linalg.eigh(delta.T @ delta).eigenvectors.flip(1)[:, :r]
    return delta @ V, V.T


edit = partial(edited, best_rank_r)
SVD = "torch.linalg.svd(delta, full_matrices=False)"
B, A = "U[:, :r] * S[:r]", "Vh[:r]"
BOTH = f"{B}, {A}"
KEPT = f"({B})[:, kept], {A}[kept]"

WRONG = (
    wrong(
        "a_part_of_delta",
        "You keep some rows or columns of delta itself. That has rank r, but which are kept is a matter of order: the "
        "best r directions are mixtures of rows.",
        edit((BOTH, "torch.eye(len(delta), dtype=delta.dtype)[:, :r], delta[:r].clone()")),
        edit((BOTH, "delta[:, :r].clone(), torch.eye(delta.shape[1], dtype=delta.dtype)[:r]")),
    ),
    wrong(
        "singular_values_twice",
        "The singular values are in both factors, so that their product has the squares. They belong into one, or "
        "their roots into each.",
        edit((A, "S[:r, None] * Vh[:r]")),
        edit((B, "U[:, :r] * S[:r] ** 2")),
    ),
    wrong(
        "singular_values_forgotten",
        "The singular values are missing: U V' alone has singular values of 1.",
        edit((B, "U[:, :r].clone()")),
    ),
    wrong(
        "half_of_the_root",
        "The roots of the singular values are in one factor only. Put them into both, or the values themselves into "
        "one.",
        edit((B, "U[:, :r] * S[:r].sqrt()")),
    ),
    wrong(
        "v_for_its_transpose",
        "torch.linalg.svd returns V', whose rows are the right singular vectors. You take its columns.",
        edit((A, "Vh[:, :r].T.contiguous()")),
    ),
    wrong(
        "rows_of_u",
        "The left singular vectors are the columns of U. You take its rows.",
        edit((B, "U[:r].T * S[:r]")),
    ),
    wrong(
        "values_along_the_rows",
        "Each column of U has a singular value of its own. You multiply the rows with them.",
        edit(
            (SVD, SVD.replace("False", "True")),
            (B, "(torch.nn.functional.pad(S, (0, len(U) - len(S)))[:, None] * U)[:, :r]"),
        ),
    ),
    wrong(
        "the_smallest_kept",
        "You keep the smallest singular values. svd sorts from the largest on, eigh from the smallest.",
        edit((BOTH, "U.flip(1)[:, :r] * S.flip(0)[:r], Vh.flip(0)[:r]")),
        edit((BOTH, "U[:, len(S) - r:] * S[len(S) - r:], Vh[len(S) - r:]")),
        edit((BOTH, "U[:, -r:] * S[-r:], Vh[-r:]")),
        by_gram_matrix,
    ),
    wrong(
        "not_the_first",
        "You leave the largest singular value out. Python counts from 0.",
        edit((BOTH, "U[:, 1:r + 1] * S[1:r + 1], Vh[1:r + 1]")),
        edit((BOTH, "U[:, 1:r] * S[1:r], Vh[1:r]")),
    ),
    wrong(
        "one_less",
        "The slice ends before r - 1. [:r] has r entries.",
        edit((BOTH, "U[:, :max(r - 1, 0)] * S[:max(r - 1, 0)], Vh[:max(r - 1, 0)]")),
    ),
    wrong(
        "fewer_where_the_rank_is_smaller",
        "Where delta has a smaller rank than r, your factors have fewer columns and rows. Whoever puts them into a "
        "layer asked for r: the others are zeros.",
        edit((f"U, S, Vh = {SVD}", f"r = min(r, int(torch.linalg.matrix_rank(delta)))\n    U, S, Vh = {SVD}")),
        edit((f"return {BOTH}", f"kept = S[:r] > 8 * torch.finfo(S.dtype).eps * S[:1]\n    return {KEPT}")),
    ),
    wrong(
        "one_more",
        "You keep r + 1 singular values. [:r] has r entries.",
        edit((BOTH, "U[:, :r + 1] * S[:r + 1], Vh[:r + 1]")),
        edit((BOTH, "U[:, :max(r, 1)] * S[:max(r, 1)], Vh[:max(r, 1)]")),
    ),
    wrong(
        "padded",
        "Your factors have as many columns and rows as there are singular values, with zeros for those left out. "
        "Nothing is saved: cut them to r.",
        edit((BOTH, "U * (S * (torch.arange(len(S)) < r)), Vh")),
    ),
    wrong(
        "all_of_delta",
        "You give all of delta, whatever r is. No matrix is nearer, but it is not of rank r, and nothing is saved.",
        edit((BOTH, "delta.clone(), torch.eye(delta.shape[1], dtype=delta.dtype)")),
        edit((BOTH, "torch.eye(len(delta), dtype=delta.dtype), delta.clone()")),
        edit((BOTH, "U * S, Vh")),
    ),
    wrong(
        "the_other_order",
        "You return A first. The product is B A, and B comes first.",
        edit((BOTH, f"{A}, {B}")),
        edit((BOTH, f"({A}).T, ({B}).T")),
    ),
    wrong(
        "transposed_factors",
        "Your factors are transposed, as if delta had the shape (n, m).",
        edit((BOTH, f"({B}).T, ({A}).T")),
    ),
    wrong(
        "divided_by_zero",
        "Somewhere you divide by a singular value, and it may be 0: the matrix has a rank below r then. delta V needs "
        "no division.",
        edit((B, "(delta @ Vh[:r].T / S[:r]) * S[:r]")),
        edit((BOTH, "U[:, :r], U[:, :r].T @ delta * (S[:r] / S[:r])[:, None]")),
    ),
    wrong(
        "tiny_values_dropped",
        "You drop singular values below a bound of your own. What counts as tiny depends on delta, and r alone says "
        "how many are kept.",
        edit((B, "U[:, :r] * S[:r] * (S[:r] > 0.1)")),
        edit((B, "U[:, :r] * S[:r] * (S[:r] > 1e-3 * S.max())")),
        edit((B, "U[:, :r] * S[:r] * (S[:r] > 1e-6 * S.max())")),
    ),
    wrong(
        "gram_schmidt",
        "QR makes the columns orthogonal, from the first on. It does not sort directions by how much of delta they "
        "hold.",
        orthogonal_columns,
    ),
    wrong(
        "squares_in_float32",
        "You take the eigenvectors of a Gram matrix, delta' delta, in float32. Its eigenvalues are the squares, so "
        "that small singular values vanish beside the largest, or altogether. Take the svd of delta, or the Gram "
        "matrix in float64.",
        by_largest_squares,
        fails=("small_values",),
    ),
    wrong(
        "in_half_precision",
        "Something inside is rounded to 16 bits, and comes back in the dtype of delta.",
        edit((BOTH, "(U[:, :r] * S[:r]).half().to(delta.dtype), Vh[:r].half().to(delta.dtype)")),
        rounds_to=torch.float16,
        by_chance=True,  # whether the few drawn entries have more digits than it keeps
    ),
    wrong(
        "another_dtype",
        "Your factors have another dtype than delta. The layer that they are added to would refuse them.",
        edit((BOTH, "(U[:, :r] * S[:r]).double(), Vh[:r].double()")),
        edit((B, "(U[:, :r] * S[:r]).double()")),
        edit((BOTH, "*((U[:, :r] * S[:r], Vh[:r]) if r else (torch.zeros(len(U), 0), torch.zeros(0, len(Vh.T)))),")),
        fails=("dtype_of_delta",),
    ),
    wrong(
        "always_float32",
        "Of a delta in float64 half of the digits are gone: you compute in float32, whatever comes back. Leave it in "
        "its dtype.",
        edit((BOTH, "(U[:, :r] * S[:r]).float(), Vh[:r].float()")),
        edit((SVD, SVD.replace("delta", "delta.float()"))),
        edit(
            (SVD, SVD.replace("delta", "delta.float()")),
            (BOTH, "(U[:, :r] * S[:r]).to(delta.dtype), Vh[:r].to(delta.dtype)"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "trains_what_came",
        "delta requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        edit((SVD, SVD.replace("delta", "delta.requires_grad_().detach()"))),
    ),
)
