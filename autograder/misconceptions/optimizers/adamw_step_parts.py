"""What the wrong ways to write `adamw_step` share. They refuse nothing: a mistake is recognised by what is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from course.performing.exercise import Answer

Kept: TypeAlias = dict[str, Any]
Grads: TypeAlias = list[Tensor | None]


class Options(NamedTuple):
    """The numbers of one step."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float


Update: TypeAlias = Callable[[Tensor, Tensor, Kept, Options], object]
Look: TypeAlias = Callable[[Tensor, Tensor, int, Options], Tensor]


def stepping(update: Update) -> Answer:
    """A `adamw_step` that puts `update` on each parameter that has a gradient."""

    def answer(
        params: list[Tensor],
        grads: Grads,
        state: list[Kept],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        for param, grad, kept in zip(params, grads, state, strict=True):
            if grad is not None:
                update(param, grad, kept, Options(lr, *betas, eps, weight_decay))

    return answer


# --- the right parts, of which a wrong way replaces one --------------------------------------------


def age(p: Tensor, kept: Kept) -> int:
    """t with this gradient counted; before the first, the moments are made of zeros."""
    if "m" not in kept:
        kept.update(m=torch.zeros_like(p), v=torch.zeros_like(p))
    kept["t"] = kept.get("t", 0) + 1
    return int(kept["t"])


def average(p: Tensor, g: Tensor, kept: Kept, options: Options) -> tuple[Tensor, Tensor, int]:
    """m, v and t with this gradient in them."""
    t = age(p, kept)
    kept["m"] = options.beta1 * kept["m"] + (1 - options.beta1) * g
    kept["v"] = options.beta2 * kept["v"] + (1 - options.beta2) * g * g
    return kept["m"], kept["v"], t


def corrected(m: Tensor, v: Tensor, t: int, options: Options) -> tuple[Tensor, Tensor]:
    """m_hat and v_hat, as new tensors."""
    return m / (1 - options.beta1**t), v / (1 - options.beta2**t)


def ratio(m_hat: Tensor, v_hat: Tensor, options: Options) -> Tensor:
    """The direction of a step."""
    return m_hat / (v_hat.sqrt() + options.eps)


def move(p: Tensor, direction: Tensor, options: Options) -> None:
    """Decay of the old parameter, and a step of lr along the direction."""
    p.mul_(1 - options.lr * options.decay).sub_(options.lr * direction)


def rightly(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The right step of one parameter."""
    m, v, t = average(p, g, kept, options)
    move(p, ratio(*corrected(m, v, t, options), options), options)


def with_look(look: Look) -> Answer:
    """A `adamw_step` with another direction from m, v and t."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        move(p, look(*average(p, g, kept, options), options), options)

    return stepping(update)
