"""Wrong ways to write `clip_grad_norm_`: shapes, digits, zeros, what is not finite, and what is not refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.clip_grad_norm_parts import (
    both,
    clipping,
    limited,
    norm_of_all,
    returning,
)
from course.exercise import Answer


def in_python_without_eps(grads: list[Tensor], max_norm: float) -> float:
    """Floats raise where tensors become infinite."""
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    factor = max_norm / norm if grads else 1.0
    for g in grads:
        g.mul_(1.0 if factor > 1 else factor)
    return norm


def eps_under_the_root(grads: Sequence[Tensor]) -> Tensor:
    """The small number is added to the squares."""
    return (norm_of_all(grads) ** 2 + 1e-6).sqrt()


def only_where_longer(grads: list[Tensor], max_norm: float) -> Tensor:
    """A comparison with nan is false."""
    if not grads:
        return torch.tensor(0.0)
    norm = norm_of_all(grads)
    if norm > max_norm:
        for g in grads:
            g.mul_(max_norm / (norm + 1e-6))
    return norm


def only_where_longer_without_eps(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same; the small number is missing too."""
    norm = norm_of_all(grads) if grads else torch.tensor(0.0)
    if norm > max_norm:
        for g in grads:
            g.mul_(max_norm / norm)
    return norm


def unless_finite(grads: list[Tensor], max_norm: float) -> Tensor:
    """What is not finite is left alone."""
    norm = norm_of_all(grads) if grads else torch.tensor(0.0)
    return clipping()(grads, max_norm) if norm.isfinite() else norm


def zeroes_all(grads: list[Tensor], max_norm: float) -> Tensor:
    """What is not finite becomes a step of 0."""
    norm = norm_of_all(grads) if grads else torch.tensor(0.0)
    if norm.isfinite():
        return clipping()(grads, max_norm)  # type: ignore[no-any-return]
    for g in grads:
        g.zero_()
    return norm


def raises(kind: type[Exception]) -> Answer:
    """What is not finite is an error."""

    def answer(grads: list[Tensor], max_norm: float) -> Tensor:
        norm = norm_of_all(grads) if grads else torch.tensor(0.0)
        if not norm.isfinite():
            raise kind("the norm of the gradients must be finite")
        return clipping()(grads, max_norm)  # type: ignore[no-any-return]

    return answer


def repairs_first(grads: list[Tensor], max_norm: float) -> Tensor:
    """nan becomes 0, and an infinity the largest number of float32."""
    for g in grads:
        g.nan_to_num_()
    return clipping()(grads, max_norm)  # type: ignore[no-any-return]


