"""Right and wrong ways to write `gptq_quantize`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.gptq_quantize import gptq_quantize


def least_squares(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> Tensor:
    """NumPy's solution for the columns still to come, anew after each column, from all errors so far."""
    H, W, s = (each.detach().double().numpy() for each in (hessian, w, step))
    n, top = W.shape[1], 2 ** (bits - 1) - 1
    H = H + damp * np.trace(H) / n * np.eye(n)
    codes, errors = np.zeros_like(W), np.zeros_like(W)
    for j in range(n):
        moved = -np.linalg.solve(H[j:, j:], H[j:, :j] @ errors[:, :j].T).T
        codes[:, j] = np.clip(np.rint((W[:, j] + moved[:, 0]) / s[:, 0]), -top, top)
        errors[:, j] = s[:, 0] * codes[:, j] - W[:, j]
    return torch.from_numpy(codes).to(torch.int8)


def one_less(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> Tensor:
    """The inverse itself, from which the rounded column is eliminated each time: the paper's equations 2 and 3."""
    n, top = w.shape[1], 2 ** (bits - 1) - 1
    left, codes = w.clone(), []
    diagonal = torch.diag(hessian.diag().mean().repeat(n) * damp)
    inverse = (hessian + diagonal).inverse()
    for j in range(n):
        code = torch.clamp(torch.round(left[:, j] / step.squeeze(1)), min=-top, max=top)
        codes.append(code)
        error = (left[:, j] - code * step.squeeze(1)) / inverse[j, j]
        left = left - error[:, None] * inverse[j][None, :]
        inverse = inverse - inverse[:, j : j + 1] @ inverse[j : j + 1, :] / inverse[j, j]
    return torch.stack(codes, dim=1).to(torch.int8)


RIGHT = (right(least_squares, independent="numpy.linalg.solve for each column"), right(one_less))

edit, eliminating = partial(edited, gptq_quantize), partial(edited, one_less)
DAMPED = "H + damp * H.diagonal().mean() * torch.eye(n, dtype=H.dtype, device=H.device)"
FACTOR = "torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)"
CODE = "torch.round(rest[:, j] / scale).clamp(-top, top)"
ERROR = "error = (rest[:, j] - scale * code) / U[j, j]"
FED = "rest[:, j:] -= torch.outer(error, U[j, j:])"
ELIMINATED = "inverse = inverse - inverse[:, j : j + 1] @ inverse[j : j + 1, :] / inverse[j, j]"

WRONG = (
    wrong(
        "no_error_fed_forward",
        "You round each number by itself: the Hessian does nothing. Where inputs are correlated, later columns can "
        "make good what a column loses.",
        edit((FED, "pass")),
        edit(("range(n)", "range(n - 1, -1, -1)"), (FED, "rest[:, j + 1:] -= torch.outer(error, U[j, j + 1:])")),
    ),
    wrong(
        "damping_missing",
        "You add nothing to the Hessian's diagonal. Where an input is always 0, or there are fewer inputs than "
        "columns, it has no inverse.",
        edit((DAMPED, "H")),
        by_chance=True,  # what becomes of a matrix that is singular but for roundings
    ),
    wrong(
        "damping_absolute",
        "You add damp itself to the diagonal. It is a part of the diagonal's mean: inputs a thousand times smaller "
        "have a Hessian a million times smaller.",
        edit((DAMPED, "H + damp * torch.eye(n, dtype=H.dtype, device=H.device)")),
        by_chance=True,  # with fewer inputs than columns a little may be enough
    ),
    wrong(
        "damping_not_as_told",
        "You damp by the part that people use, 0.01 of the diagonal's mean, and not by `damp` of it. Where it is too "
        "much, columns make less good than they could.",
        edit((DAMPED, DAMPED.replace("damp *", "0.01 *"))),
        by_chance=True,
    ),
    wrong(
        "damping_by_the_median",
        "You damp by a part of the diagonal's median. It is a part of its mean, which a few large inputs raise.",
        edit((DAMPED, DAMPED.replace("mean", "median"))),
        by_chance=True,
    ),
    wrong(
        "the_hessians_own_factor",
        "You take the Cholesky factor of the Hessian. The corrections stand in that of its inverse.",
        edit((FACTOR, "torch.linalg.cholesky(damped, upper=True)")),
        by_chance=True,
    ),
    wrong(
        "the_other_product",
        "Your factor is upper triangular, and U U' is the inverse. Take the one for which U' U is: its rows say how "
        "the columns after j move.",
        edit((FACTOR, "torch.linalg.cholesky(torch.linalg.inv(damped).flip(0, 1)).flip(0, 1)")),
        by_chance=True,
    ),
    wrong(
        "not_divided_by_the_diagonal",
        "The error is divided by U[j, j] before it is fed: a row of U over its first entry is the correction for an "
        "error of 1.",
        edit((ERROR, "error = rest[:, j] - scale * code")),
        edit((ERROR, ERROR + " ** 2")),
        by_chance=True,
    ),
    wrong(
        "inverse_not_updated",
        "You take rows of the inverse as it was at the beginning. The columns that are rounded can move no more: take "
        "each out of the inverse, or use the Cholesky factor, which has done so.",
        eliminating((ELIMINATED, "pass")),
        by_chance=True,
    ),
    wrong(
        "wrong_sign",
        "You push later columns the wrong way: the correction is taken off.",
        edit((FED, FED.replace("-=", "+="))),
        by_chance=True,
    ),
    wrong(
        "error_in_steps",
        "You feed the error of the codes. It must be in the weight's own unit: multiply it by the step.",
        edit((ERROR, "error = (rest[:, j] / scale - code) / U[j, j]")),
        by_chance=True,
    ),
    wrong(
        "only_the_next_column",
        "You move the next column only. All columns after j can make something good.",
        edit((FED, "rest[:, j:j + 2] -= torch.outer(error, U[j, j:j + 2])")),
        by_chance=True,
    ),
    wrong(
        "lost_between_blocks",
        "You go through the columns in blocks, and what one block loses never reaches the next. After each block take "
        "its errors times the rows of U off all columns behind it.",
        edit((FED, f"end = j // 128 * 128 + 128\n        {FED.replace('j:', 'j:end')}")),
    ),
    wrong(
        "not_cut_off",
        "Corrections push values beyond the range, and your codes go with them. Cut them off at the last code.",
        edit((CODE, CODE.replace(".clamp(-top, top)", ".clamp(-128, 127)"))),
        by_chance=True,
    ),
    wrong(
        "codes_end_at_seven",
        "Your codes end at 7, whatever `bits` says. The last one is 2**(bits - 1) - 1: 127 with 8 bits.",
        edit(("top = 2 ** (bits - 1) - 1", "top = min(7, 2 ** (bits - 1) - 1)")),
        by_chance=True,
    ),
    wrong(
        "one_column_squeezed_away",
        "A weight may have one column: `.squeeze(1)` takes this dimension away. Index it.",
        edit(("rest, scale = w.double().clone()", "rest, scale = w.double().clone().squeeze(1)")),
    ),
    wrong(
        "one_code_more",
        "Your codes go down to -2**(bits - 1). The grid is symmetric: the last code below is the negative of that "
        "above.",
        edit((CODE, CODE.replace("-top", "-top - 1"))),
        by_chance=True,
    ),
    wrong(
        "cut_off_error_lost",
        "You feed what rounding lost, and not what the range has cut off. Take the error after the code was cut off.",
        edit((ERROR, ERROR.replace("code)", "torch.round(rest[:, j] / scale))"))),
        by_chance=True,
    ),
    wrong(
        "towards_zero",
        "You drop what stands behind the point. Round to the nearest code.",
        edit((CODE, CODE.replace("torch.round", "torch.trunc"))),
        edit((CODE, CODE.replace("torch.round", "torch.floor"))),
        by_chance=True,
    ),
    wrong(
        "one_step_for_all",
        "Each row has a step of its own. You take their mean, or the first.",
        edit(("step.double()[:, 0]", "step.double().mean().expand(m)")),
        edit(("step.double()[:, 0]", "step.double()[0, 0].expand(m)")),
        by_chance=True,
    ),
    wrong(
        "values_for_codes",
        "You return values. Codes are whole numbers, in int8.",
        edit(("codes[:, j] = code", "codes[:, j] = code * scale")),
        edit(("dtype=torch.int8", "dtype=torch.float32"), ("codes[:, j] = code", "codes[:, j] = code * scale")),
        by_chance=True,
    ),
    wrong(
        "trains_what_came",
        "w or the Hessian requires a gradient after the call, and did not before: requires_grad_() changes the "
        "caller's own tensor. detach() makes one of your own.",
        edit(("H = hessian.double()", "H = hessian.requires_grad_().detach().double()")),
        edit(("w.double()", "w.requires_grad_().detach().double()")),
    ),
)
