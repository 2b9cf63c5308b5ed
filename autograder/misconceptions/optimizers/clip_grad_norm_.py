"""Wrong ways to write `clip_grad_norm_`: norms and factors here; what is odd or empty beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import clip_grad_norm_odd
from autograder.misconceptions.optimizers.clip_grad_norm_parts import (
    both,
    clipping,
    limited,
    norm_of_all,
    returning,
)


def each_on_its_own(grads: list[Tensor], max_norm: float) -> Tensor:
    """A norm and a factor for each tensor; returns the norm of all."""
    norm = clipping(factor=lambda norm, limit: torch.ones_like(norm))(grads, max_norm)
    for g in grads:
        g.mul_(limited(g.norm(), max_norm))
    return norm  # type: ignore[no-any-return]


def each_on_its_own_and_all_norms(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same; returns one norm for each tensor."""
    norms = [g.norm() for g in grads]
    for g, norm in zip(grads, norms, strict=True):
        g.mul_(limited(norm, max_norm))
    return torch.stack(norms) if norms else torch.tensor(0.0)


def each_on_its_own_and_the_last_norm(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same; returns the norm of the last tensor."""
    norm = torch.tensor(0.0)
    for g in grads:
        norm = g.norm()
        g.mul_(limited(norm, max_norm))
    return norm


def each_on_its_own_and_no_norm(grads: list[Tensor], max_norm: float) -> None:
    """The same with a comparison; returns nothing."""
    for g in grads:
        norm = g.norm()
        if norm > max_norm:
            g.mul_(max_norm / (norm + 1e-6))


def norm_so_far(grads: list[Tensor], max_norm: float) -> Tensor:
    """Adds up and scales in one loop: the first tensors are scaled before the norm is known."""
    squares = torch.tensor(0.0)
    for g in grads:
        squares = squares + g.square().sum()
        g.mul_(limited(squares.sqrt(), max_norm))
    return squares.sqrt()


def by_value(grads: list[Tensor], max_norm: float) -> Tensor:
    """Each number is cut off at the limit."""
    norm = clipping(factor=lambda norm, limit: torch.ones_like(norm))(grads, max_norm)
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return norm  # type: ignore[no-any-return]


def by_value_where_too_long(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same, but only where the norm is above the limit."""
    norm = norm_of_all(grads) if grads else torch.tensor(0.0)
    return by_value(grads, max_norm) if norm > max_norm else norm


def assigns_a_name(grads: list[Tensor], max_norm: float) -> Tensor:
    """The products get a name in the loop, or a place in the list, and the caller's tensors stay as they are."""
    if not grads:
        return torch.tensor(0.0)
    norm = norm_of_all(grads)
    for index, g in enumerate(grads):
        grads[index] = g * limited(norm, max_norm)
    return norm


def returns_the_norm_of_a_copy(grads: list[Tensor], max_norm: float) -> Tensor:
    """The same, and the norm of what was made."""
    assigns_a_name(grads, max_norm)
    return norm_of_all(grads) if grads else torch.tensor(0.0)


MISCONCEPTIONS = (
    *clip_grad_norm_odd.MISCONCEPTIONS,
    Misconception(
        name="per_tensor",
        witnesses=both(
            each_on_its_own,
            each_on_its_own_and_all_norms,
            each_on_its_own_and_the_last_norm,
            each_on_its_own_and_no_norm,
        ),
        hint="You clip each tensor by its own norm. That shortens large tensors and leaves small ones, so the "
        "direction of the step changes. There is one norm, of all tensors together, and one factor for all of them.",
    ),
    Misconception(
        name="norm_so_far",
        witnesses=both(norm_so_far),
        hint="You scale in the same loop that adds up the squares, so the first tensors are scaled by a norm that "
        "does not know the others yet. Two loops: first the norm of all, then the scaling.",
    ),
    Misconception(
        name="returns_the_norm_after",
        witnesses=both(
            returning(lambda grads, norm, limit: norm_of_all(grads)),
            returning(lambda grads, norm, limit: norm.clamp(max=limit)),
            returning(lambda grads, norm, limit: norm * limited(norm, limit)),
        ),
        hint="You return the norm after clipping, which is hardly ever more than max_norm and tells nothing. The norm "
        "before is what one plots to see a training run go wrong: keep it before you scale.",
    ),
    Misconception(
        name="returns_another_number",
        witnesses=both(
            returning(lambda grads, norm, limit: None),
            returning(lambda grads, norm, limit: limited(norm, limit)),
            returning(lambda grads, norm, limit: norm**2),
            returning(lambda grads, norm, limit: grads),
        ),
        hint="The gradients are right; what you return is not the norm before clipping. Nothing, the factor, the "
        "square of the norm or the gradients themselves are not asked for.",
    ),
    Misconception(
        name="scales_up",
        witnesses=both(
            clipping(factor=lambda norm, limit: limit / (norm + 1e-6)),
            clipping(factor=lambda norm, limit: limit / norm),
        ),
        hint="You bring every gradient to the norm max_norm, short ones too: near a minimum, where gradients vanish, "
        "each step would be as long as the longest. The factor is at most 1.",
    ),
    Misconception(
        name="limited_from_below",
        witnesses=both(clipping(factor=lambda norm, limit: (limit / (norm + 1e-6)).clamp(min=1.0))),
        hint="Your factor is at least 1: it leaves long gradients as they are and lengthens short ones. It shall be "
        "at most 1: the smaller of 1 and max_norm / (norm + 1e-6).",
    ),
    Misconception(
        name="ratio_upside_down",
        witnesses=both(
            clipping(factor=lambda norm, limit: (norm / limit).clamp(max=1.0)),
            clipping(factor=lambda norm, limit: norm / limit),
        ),
        hint="Your ratio is upside down. To bring a gradient of norm 10 to a norm of 1 it is multiplied by 1/10: "
        "max_norm over norm.",
    ),
    Misconception(
        name="clips_by_value",
        witnesses=both(by_value, by_value_where_too_long),
        hint="You cut each number off at max_norm. That is another method: it bends the direction, and the norm may "
        "still be far above the limit. Here all numbers are multiplied by one factor.",
    ),
    Misconception(
        name="not_in_place",
        witnesses=both(assigns_a_name, returns_the_norm_of_a_copy),
        hint="The caller's tensors are unchanged: `g = g * factor` makes a new tensor and gives it a name, and a "
        "place in the list is a name too. An operation in place ends in an underscore (mul_), or is an augmented "
        "assignment to the tensor itself.",
    ),
    Misconception(
        name="root_missing",
        witnesses=both(
            clipping(total=lambda grads: norm_of_all(grads) ** 2),
            clipping(factor=lambda norm, limit: limited(norm**2, limit)),
        ),
        hint="Somewhere the square of the norm stands for the norm. The sum of squares needs a root before it is "
        "compared with max_norm or divided by.",
    ),
    Misconception(
        name="square_for_limit",
        witnesses=both(
            clipping(factor=lambda norm, limit: limited(norm, limit**2)),
            clipping(factor=lambda norm, limit: limited(norm, limit) ** 2),
            clipping(factor=lambda norm, limit: limited(norm, limit).sqrt()),
        ),
        hint="Your factor is squared, rooted, or has max_norm squared in it. Norm and limit are lengths, neither of "
        "them a square: the factor is the plain ratio of the two.",
    ),
    Misconception(
        name="sum_of_norms",
        witnesses=both(clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).sum())),
        hint="You add up the norms of the tensors. Lengths of perpendicular pieces add by Pythagoras: the root of the "
        "sum of their squares, that is, the norm of the norms.",
    ),
    Misconception(
        name="root_of_the_sum_of_norms",
        witnesses=both(clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).sum().sqrt())),
        hint="You add up norms where their squares belong, and then take a root. Either square each norm first, or "
        "take the norm of the list of norms.",
    ),
    Misconception(
        name="another_norm",
        witnesses=both(
            clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).max()),
            clipping(total=lambda grads: torch.stack([g.norm() for g in grads]).mean()),
            clipping(total=lambda grads: torch.stack([g.abs().max() for g in grads]).max()),
            clipping(total=lambda grads: torch.stack([g.abs().sum() for g in grads]).sum()),
            clipping(total=lambda grads: norm_of_all(grads) / sum(g.numel() for g in grads) ** 0.5),
            clipping(total=lambda grads: norm_of_all(grads) / len(grads) ** 0.5),
        ),
        hint="You take another norm: the largest or the mean of the tensors' norms, the largest number, the sum of "
        "magnitudes, or a root of a *mean* of squares. Asked for is the Euclidean norm of all numbers: the root of the "
        "sum of their squares.",
    ),
)
