"""What the wrong ways to write `adamw_step` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from course.exercise import Answer
from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes

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
    """A `adamw_step` that puts `update` on each parameter that has a gradient, and refuses nothing."""

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


def either(*answers: Answer) -> tuple[Answer, ...]:
    """Each answer, with refusals under every other random state.

    A value that two recordings of a witness do not share is not compared. So a student is recognised who has written
    the refusals, some of them, or none yet.
    """
    return tuple(map(_sometimes_refusing, answers))


def _sometimes_refusing(answer: Answer) -> Answer:
    def seeded(*args: Any, **others: Any) -> None:
        (refusing(answer) if torch.initial_seed() % 2 else answer)(*args, **others)

    return seeded


def refusing(answer: Answer) -> Answer:
    """The same answer with all refusals at its top."""

    def checked(params: list[Tensor], grads: Grads, state: list[Kept], *, lr: float, **others: Any) -> None:
        beta1, beta2 = others.get("betas", (0.9, 0.999))
        at_least_zero(lr=lr)
        below_one(beta1=beta1, beta2=beta2)
        same_shapes(params, grads)
        answer(params, grads, state, lr=lr, **others)

    return checked


# --- the right parts, of which a wrong way replaces one --------------------------------------------


def begin(p: Tensor, kept: Kept) -> None:
    """Zeros, before the first gradient."""
    if not kept:
        kept.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))


def average(p: Tensor, g: Tensor, kept: Kept, options: Options) -> tuple[Tensor, Tensor, int]:
    """m, v and t with this gradient in them."""
    begin(p, kept)
    kept["t"] += 1
    kept["m"] = options.beta1 * kept["m"] + (1 - options.beta1) * g
    kept["v"] = options.beta2 * kept["v"] + (1 - options.beta2) * g * g
    return kept["m"], kept["v"], kept["t"]


def corrected(m: Tensor, v: Tensor, t: int, options: Options) -> tuple[Tensor, Tensor]:
    """m_hat and v_hat, as new tensors."""
    return _over(m, 1 - options.beta1**t), _over(v, 1 - options.beta2**t)


def _over(x: Tensor, correction: float) -> Tensor:
    """x / correction, as tensors divide: by 0 without an exception."""
    return x / torch.tensor(correction, dtype=x.dtype)


def ratio(m_hat: Tensor, v_hat: Tensor, options: Options) -> Tensor:
    """The direction of a step."""
    return m_hat / (v_hat.sqrt() + options.eps)


def move(p: Tensor, direction: Tensor, options: Options) -> None:
    """Decay of the old parameter, and a step of lr along the direction."""
    p.mul_(1 - options.lr * options.decay).sub_(options.lr * direction)


def with_look(look: Look) -> Answer:
    """A `adamw_step` with another direction from m, v and t."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        move(p, look(*average(p, g, kept, options), options), options)

    return stepping(update)


def blur_(p: Tensor) -> None:
    """Noise as of a float32 rounding in a float64 parameter: where roundings land is style.

    So two recordings do not share these values, and they are not compared with an answer's.
    """
    if p.dtype == torch.float64:
        p.add_(2**-24 * torch.randn(p.shape))


def rightly(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The right step of one parameter."""
    m, v, t = average(p, g, kept, options)
    move(p, ratio(*corrected(m, v, t, options), options), options)
