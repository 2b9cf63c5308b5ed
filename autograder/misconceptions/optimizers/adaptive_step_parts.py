"""What the wrong ways to write `adaptive_step` are put together from.

A direction is d in param <- param - lr d. `made` gives an answer whose three rules are right but for those it is given.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course.performing.exercise import Answer

State = dict[str, Tensor]
Direction = Callable[[Tensor, State, float, float], Tensor]  # of the gradient, the state, decay and eps
Update = Callable[[Tensor, Tensor, float], Tensor]  # an accumulator from the old one, what comes in, and decay
Divisor = Callable[[Tensor, float], Tensor]  # of an accumulator and eps


def kept(state: State, name: str, like: Tensor) -> Tensor:
    """The accumulator of this name; zeros before the first step."""
    if name not in state:
        state[name] = torch.zeros_like(like)
    return state[name]


def total(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The sum of squares."""
    return old + g * g


def average(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The moving average of squares."""
    return decay * old + (1 - decay) * g * g


def outside(v: Tensor, eps: float) -> Tensor:
    """eps outside the root."""
    return v.sqrt() + eps


def inside(v: Tensor, eps: float) -> Tensor:
    """eps inside the root."""
    return (v + eps).sqrt()


def without_root(v: Tensor, eps: float) -> Tensor:
    """The accumulator itself."""
    return v + eps


def bare_root(v: Tensor, eps: float) -> Tensor:
    """No eps."""
    return v.sqrt()


def quotient(update: Update, divisor: Divisor = outside, *, stale: bool = False) -> Direction:
    """g over what the divisor makes of the accumulator: the new one, or the old one where that is `stale`."""

    def direction(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
        v = kept(state, "v", g)
        before = v.clone()
        v.copy_(update(v, g, decay))
        return g / divisor(before if stale else v, eps)

    return direction


def two_averages(
    update: Update = average,
    numerator: Divisor = inside,
    denominator: Divisor = inside,
    *,
    moves: Update | None = None,
    stale: bool = False,
) -> Direction:
    """Adadelta: g times the numerator of u over the denominator of v, then u takes d. `moves` updates u, if given."""

    def direction(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
        v, u = kept(state, "v", g), kept(state, "u", g)
        before = v.clone()
        v.copy_(update(v, g, decay))
        d = g * numerator(u, eps) / denominator(before if stale else v, eps)
        u.copy_((moves or update)(u, d, decay))
        return d

    return direction


ADAGRAD, RMSPROP, ADADELTA = quotient(total), quotient(average), two_averages()


def made(adagrad: Direction = ADAGRAD, rmsprop: Direction = RMSPROP, adadelta: Direction = ADADELTA) -> Answer:
    """An answer in which everything but the given directions is right; it refuses nothing."""
    rules = {"adagrad": adagrad, "rmsprop": rmsprop, "adadelta": adadelta}

    def answer(
        rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
    ) -> None:
        param.sub_(lr * rules[rule](grad, state, decay, eps))

    return answer
