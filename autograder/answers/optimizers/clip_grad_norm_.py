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
    """Squares are added up in float64, of no gradients too; `not >=` is true of a nan."""
    _refuse(max_norm)
    squares = torch.zeros((), dtype=torch.float64)
    for g in grads:
        squares += g.double().square().sum()
    norm = squares.sqrt()
    factor = max_norm / (norm + 1e-6)
    if not factor >= 1:
        torch._foreach_mul_(grads, factor)
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
UNLESS = "not factor >= 1"
LARGER = "norm > max_norm"
ONE_BY_ONE = "n = g.norm()\n        if n > max_norm:\n            g.mul_(max_norm / (n + 1e-6))"

coarse = edited(clip_grad_norm_, ("torch.linalg.vector_norm(g)", "g.square().sum().sqrt()"))
ASKED = "max_norm / (norm + 1e-6) if norm > max_norm else torch.ones(())"
TOO_FEW = "max_norm > 0", "0 <= max_norm < float('inf')"
REFUSED = "at_least_zero(max_norm=max_norm)"
in_both = norm_of_norms, partial(edited, coarse)  # many a wrong answer has squares in float16 besides

WRONG = (
    wrong(
        "per_tensor",
        "You clip each tensor by its own norm. That shortens large tensors and leaves small ones, so the "
        "direction of the step changes. There is one norm, of all tensors together, and one factor for all of them.",
        *(way((SCALED, ONE_BY_ONE)) for way in in_both),
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
        *(way((FACTOR, "max_norm / (norm + 1e-6)")) for way in in_both),
        norm_of_norms((FACTOR, "max_norm / norm")),
        norm_of_norms(("max=1.0", "min=1.0")),
    ),
    wrong(
        "clips_by_value",
        "You cut each number off at max_norm. That is another method: it bends the direction, and the norm may "
        "still be far above the limit. Here all numbers are multiplied by one factor.",
        *(way((SCALED, "g.clamp_(-max_norm, max_norm)")) for way in in_both),
        norm_of_norms((SCALED, "g.clamp_(max=max_norm)")),
    ),
    wrong(
        "not_in_place",
        "The memory of the caller's tensors is unchanged: `g = g * factor` makes a new tensor and gives it a name, "
        "a place in the list is a name too, and `g.data = ...` gives g other memory, which no view of it sees. An "
        "operation in place ends in an underscore (mul_), or is an augmented assignment to the tensor itself.",
        *(way((SCALED, "g = g * factor")) for way in in_both),
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
        "another_norm",
        "Your norm is not the Euclidean one. That is the root of the sum of all squares: not the largest number (the "
        "norm for inf), not the sum of all sizes (the norm for 1), and not the root of the mean of the squares.",
        long_vector((f"{VECTOR}.norm()", f"{VECTOR}.abs().max()")),
        norm_of_norms(("torch.linalg.vector_norm(g)", "g.abs().max()"), (NORM, "max(norms)")),
        long_vector((f"{VECTOR}.norm()", f"{VECTOR}.abs().sum()")),
        norm_of_norms((NORM, f"({NORM} / sum(g.numel() for g in grads) ** 0.5)")),
    ),
    wrong(
        "squares_in_float16",
        "All is right where numbers have 32 bits. Your squares of float16 numbers are in float16, which ends at 65504: "
        "from 256 on they are infinite. Add up the squares of g.float(), or let torch.linalg.vector_norm do it.",
        coarse,
    ),
    wrong(
        "added_up_in_bfloat16",
        "Your squares of bfloat16 numbers are added up in bfloat16, one by one. It has float32's range, but 256 + 1 is "
        "256 there: a sum of many numbers stands still. Add up the squares of g.float(), or let "
        "torch.linalg.vector_norm do it.",
        summed(("g.double().square().sum()", "sum((g.float() if g.dtype == torch.float16 else g).square().flatten())")),
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
        summed(NO_EPS, (UNLESS, LARGER)),
        *(way(NO_EPS) for way in in_both),
        norm_of_norms(("1e-6", "1e-8")),
        norm_of_norms((NORM, "torch.stack(norms).square().sum().add(1e-6).sqrt()"), NO_EPS),
    ),
    wrong(
        "digits_lost_in_float32",
        "Only gradients in float64 do not get all their digits: something on the way to the norm or the factor has "
        "fewer, perhaps only beside gradients in float32. torch.zeros(()) and torch.tensor(number) are float32 unless "
        "told otherwise. Let norm and factor take their dtype from all gradients, or use Python floats.",
        summed((", dtype=torch.float64", "")),
        *(
            summed(
                ("    squares =", f"    wide = torch.float64 if all({doubles}) else torch.float32\n    squares ="),
                ("g.double()", "g.to(wide)"),
            )
            for doubles in ("g.dtype == torch.float64 for g in grads", "g.dtype == torch.float64 for g in grads[:1]")
        ),
        norm_of_norms(("(max_norm / (norm + 1e-6))", "torch.tensor(max_norm / (norm.item() + 1e-6))")),
        fails=("digits_of_float64",),
    ),
    wrong(
        "nan_slips_through",
        "With a nan in one gradient you leave all of them alone: a comparison with nan is false, in an `if` and "
        "inside Python's min(1.0, ...). Here the factor is then nan, and every gradient shows it. A tensor's "
        "clamp(max=1.0) keeps a nan.",
        summed((UNLESS, "factor < 1")),
        norm_of_norms((FACTOR, "min(torch.tensor(1.0), max_norm / (norm + 1e-6))")),
    ),
    wrong(
        "asks_for_the_norm",
        "Your `if` asks whether the norm is above max_norm. Just below it, by less than 1e-6, the factor is below 1 "
        "too; and of a nan `norm > max_norm` is false, where the factor is nan. Ask nothing: compute the factor, and "
        "limit it to 1 with a tensor's clamp(max=1.0), which keeps a nan.",
        *(way((FACTOR, ASKED)) for way in in_both),
    ),
    wrong(
        "leaves_the_limit_alone",
        "All is right but where the norm lies within 1e-6 below max_norm: there the factor max_norm / (norm + 1e-6) is "
        "below 1 already. Compare the factor with 1, not the norm with max_norm.",
        summed((UNLESS, "not norm <= max_norm")),
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
        "All is right but what you do with a max_norm that makes no sense, a negative one or nan: raise a ValueError, "
        "and nothing else, before anything is changed. `max_norm < 0` is false of nan, `not max_norm >= 0` is true.",
        summed(("    _refuse(max_norm)\n", "")),
        summed(("not max_norm >= 0", "max_norm < 0")),
        norm_of_norms((EMPTY, ""), (f"    {REFUSED}\n", f"{EMPTY}    {REFUSED}\n")),
        fails=("refuses_a_negative_limit",),
    ),
    wrong(
        "refuses_too_much",
        "You refuse a limit that makes sense. 0 is not negative: all gradients become 0 then. With inf none is "
        "shortened, which is how one asks for the norm alone. Refuse what is below 0 and nan, nothing else.",
        *(norm_of_norms((REFUSED, f"if not {limits}:\n        raise ValueError")) for limits in TOO_FEW),
    ),
)
