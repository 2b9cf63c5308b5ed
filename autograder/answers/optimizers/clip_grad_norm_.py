"""Right and wrong ways to write `clip_grad_norm_`."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.clip_grad_norm_ import clip_grad_norm_


def _refuse(max_norm: float) -> None:
    if not max_norm >= 0:
        raise ValueError(f"max_norm must be at least 0, got {max_norm}")


def torchs_own(grads: list[Tensor], max_norm: float) -> Tensor:
    """Parameters that have these gradients, whatever they are, are handed to torch."""
    _refuse(max_norm)
    params = [torch.empty_like(g) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = g
    return torch.nn.utils.clip_grad_norm_(params, max_norm)


def one_long_vector(grads: list[Tensor], max_norm: float) -> Tensor:
    """All numbers end to end; tensors of two dtypes become one of the finer."""
    _refuse(max_norm)
    if len(grads) == 0:
        return torch.zeros(())
    norm: Tensor = torch.cat([g.reshape(-1) for g in grads]).norm()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g *= factor
    return norm


def running_sum(grads: list[Tensor], max_norm: float) -> Tensor:
    """Squares are added up in float64, of no gradients too; `not <=` is true of a nan."""
    _refuse(max_norm)
    squares = torch.zeros((), dtype=torch.float64)
    for g in grads:
        squares += g.square().sum()
    norm = squares.sqrt()
    if not norm <= max_norm:
        torch._foreach_mul_(grads, max_norm / (norm + 1e-6))
    return norm


def python_numbers(grads: list[Tensor], max_norm: float) -> float:
    """Floats, which raise where tensors become infinite; a nan is asked for by name."""
    _refuse(max_norm)
    if not grads:
        return 0.0
    norm = math.sqrt(math.fsum(float(g.double().pow(2).sum()) for g in grads))
    factor = max_norm / (norm + 1e-6)
    if factor < 1 or math.isnan(factor):
        for g in grads:
            g.copy_(g * factor)
    return norm


RIGHT = (
    right(torchs_own, independent="torch.nn.utils.clip_grad_norm_"),
    right(one_long_vector),
    right(running_sum),
    right(python_numbers),
)

norm_of_norms = partial(edited, clip_grad_norm_)
long_vector = partial(edited, one_long_vector)
summed = partial(edited, running_sum)

EMPTY = "    if not grads:\n        return torch.tensor(0.0)\n"
NORM = "torch.linalg.vector_norm(torch.stack(norms))"
FACTOR = "(max_norm / (norm + 1e-6)).clamp(max=1.0)"
SCALED = "g.mul_(factor.to(g.device))"
VECTOR = "torch.cat([g.reshape(-1) for g in grads])"
NO_EPS = "norm + 1e-6", "norm"

WRONG = (
    wrong(
        "per_tensor",
        "You clip each tensor by its own norm. That shortens large tensors and leaves small ones, so the "
        "direction of the step changes. There is one norm, of all tensors together, and one factor for all of them.",
        norm_of_norms((SCALED, "g.mul_((max_norm / (g.norm() + 1e-6)).clamp(max=1.0))")),
        norm_of_norms((SCALED, f"norm = g.norm()\n        g.mul_({FACTOR})")),
    ),
    wrong(
        "returns_the_norm_after",
        "You return the norm after clipping, which is hardly ever more than max_norm and tells nothing. The norm "
        "before is what one plots to see a training run go wrong: keep it before you scale.",
        long_vector(("return norm", f"return {VECTOR}.norm()")),
    ),
    wrong(
        "scales_up",
        "You lengthen short gradients: near a minimum, where gradients vanish, each step would still be long. The "
        "factor is at most 1, the smaller of 1 and max_norm / (norm + 1e-6); a tensor is limited from above by "
        "clamp(max=1.0).",
        norm_of_norms((FACTOR, "max_norm / (norm + 1e-6)")),
        norm_of_norms((FACTOR, "max_norm / norm")),
        norm_of_norms(("max=1.0", "min=1.0")),
    ),
    wrong(
        "clips_by_value",
        "You cut each number off at max_norm. That is another method: it bends the direction, and the norm may "
        "still be far above the limit. Here all numbers are multiplied by one factor.",
        norm_of_norms((SCALED, "g.clamp_(-max_norm, max_norm)")),
    ),
    wrong(
        "not_in_place",
        "The caller's tensors are unchanged: `g = g * factor` makes a new tensor and gives it a name, and a "
        "place in the list is a name too. An operation in place ends in an underscore (mul_), or is an augmented "
        "assignment to the tensor itself.",
        long_vector(("g *= factor", "g = g * factor")),
    ),
    wrong(
        "root_missing",
        "Somewhere the square of the norm stands for the norm. The sum of squares needs a root before it is "
        "compared with max_norm or divided by.",
        norm_of_norms((NORM, "torch.stack(norms).square().sum()")),
        norm_of_norms(("norm + 1e-6", "norm**2 + 1e-6")),
    ),
    wrong(
        "sum_of_norms",
        "You add up the norms of the tensors. Lengths of perpendicular pieces add by Pythagoras: the root of the "
        "sum of their squares, that is, the norm of the norms.",
        norm_of_norms((NORM, "torch.stack(norms).sum()")),
        norm_of_norms((NORM, "torch.stack(norms).sum().sqrt()")),
    ),
    wrong(
        "one_shape_only",
        "Your norm works for vectors, or for tensors of one shape. Gradients have all shapes, a single number "
        "too: take the norm of each tensor's numbers (square, then sum over everything), and join those. "
        "torch.linalg.norm(g, 2) is something else for a matrix, its largest singular value; vector_norm is not.",
        long_vector((VECTOR, "torch.stack(grads)")),
        long_vector((VECTOR, "torch.cat(grads)")),
        norm_of_norms(("torch.linalg.vector_norm(g)", "torch.linalg.norm(g, 2)")),
    ),
    wrong(
        "another_eps",
        "Under the fraction stands norm + 1e-6: no other small number, not none, and not under the root, where "
        "1e-6 acts like a gradient of norm 1e-3. Without it gradients of norm 0 divide by 0; with it a clipped norm "
        "is a trifle below max_norm, which is what torch does.",
        edited(python_numbers, NO_EPS),
        summed(NO_EPS, ("not norm <= max_norm", "norm > max_norm")),
        norm_of_norms(NO_EPS),
        norm_of_norms(("1e-6", "1e-8")),
        norm_of_norms((NORM, "torch.stack(norms).square().sum().add(1e-6).sqrt()"), NO_EPS),
    ),
    wrong(
        "digits_lost_in_float32",
        "torch.zeros(()) and torch.tensor(number) are float32 unless told otherwise, so float64 gradients are "
        "scaled by a factor with 7 digits. Let norm and factor take their dtype from the gradients, or use Python "
        "floats.",
        summed((", dtype=torch.float64", "")),
        norm_of_norms(("(max_norm / (norm + 1e-6))", "torch.tensor(max_norm / (norm.item() + 1e-6))")),
    ),
    wrong(
        "nan_slips_through",
        "With a nan in one gradient you leave all of them alone: a comparison with nan is false, in `if norm > "
        "max_norm` and inside Python's min(1.0, ...). Here the factor is then nan, and every gradient shows it. A "
        "tensor's clamp(max=1.0) keeps a nan.",
        summed(("not norm <= max_norm", "norm > max_norm")),
        norm_of_norms((FACTOR, "min(torch.tensor(1.0), max_norm / (norm + 1e-6))")),
    ),
    wrong(
        "special_case_for_what_is_not_finite",
        "You treat infinities and nan apart. That may be wise in a training loop, which sees the "
        "returned norm and can skip its step. This function does what torch's does by default: the same arithmetic "
        "for every norm, and inf * 0 is nan.",
        norm_of_norms(("    factor =", "    if not norm.isfinite():\n        return norm\n    factor =")),
    ),
    wrong(
        "needs_a_gradient",
        "An empty list breaks your function: a model whose parameters are all frozen has no gradients, and their "
        "norm is 0. Return that before torch.stack or torch.cat, which want at least one tensor, and before grads[0].",
        norm_of_norms((EMPTY, "")),
        norm_of_norms((EMPTY, ""), (NORM, "torch.sqrt(sum(each**2 for each in norms))")),
        summed(("torch.float64", "torch.float64, device=grads[0].device")),
        summed(("torch.float64", "grads[0].dtype")),
    ),
    wrong(
        "refuses_too_little",
        "All is right but for a negative max_norm: it makes the factor negative, and the step goes uphill. Raise "
        "a ValueError before anything is changed.",
        summed(("    _refuse(max_norm)\n", "")),
        fails=("refuses_a_negative_limit",),
    ),
)
