"""Wrong ways to write `clip_grad_norm_`: norms and factors, then shapes, digits, and what is odd or empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.performing.exercise import Answer

Total = Callable[[Sequence[Tensor]], Tensor]  # gradients, at least one -> what is taken for their norm
Factor = Callable[[Tensor, float], Tensor]  # (norm, max_norm) -> what every gradient is multiplied by


def norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    """The right norm, of no gradients too."""
    return torch.stack([g.norm() for g in grads]).norm() if grads else torch.tensor(0.0)


def limited(norm: Tensor, max_norm: float) -> Tensor:
    """The right factor."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


def without_eps(norm: Tensor, max_norm: float) -> Tensor:
    """Nothing beside the norm."""
    return (max_norm / norm).clamp(max=1.0)


def clipping(total: Total = norm_of_all, factor: Factor = limited, *, empty: bool = True) -> Answer:
    """One norm and one factor for all, in place; returns the norm. With `empty`, 0 for an empty list."""

    def answer(grads: list[Tensor], max_norm: float) -> Tensor:
        if empty and not grads:
            return torch.tensor(0.0)
        norm = total(grads)
        for g in grads:
            g.mul_(factor(norm, max_norm))
        return norm

    return answer


def each_on_its_own(grads: list[Tensor], max_norm: float) -> Tensor:
    """A norm and a factor for each tensor; returns the norm of all."""
    norm = norm_of_all(grads)
    for g in grads:
        g.mul_(limited(g.norm(), max_norm))
    return norm


