"""Right and wrong ways to write `split_outliers`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.split_outliers import split_outliers


def column_by_column(x: Tensor, w: Tensor, threshold: float) -> Tensor:
    """NumPy's float64, one column after the other; codes from a loop over rows."""
    xs, ws = x.detach().double().numpy(), w.detach().double().numpy()
    high = [j for j in range(xs.shape[1]) if np.any(np.abs(xs[:, j]) >= threshold)]
    y = sum((np.outer(xs[:, j], ws[:, j]) for j in high), np.zeros((len(xs), len(ws))))

    def grid(rows: np.ndarray) -> np.ndarray:
        made = []
        for row in np.delete(rows, high, axis=1):
            step = np.max(np.abs(row), initial=0.0) / 127 or 1.0
            made.append(np.rint(row / step) * step)
        return np.array(made).reshape(len(rows), rows.shape[1] - len(high))

    return torch.from_numpy(y + grid(xs) @ grid(ws).T).to(x.dtype)


def masked(x: Tensor, w: Tensor, threshold: float) -> Tensor:
    """No column is taken out: zeros stand in its place on the other side."""
    xf, wf = x.float(), w.float()
    high = xf.abs().ge(threshold).sum(dim=0) > 0
    low_x, low_w = xf.masked_fill(high, 0), wf.masked_fill(high, 0)
    dx = low_x.abs().max(dim=1, keepdim=True).values / 127
    dw = low_w.abs().max(dim=1).values / 127
    dx[dx == 0], dw[dw == 0] = 1, 1
    codes = torch.round(low_x / dx), torch.round(low_w / dw.unsqueeze(1))
    y = (codes[0].double() @ codes[1].double().T).float() * dx * dw
    y += xf.masked_fill(~high, 0) @ wf.T
    return y.to(x.dtype)


RIGHT = (right(column_by_column, independent="numpy, a column at a time"), right(masked))

split = partial(edited, split_outliers)
by_mask = partial(edited, masked)
OUTLIER = "outlier = (x.float().abs() >= threshold).any(0)"
PARTS = "(qx, dx), (qw, dw) = _codes(x[:, ~outlier]), _codes(w[:, ~outlier])"
REST = "int8_product(qx, qw.T) * dx * dw.T"
SUM = f"(exact + {REST})"
OWN = ("rows = rows.float()", "dtype, rows = rows.dtype, rows.float()")
CODES = "return (rows / step).round().to(torch.int8), step"

