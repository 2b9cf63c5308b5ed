"""Right and wrong ways to write `int8_matmul`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.int8 import int8_product
from course.reference.quantization.int8_matmul import int8_matmul


def by_numpy(qa: Tensor, qb: Tensor, za: Tensor, zb: Tensor) -> Tensor:
    """The product of codes, less what the zero points add: a w + z (b - w), with matrices z and w in NumPy's int64."""
    a, b = (codes.numpy().astype(np.int64) for codes in (qa, qb))
    z, w = np.broadcast_to(za.numpy(), a.shape), np.broadcast_to(zb.numpy(), b.shape)
    return (int8_product(qa, qb) - torch.from_numpy(a @ w + z @ (b - w))).to(torch.int32)


def one_side_first(qa: Tensor, qb: Tensor, za: Tensor, zb: Tensor) -> Tensor:
    """(a - za) b first, whose row sums are then known."""
    k = qa.size(1)
    product = int8_product(qa, qb).long()
    product -= za * qb.sum(dim=0)
    shifted = qa.sum(dim=1).unsqueeze(1) - k * za
    return (product - shifted * zb).int()


def by_ones(qa: Tensor, qb: Tensor, za: Tensor, zb: Tensor) -> Tensor:
    """Sums are products with ones; int8_product copies both matrices where one has a single column."""
    ones = torch.ones(qa.shape[1], 1, dtype=torch.int8)
    return int8_product(qa, qb) - int8_product(qa, ones) * zb - za * int8_product(ones.T, qb) + len(ones) * za * zb


RIGHT = (right(by_numpy, independent="numpy's int64"), right(one_side_first), right(by_ones))

matmul = partial(edited, int8_matmul)
naive = partial(edited, one_side_first)
PRODUCT, ROWS, COLUMNS, LAST = "int8_product(qa, qb)", " - zb * rows", " - za * columns", " + qa.shape[1] * za * zb"
ROW_SUMS, COLUMN_SUMS = "qa.sum(1, keepdim=True, dtype=torch.int32)", "qb.sum(0, keepdim=True, dtype=torch.int32)"
RETURN = f"return {PRODUCT}{ROWS}{COLUMNS}{LAST}"
IN_PARTS = """
    left, right = zip(qa, za.expand(len(qa), 1)), [*zip(qb.T, zb.expand(1, qb.shape[1])[0])]
    return torch.stack([torch.stack([((a.int() - z) * (b.int() - w)).sum() for b, w in right]) for a, z in left]).int()
"""

WRONG = (
    wrong(
        "one_zero_point_for_both",
        "Where one matrix has the zero point 0 you leave out that of the other one, too. Either may be 0 alone.",
        matmul((RETURN, f"return {PRODUCT} if not za.any() else {RETURN[7:]}")),
        matmul((RETURN, f"return {PRODUCT} if not zb.any() else {RETURN[7:]}")),
    ),
    wrong(
        "torchs_own_product",
        "Your product is wrong in some shape or view alone, as that of torch._int_mm is on a CPU: it mistakes rows for "
        "columns where a size is 1 and the matrix a view. int8_product keeps clear of that.",
        matmul((PRODUCT, f"{PRODUCT} * (qa.shape[1] > 1)")),  # _int_mm's own numbers hang on memory and processor
        fails=("every_form",),
    ),
    wrong(
        "cross_term_dropped",
        "One of the two terms with a sum is missing. Multiply out (a - za)(b - zb): - zb sum a, and - za sum b.",
        matmul((ROWS, "")),
        matmul((COLUMNS, "")),
        matmul((ROWS, ""), (COLUMNS, "")),
    ),
    wrong(
        "last_term_dropped",
        "k za zb is missing: minus times minus is added once for each k.",
        matmul((LAST, "")),
    ),
    wrong(
        "last_term_once",
        "za zb is added for each of the k terms, not once, and not for each row.",
        matmul((LAST, " + za * zb")),
        matmul((LAST, " + qa.shape[0] * za * zb")),
    ),
    wrong(
        "sign_of_the_last_term",
        "You take k za zb off. (-za)(-zb) is positive.",
        matmul((LAST, " - qa.shape[1] * za * zb")),
    ),
    wrong(
        "zero_points_added",
        "A code stands for its distance from the zero point: a - za, not a + za.",
        matmul((ROWS, " + zb * rows"), (COLUMNS, " + za * columns")),
    ),
    wrong(
        "zero_points_swapped",
        "The sums of qa's rows go with zb, and those of qb's columns with za: each with the other matrix's zero point.",
        matmul((ROWS, " - za * rows"), (COLUMNS, " - zb * columns")),
    ),
    wrong(
        "wraps_in_int8",
        "You subtract in int8, or add up in it. A difference of two codes needs nine bits, and what is left over is "
        "lost without a word.",
        matmul((RETURN, "return int8_product(qa - za.to(torch.int8), qb - zb.to(torch.int8))")),
        matmul((ROW_SUMS, "qa.sum(1, keepdim=True, dtype=torch.int8)")),
    ),
    wrong(
        "too_few_bits",
        "These sums need 31 bits. float32 has 24 for a whole number, and int16 has 15: your result is right only while "
        "it is small. And what is copied into another type takes more bytes than the codes.",
        matmul((RETURN, "return ((qa.float() - za) @ (qb.float() - zb)).to(torch.int32)")),
        fails=("exact_sums", "no_wide_copy"),
    ),
    wrong(
        "wide_copies",
        "Your sums are right, and made from copies of the codes in a wider type, of up to eight times their bytes. "
        "int8_product takes the codes as they are, and sum(1, dtype=torch.int32) needs no copy.",
        matmul((RETURN, "return (qa.int() - za) @ (qb.int() - zb)")),
        matmul((RETURN, "return ((qa.long() - za) @ (qb.long() - zb)).int()")),
        matmul((ROW_SUMS, "qa.int().sum(1, keepdim=True, dtype=torch.int32)")),
        matmul((COLUMN_SUMS, "qb.short().sum(0, keepdim=True, dtype=torch.int32)")),
        matmul((RETURN, f"int8_product(qa[:1, :1], qb[:1, :1]){IN_PARTS}")),
        matmul((ROW_SUMS, "torch.stack([row.sum() for row in [*map(torch.Tensor.int, qa)]]).int()[:, None]")),
        fails=("no_wide_copy",),
    ),
    wrong(
        "sums_of_a_mean",
        "You take the mean of the rows where the sum is meant.",
        matmul((ROW_SUMS, "qa.float().mean(1, keepdim=True).int()")),
    ),
    wrong(
        "one_number_only",
        "You make one number of the zero points. Each row of qa, and each column of qb, may have its own.",
        matmul((RETURN, f"za, zb = za.flatten()[0], zb.flatten()[0]\n    {RETURN}")),
    ),
    wrong(
        "indexes_each_row",
        "You index the zero points, multiply them as matrices, or give them a shape they have not: a zero point of "
        "shape () is one for all.",
        matmul((RETURN, f"za = za[:, 0][:, None]\n    {RETURN}")),
        matmul(("za * zb", "(za @ zb)")),
    ),
    wrong(
        "another_dtype",
        "The sums are right, and in another dtype: int32 holds them all.",
        naive(("(product - shifted * zb).int()", "product - shifted * zb")),
        naive(("(product - shifted * zb).int()", "(product - shifted * zb).double()")),
    ),
    wrong(
        "codes_changed",
        "You subtract a zero point in place. The codes belong to the caller, who multiplies with them again.",
        matmul((RETURN, f"y = {RETURN.removeprefix('return ')}\n    qa -= za.to(torch.int8)\n    return y")),
    ),
)
