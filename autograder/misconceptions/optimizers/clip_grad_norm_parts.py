"""What wrong ways to clip are made of: a norm, a factor, and the refusal that stands before them or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course.exercise import Answer

Total = Callable[[Sequence[Tensor]], Tensor]  # gradients, at least one -> what is taken for their norm
Factor = Callable[[Tensor, float], Tensor]  # (norm, max_norm) -> what every gradient is multiplied by


def norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    """The right norm."""
    norm: Tensor = torch.stack([g.norm() for g in grads]).norm()
    return norm


def limited(norm: Tensor, max_norm: float) -> Tensor:
    """The right factor."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


def clipping(total: Total = norm_of_all, factor: Factor = limited) -> Answer:
    """One norm and one factor for all, in place; returns the norm."""

    def answer(grads: list[Tensor], max_norm: float) -> Tensor:
        if not grads:
            return torch.tensor(0.0)
        norm = total(grads)
        scale = factor(norm, max_norm)
        for g in grads:
            g.mul_(scale)
        return norm

    return answer


def returning(value: Callable[[Sequence[Tensor], Tensor, float], object]) -> Answer:
    """Clips as it should, and returns something else: a function of the clipped gradients, the norm and the limit."""

    def answer(grads: list[Tensor], max_norm: float) -> object:
        norm = clipping()(grads, max_norm)
        return value(grads, norm, max_norm) if grads else norm

    return answer


def both(*answers: Answer) -> tuple[Answer, ...]:
    """Each answer as it is, which refuses nothing, and with the refusal before it."""
    return (*answers, *map(_refusing, answers))


def _refusing(wrong: Answer) -> Answer:
    def answer(grads: list[Tensor], max_norm: float) -> object:
        if max_norm < 0:
            raise ValueError(f"max_norm must be at least 0, got {max_norm}")
        return wrong(grads, max_norm)

    return answer