WRONG = (
    wrong(
        "rows_for_columns",
        "You look for outliers in rows of x. An outlier feature is a column: the same input of all tokens, which meets "
        "one column of w.",
        by_mask(
            ("xf.abs().ge(threshold).sum(dim=0) > 0", "(xf.abs().ge(threshold).sum(dim=1) > 0)[:, None]"),
            ("wf.masked_fill(high, 0)", "wf"),
        ),
        by_mask(
            ("xf.abs().ge(threshold).sum(dim=0) > 0", "xf.abs().ge(threshold)"),
            ("wf.masked_fill(high, 0)", "wf"),
        ),
    ),
    wrong(
        "outliers_of_w",
        "You look for outliers in w. It is the columns of x that are split; w's go with them.",
        split((OUTLIER, "outlier = (w.abs() >= threshold).any(0) | (w.abs() > threshold / 6).any(0)")),
    ),
    wrong(
        "above_the_threshold_only",
        "An |x| that equals the threshold is an outlier, too: >=.",
        split((">= threshold", "> threshold")),
        fails=("at_the_threshold",),
    ),
    wrong(
        "positive_outliers_only",
        "Outliers may be negative: compare |x|.",
        split(("x.float().abs() >= threshold", "x.float() >= threshold")),
    ),
    wrong(
        "every_row_must_be_large",
        "One outlier in a column is enough; you ask for outliers in all rows, or for a large mean.",
        split((".any(0)", ".all(0)")),
        split((OUTLIER, "outlier = x.abs().mean(0) >= threshold")),
    ),
    wrong(
        "steps_before_the_split",
        "You take the steps over all columns. The outliers set them then, and the rest has a few codes left: they are "
        "what the split is to protect it from.",
        split((PARTS, "(qx, dx), (qw, dw) = _codes(x), _codes(w)\n    qx, qw = qx[:, ~outlier], qw[:, ~outlier]")),
        split((PARTS, "(qx, dx), (qw, dw) = _codes(x[:, ~outlier]), _codes(w)\n    qw = qw[:, ~outlier]")),
    ),
    wrong(
        "all_in_int8",
        "Everything is rounded to int8, outliers as well.",
        split((OUTLIER, "outlier = torch.zeros(x.shape[1], dtype=torch.bool)")),
    ),
    wrong(
        "nothing_in_int8",
        "Everything is multiplied in full precision: nothing is quantized.",
        split((SUM, "(x.double() @ w.double().T)")),
    ),
    wrong(
        "outliers_dropped",
        "The columns with outliers are left out. Their product is added in full precision.",
        split((SUM, f"({REST})")),
    ),
    wrong(
        "rest_dropped",
        "Only the columns with outliers are multiplied. The rest is added, from int8.",
        split((SUM, "exact")),
    ),
    wrong(
        "outliers_twice",
        "The columns with outliers take part in both products.",
        split((PARTS, "(qx, dx), (qw, dw) = _codes(x), _codes(w)")),
    ),
    wrong(
        "one_step_per_matrix",
        "Each row of x and each row of w has a step of its own. You use one for a whole matrix.",
        by_mask(
            ("low_x.abs().max(dim=1, keepdim=True).values / 127", "(low_x.abs().max() / 127).expand(len(x), 1).clone()")
        ),
        by_mask(("low_w.abs().max(dim=1).values / 127", "low_w.abs().max().expand(len(w)) / 127")),
    ),
    wrong(
        "truncates",
        "You cut off what follows the point: round to the nearest integer.",
        split((".round().to", ".to")),
    ),
    wrong(
        "zeros_divided",
        "A row of zeros has the step 0, and 0 / 0 is nan: give it the step 1.",
        by_mask(("dx[dx == 0], dw[dw == 0] = 1, 1", "")),
    ),
    wrong(
        "largest_of_nothing",
        "Where every column holds an outlier you ask for the largest of no numbers, which is an error.",
        split(("torch.nn.functional.pad(rows.abs(), (0, 1))", "rows.abs()")),
    ),
    wrong(
        "sums_in_half",
        "The integers are put into the dtype of x before they are scaled. float16 ends at 65,504.",
        split((REST, "int8_product(qx, qw.T).to(x.dtype) * dx.to(x.dtype) * dw.T.to(x.dtype)")),
    ),
    wrong(
        "codes_scaled_before_the_product",
        "You multiply codes by steps before the product, so that each of its terms is rounded. The product of codes is "
        "exact; steps come after it.",
        split((REST, "(qx * dx) @ (qw * dw).T")),
        split((REST, "(qx.float() @ (qw * dw).T) * dx")),
        split((REST, "((qx * dx) @ qw.float().T) * dw.T")),
        fails=("no_outlier", "thousands_of_products"),
    ),
    wrong(
        "codes_multiplied_in_float32",
        "You multiply the codes as float32, which holds whole numbers up to 2**24: a sum of a thousand products is "
        "beyond that. Multiply integers, as int8_product does, or take float64.",
        split((REST, "(qx.float() @ qw.float().T) * dx * dw.T")),
        by_mask(("(codes[0].double() @ codes[1].double().T).float()", "(codes[0] @ codes[1].T)")),
        fails=("thousands_of_products",),
    ),
    wrong(
        "float32_out",
        "y is in float32 whatever x is in, always or where a product is empty: torch.zeros without a dtype is in "
        "float32, too.",
        split((".to(x.dtype)", "")),
        split((OUTLIER, f"{OUTLIER}\n    if outlier.all():\n        return x.float() @ w.float().T")),
        split((OUTLIER, f"{OUTLIER}\n    if not len(x):\n        return torch.zeros(0, len(w))")),
    ),
    wrong(
        "steps_in_half",
        "You take steps, quotients or the scales of the product in the dtype of x, or compare in it, which rounds the "
        "threshold first: 7.97 is 7.96875 in bfloat16. A float16 has three digits, and fewer below 6e-5, where a step "
        "of small numbers becomes 0: turn the rows into float32 first, and stay there.",
        split((REST, "int8_product(qx, qw.T) * dx.to(x.dtype).float() * dw.T.to(x.dtype).float()")),
        split((REST, "int8_product(qx, qw.T) * (dx * dw.T).to(x.dtype).float()")),
        split(
            ("rows = rows.float()", "pass"),
            (CODES, "return (rows / step).clamp(-127, 127).round().to(torch.int8), step.float()"),
        ),
        split(OWN, (CODES, CODES.replace("step).round", "step).to(dtype).float().round"))),
        split(("rows = rows.float()", "rows = rows.float() if rows.dtype == torch.float16 else rows")),
        split((OUTLIER, OUTLIER.replace("x.float()", "x"))),
    ),
    wrong(
        "trains_what_came",
        "x or w requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        split((OUTLIER, f"x.requires_grad_()\n    x = x.detach()\n    {OUTLIER}")),
        split((OUTLIER, f"w.requires_grad_()\n    w = w.detach()\n    {OUTLIER}")),
    ),
)