def each_on_its_own_and_the_last_norm(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same; returns the norm of the last tensor."""
    norm = torch.tensor(0.0)
    for g in grads:
        norm = g.norm()
        g.mul_(limited(norm, max_norm))
    return norm


def returns_the_norm_after(grads: list[Tensor], max_norm: float) -> Tensor:
    """Clips, and asks for the norm of what is there then."""
    clipping()(grads, max_norm)
    return norm_of_all(grads)


def by_value(grads: list[Tensor], max_norm: float) -> Tensor:
    """Each number is cut off at the limit."""
    norm = norm_of_all(grads)
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return norm


def assigns_a_name(grads: list[Tensor], max_norm: float) -> Tensor:
    """The products get a name in the loop, or a place in the list, and the caller's tensors stay as they are."""
    norm = norm_of_all(grads)
    for index, g in enumerate(grads):
        grads[index] = g * limited(norm, max_norm)
    return norm


def in_python_without_eps(grads: list[Tensor], max_norm: float) -> float:
    """Floats raise where tensors become infinite."""
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    factor = max_norm / norm if grads else 1.0
    for g in grads:
        g.mul_(1.0 if factor > 1 else factor)
    return norm


def only_where_longer(eps: float) -> Answer:
    """A comparison with nan is false."""

    def answer(grads: list[Tensor], max_norm: float) -> Tensor:
        norm = norm_of_all(grads)
        if norm > max_norm:
            for g in grads:
                g.mul_(max_norm / (norm + eps))
        return norm

    return answer


def unless_finite(grads: list[Tensor], max_norm: float) -> Tensor:
    """What is not finite is left alone."""
    norm = norm_of_all(grads)
    return clipping()(grads, max_norm) if norm.isfinite() else norm


def total_in_float32(grads: Sequence[Tensor]) -> Tensor:
    """torch.zeros makes float32 unless told otherwise, and += keeps it."""
    squares = torch.zeros(())
    for g in grads:
        squares += g.square().sum()
    return squares.sqrt()


def factor_in_float32(norm: Tensor, max_norm: float) -> Tensor:
    """torch.tensor of a Python number is float32."""
    factor = max_norm / (norm.item() + 1e-6)
    return torch.tensor(1.0 if factor > 1 else factor)


MISCONCEPTIONS = (
    Misconception(
        name="per_tensor",
        witnesses=(each_on_its_own, each_on_its_own_and_the_last_norm),
        hint="You clip each tensor by its own norm. That shortens large tensors and leaves small ones, so the "
        "direction of the step changes. There is one norm, of all tensors together, and one factor for all of them.",
    ),
    Misconception(
        name="returns_the_norm_after",
        witnesses=(returns_the_norm_after,),
        hint="You return the norm after clipping, which is hardly ever more than max_norm and tells nothing. The norm "
        "before is what one plots to see a training run go wrong: keep it before you scale.",
    ),
    Misconception(
        name="scales_up",
        witnesses=(
            clipping(factor=lambda norm, limit: limit / (norm + 1e-6)),
            clipping(factor=lambda norm, limit: limit / norm),
            clipping(factor=lambda norm, limit: (limit / (norm + 1e-6)).clamp(min=1.0)),
        ),
        hint="You lengthen short gradients: near a minimum, where gradients vanish, each step would still be long. The "
        "factor is at most 1, the smaller of 1 and max_norm / (norm + 1e-6); a tensor is limited from above by "
        "clamp(max=1.0).",
    ),
    Misconception(
        name="clips_by_value",
        witnesses=(by_value,),
        hint="You cut each number off at max_norm. That is another method: it bends the direction, and the norm may "
        "still be far above the limit. Here all numbers are multiplied by one factor.",
    ),
    Misconception(
        name="not_in_place",
        witnesses=(assigns_a_name,),
        hint="The caller's tensors are unchanged: `g = g * factor` makes a new tensor and gives it a name, and a "
        "place in the list is a name too. An operation in place ends in an underscore (mul_), or is an augmented "
        "assignment to the tensor itself.",
    ),
    Misconception(
        name="root_missing",
        witnesses=(
            clipping(total=lambda grads: norm_of_all(grads) ** 2),
            clipping(factor=lambda norm, limit: limited(norm**2, limit)),
        ),
        hint="Somewhere the square of the norm stands for the norm. The sum of squares needs a root before it is "
        "compared with max_norm or divided by.",
    ),
    Misconception(
        name="sum_of_norms",
        witnesses=(
            clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).sum()),
            clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).sum().sqrt()),
        ),
        hint="You add up the norms of the tensors. Lengths of perpendicular pieces add by Pythagoras: the root of the "
        "sum of their squares, that is, the norm of the norms.",
    ),
    Misconception(
        name="one_shape_only",
        witnesses=(
            clipping(total=lambda grads: torch.stack(list(grads)).norm()),
            clipping(total=lambda grads: torch.cat(list(grads)).norm()),
            clipping(total=lambda grads: torch.stack([torch.linalg.norm(g, 2) for g in grads]).norm()),
        ),
        hint="Your norm works for vectors, or for tensors of one shape. Gradients have all shapes, a single number "
        "too: take the norm of each tensor's numbers (square, then sum over everything), and join those. "
        "torch.linalg.norm(g, 2) is something else for a matrix, its largest singular value; vector_norm is not.",
    ),
    Misconception(
        name="another_eps",
        witnesses=(
            in_python_without_eps,
            only_where_longer(eps=0.0),
            clipping(factor=without_eps),
            clipping(factor=lambda norm, limit: (limit / (norm + 1e-8)).clamp(max=1.0)),
            clipping(total=lambda grads: (norm_of_all(grads) ** 2 + 1e-6).sqrt(), factor=without_eps),
        ),
        hint="Under the fraction stands norm + 1e-6: no other small number, not none, and not under the root, where "
        "1e-6 acts like a gradient of norm 1e-3. Without it gradients of norm 0 divide by 0; with it a clipped norm "
        "is a trifle below max_norm, which is what torch does.",
    ),
    Misconception(
        name="digits_lost_in_float32",
        witnesses=(clipping(total=total_in_float32), clipping(factor=factor_in_float32)),
        hint="torch.zeros(()) and torch.tensor(number) are float32 unless told otherwise, so float64 gradients are "
        "scaled by a factor with 7 digits. Let norm and factor take their dtype from the gradients, or use Python "
        "floats.",
    ),
    Misconception(
        name="nan_slips_through",
        witnesses=(
            only_where_longer(eps=1e-6),
            clipping(factor=lambda norm, limit: min(torch.tensor(1.0), limit / (norm + 1e-6))),
        ),
        hint="With a nan in one gradient you leave all of them alone: a comparison with nan is false, in `if norm > "
        "max_norm` and inside Python's min(1.0, ...). Here the factor is then nan, and every gradient shows it. A "
        "tensor's clamp(max=1.0) keeps a nan.",
    ),
    Misconception(
        name="special_case_for_what_is_not_finite",
        witnesses=(unless_finite,),
        hint="You treat infinities and nan apart. That may be wise in a training loop, which sees the "
        "returned norm and can skip its step. This function does what torch's does by default: the same arithmetic "
        "for every norm, and inf * 0 is nan.",
    ),
    Misconception(
        name="needs_a_gradient",
        witnesses=(
            clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).norm(), empty=False),
            clipping(total=lambda grads: sum(((g**2).sum() for g in grads), 0 * grads[0].sum()).sqrt(), empty=False),
            clipping(total=lambda grads: torch.sqrt(sum((g**2).sum() for g in grads)), empty=False),  # type: ignore[arg-type]
        ),
        hint="An empty list breaks your function: a model whose parameters are all frozen has no gradients, and their "
        "norm is 0. Return that before torch.stack or torch.cat, which want at least one tensor, and before grads[0].",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(clipping(),),
        fails=("refuses_a_negative_limit",),
        hint="All is right but for a negative max_norm: it makes the factor negative, and the step goes uphill. Raise "
        "a ValueError before anything is changed.",
    ),
)
