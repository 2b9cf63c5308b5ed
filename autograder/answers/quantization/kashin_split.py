"""Right and wrong ways to write `kashin_split`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.kashin_split import kashin_split


def greedy_in_a_frame(x: Tensor, q: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """NumPy, in a frame of two bases: x = [I q] (u, v); each step solves for one multiple of a sign vector."""
    basis, target = q.double().numpy(), np.atleast_2d(x.double().numpy())
    frame = np.concatenate([np.eye(len(basis)), basis], axis=1)
    found = np.zeros((len(target), frame.shape[1]))
    for _ in range(steps):
        left = target - found @ frame.T
        halves = np.split(left @ frame, 2, axis=1)
        at = int(np.abs(halves[1]).sum() > np.abs(halves[0]).sum() * (1 + 1e-12))
        signs = np.where(halves[at] >= 0, 1.0, -1.0)
        size = np.vdot(signs, halves[at]) / np.vdot(signs, signs)
        found[:, at * len(basis) : (at + 1) * len(basis)] += size * signs
    u, v = (torch.from_numpy(each.copy()).reshape(x.shape).to(x.dtype) for each in np.split(found, 2, axis=1))
    return u, v


def recursive(x: Tensor, q: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """One step, and then what is left is split in one step less."""
    if steps == 0:
        return torch.zeros_like(x), torch.zeros_like(x)
    other = torch.einsum("...i,ij->...j", x, q)
    if torch.linalg.vector_norm(x, 1) >= torch.linalg.vector_norm(other, 1):
        part = torch.mean(torch.abs(x)) * torch.ones_like(x).copysign(x + 0.0)
        u, v = recursive(x - part, q, steps - 1)
        return u + part, v
    part = torch.mean(torch.abs(other)) * (2 * (other >= 0).to(x.dtype) - 1)
    u, v = recursive(x - torch.einsum("ij,...j->...i", q, part), q, steps - 1)
    return u, v + part


RIGHT = (right(greedy_in_a_frame, independent="NumPy, projections in one frame"), right(recursive))

edit = partial(edited, kashin_split)
CHOICE = "basis = 0 if norms[0] >= norms[1] else 1"
SEEN = "(residual, residual @ q)"
NORM = "each.abs().sum() for each in seen"
SIZE = "size = norms[basis] / x.numel()"
TAKEN = "residual -= part @ q.T if basis else part"
PART = "torch.where(seen[basis] < 0, -size, size)"

WRONG = (
    wrong(
        "own_basis_only",
        "You stay in the basis of x. A few large entries stay large there: look at q' r as well.",
        edit((CHOICE, "basis = 0")),
    ),
    wrong(
        "other_basis_only",
        "You stay in the basis q. Take the basis in which the 1-norm of what is left is larger.",
        edit((CHOICE, "basis = 1")),
    ),
    wrong(
        "one_after_the_other",
        "You take the bases in turn. The larger 1-norm decides: its projection takes more off the residual.",
        edit(("for _ in range(steps)", "for number in range(steps)"), (CHOICE, "basis = number % 2")),
        edit(("for _ in range(steps)", "for number in range(steps)"), (CHOICE, "basis = 1 - number % 2")),
        by_chance=True,  # after many steps in turn as much may be taken off
    ),
    wrong(
        "the_smaller_norm",
        "You take the basis with the smaller 1-norm. The projection takes |r|_1^2 / n off the squared length: more "
        "where the norm is larger.",
        edit((CHOICE, CHOICE.replace(">=", "<="))),
    ),
    wrong(
        "another_norm",
        "You compare the largest entries, which say little about the projection: its length grows with the 1-norm.",
        edit((CHOICE, "basis = 0 if residual.abs().max() >= (residual @ q).abs().max() else 1")),
        by_chance=True,
    ),
    wrong(
        "residual_not_updated",
        "You split x again at each step. A step looks at what is left: x - u - q v.",
        edit((TAKEN, "pass")),
    ),
    wrong(
        "not_turned_back",
        "What is added to v counts as q times it: turn it back before you take it off the residual.",
        edit((TAKEN, "residual -= part")),
        edit((TAKEN, TAKEN.replace("q.T", "q"))),
    ),
    wrong(
        "q_for_its_transpose",
        "The entries of x in the basis q are q' x, for rows x @ q. You take q x.",
        edit((SEEN, "(residual, residual @ q.T)"), (TAKEN, TAKEN.replace("q.T", "q"))),
        edit((SEEN, "(residual, residual @ q.T)")),
    ),
    wrong(
        "projection_without_its_size",
        "The projection of r on its sign vector s is (r s / s s) s: the mean absolute value times the signs. You take "
        "another multiple of s.",
        edit((SIZE, "size = torch.ones_like(norms[basis])")),
        edit((SIZE, "size = residual.norm() / x.numel() ** 0.5")),
        edit((SIZE, "size = norms[basis] / x.numel() ** 0.5")),
        edit((SIZE, "size = residual.norm() / x.numel()")),
        edit((SIZE, "size = seen[basis].abs().max() / 2")),
        by_chance=True,
    ),
    wrong(
        "no_signs",
        "You add the mean absolute value, without the signs.",
        edit((PART, "torch.ones_like(x) * size")),
    ),
    wrong(
        "sign_of_0_is_0",
        "torch.sign gives 0 for 0. Then the vector is no sign vector, and its squared length no longer n.",
        edit((PART, "seen[basis].sign() * size")),
        edit((PART, "seen[basis].sign() * (norms[basis] / (seen[basis] != 0).sum().clamp(min=1))")),
        edit((PART, f"seen[basis].sign() * size if basis else {PART}")),
    ),
    wrong(
        "each_row_by_itself",
        "You choose, or take the mean, for each row. A matrix counts as one vector here: one number and one choice at "
        "a step.",
        edit((SIZE, "size = seen[basis].abs().mean(dim=-1, keepdim=True)")),
    ),
    wrong(
        "divided_by_the_length_of_a_row",
        "You divide the sum of a matrix by the length of a row. A matrix has rows times n entries.",
        edit((SIZE, "size = norms[basis] / len(q)")),
    ),
    wrong(
        "v_in_the_first_basis",
        "You return q v. The second factor is v itself, whose entries are small; q turns it when x is put together.",
        edit(("return factors[0], factors[1]", "return factors[0], factors[1] @ q.T")),
    ),
    wrong(
        "row_squeezed_away",
        "A matrix may have one row, and u and v are like x: `.squeeze` takes this dimension away.",
        edit(("return factors[0], factors[1]", "return factors[0].squeeze(0), factors[1].squeeze(0)")),
    ),
    wrong(
        "the_other_order",
        "You return v first. u comes first.",
        edit(("return factors[0], factors[1]", "return factors[1], factors[0]")),
    ),
    wrong(
        "ties_to_q",
        "Where both 1-norms are equal, the residual is taken as it is: compare with >=.",
        edit((CHOICE, CHOICE.replace(">=", ">"))),
    ),
    wrong(
        "at_least_one_step",
        "You make a step where none is wanted: without one both factors are zeros.",
        edit(("range(steps)", "range(max(steps, 1))")),
    ),
    wrong(
        "divided_by_the_length_of_x",
        "You divide by the length of x, which may be 0. No division is needed.",
        edit(
            ("residual = x.clone()", "residual = x / x.norm()"),
            ("return factors[0], factors[1]", "return factors[0] * x.norm(), factors[1] * x.norm()"),
        ),
    ),
    wrong(
        "computed_in_float32",
        "You compute in float32, or multiply by q in it, where x is in float64: half of its digits are lost, also if "
        "both factors are turned into float64 again. Compute in the dtype of x.",
        edit(
            ("residual = x.clone()", "dtype, x, q = x.dtype, x.float(), q.float()\n    residual = x.clone()"),
            ("return factors[0], factors[1]", "return factors[0].to(dtype), factors[1].to(dtype)"),
        ),
        edit((SEEN, "(residual, (residual.float() @ q.float()).to(x.dtype))")),
        rounds_to=torch.float32,
    ),
    wrong(
        "another_dtype",
        "Your factors are in float32, or begin in it, and stay there where nothing is added. They come in the dtype of "
        "x: begin with zeros like x.",
        edit(("return factors[0], factors[1]", "return factors[0].float(), factors[1].float()")),
        edit(
            ("factors = [torch.zeros_like(x), torch.zeros_like(x)]", "factors = 2 * [torch.zeros(x.shape)]"),
            ("factors[basis] += part", "factors[basis] = factors[basis] + part"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "another_number_of_steps",
        "Your loop makes one step too many, or too few.",
        edit(("range(steps)", "range(steps + 1)")),
        edit(("range(steps)", "range(steps - 1)")),
    ),
    wrong(
        "stops_early",
        "You stop where little is left. Make all steps that are asked for: each takes off some more.",
        edit((SEEN, f"{SEEN}\n        if residual.norm() < 1e-2 * x.norm():\n            break")),
        fails=("few_steps",),
    ),
    wrong(
        "trains_what_came",
        "x or q requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        edit(("residual = x.clone()", "residual = x.requires_grad_().detach().clone()")),
        edit(("residual = x.clone()", "residual = x.clone()\n    q = q.requires_grad_().detach()")),
    ),
)