def repairs_afterwards(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same after the scaling."""
    norm = clipping()(grads, max_norm)
    for g in grads:
        g.nan_to_num_()
    return norm  # type: ignore[no-any-return]


def unguarded(norm: Answer) -> Answer:
    """Right, but with a norm that wants at least one tensor."""

    def answer(grads: list[Tensor], max_norm: float) -> Tensor:
        found: Tensor = norm(grads)
        for g in grads:
            g.mul_(limited(found, max_norm))
        return found

    return answer


def returns_early(grads: list[Tensor], max_norm: float) -> Tensor | None:
    """`return` without a value where there is nothing to do."""
    return clipping()(grads, max_norm) if grads else None


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
        name="one_shape_only",
        witnesses=both(
            clipping(total=lambda grads: sum((g @ g for g in grads), torch.tensor(0.0)).sqrt()),
            clipping(total=lambda grads: sum((torch.dot(g, g) for g in grads), torch.tensor(0.0)).sqrt()),
            clipping(total=lambda grads: torch.stack(list(grads)).norm()),
            clipping(total=lambda grads: torch.cat(list(grads)).norm()),
            clipping(total=lambda grads: torch.stack([torch.linalg.norm(g, 2) for g in grads]).norm()),
        ),
        hint="Your norm works for a vector, or for tensors of one shape. Gradients have all shapes, a single number "
        "too: take the norm of each tensor's numbers (square, then sum over everything), and join those.",
    ),
    Misconception(
        name="norm_of_a_matrix",
        witnesses=both(
            clipping(
                total=lambda grads: torch.stack(
                    [torch.linalg.matrix_norm(g, 2) if g.dim() == 2 else g.norm() for g in grads]
                ).norm()
            )
        ),
        hint="For a matrix you take the spectral norm, its largest singular value. Asked for is the root of the sum "
        "of the squares of its numbers, as if it were a vector: vector_norm.",
    ),
    Misconception(
        name="another_eps",
        witnesses=both(
            in_python_without_eps,
            only_where_longer_without_eps,
            clipping(factor=lambda norm, limit: (limit / norm).clamp(max=1.0)),
            clipping(factor=lambda norm, limit: (limit / norm + 1e-6).clamp(max=1.0)),
            *(
                clipping(factor=lambda norm, limit, eps=eps: (limit / (norm + eps)).clamp(max=1.0))  # type: ignore[misc]
                for eps in (1e-5, 1e-7, 1e-8, 1e-10, 1e-12)
            ),
        ),
        hint="Under the fraction stands norm + 1e-6, no other small number, and not none. Without it gradients of "
        "norm 0 divide by 0; with it a clipped norm is a trifle below max_norm, which is what torch does.",
    ),
    Misconception(
        name="eps_in_the_norm",
        witnesses=both(
            clipping(total=eps_under_the_root, factor=lambda norm, limit: (limit / norm).clamp(max=1.0)),
            clipping(total=eps_under_the_root),
            clipping(factor=lambda norm, limit: limited((norm**2 + 1e-6).sqrt() - 1e-6, limit)),
            returning(lambda grads, norm, limit: norm + 1e-6),
        ),
        hint="The small number has become part of the norm: under the root, where 1e-6 acts like a gradient of norm "
        "1e-3, or in what you return. It belongs beside the norm, under the fraction only.",
    ),
    Misconception(
        name="digits_lost_in_float32",
        witnesses=both(clipping(total=total_in_float32), clipping(factor=factor_in_float32)),
        hint="torch.zeros(()) and torch.tensor(number) are float32 unless told otherwise, so float64 gradients are "
        "scaled by a factor with 7 digits. Let norm and factor take their dtype from the gradients, or use Python "
        "floats.",
    ),
    Misconception(
        name="nan_slips_through",
        witnesses=both(
            only_where_longer,
            clipping(factor=lambda norm, limit: min(torch.tensor(1.0), limit / (norm + 1e-6))),
        ),
        hint="With a nan in one gradient you leave all of them alone: a comparison with nan is false, in `if norm > "
        "max_norm` and inside Python's min(1.0, ...). Here the factor is then nan, and every gradient shows it. A "
        "tensor's clamp(max=1.0) keeps a nan.",
    ),
    Misconception(
        name="special_case_for_what_is_not_finite",
        witnesses=both(
            unless_finite, zeroes_all, raises(ValueError), raises(RuntimeError), repairs_first, repairs_afterwards
        ),
        hint="You treat infinities and nan apart: skip, zero, repair or raise. That may be wise in a training loop, "
        "which sees the returned norm and can skip its step. This function does what torch's does by default: the "
        "same arithmetic for every norm, and inf * 0 is nan.",
    ),
    Misconception(
        name="needs_a_gradient",
        witnesses=both(
            unguarded(lambda grads: torch.stack([g.norm() for g in grads]).norm()),
            unguarded(lambda grads: torch.cat([g.flatten() for g in grads]).norm()),
            unguarded(lambda grads: torch.stack([g.norm() for g in grads]).norm().to(grads[0].device)),
            unguarded(lambda grads: sum((g.square().sum() for g in grads), grads[0].new_zeros(())).sqrt()),
            unguarded(lambda grads: torch.sqrt(sum((g**2).sum() for g in grads))),
            returns_early,
        ),
        hint="An empty list breaks your function, or gets None: a model whose parameters are all frozen has no "
        "gradients, and their norm is 0. Return that before torch.stack or torch.cat, which want at least one tensor, "
        "and before grads[0].",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(clipping(),),
        fails=("refuses_a_negative_limit",),
        hint="All is right but for a negative max_norm: it makes the factor negative, and the step goes uphill. Raise "
        "a ValueError before anything is changed.",
    ),
)
