"""What the wrong ways to write `sgd_step` share. They refuse nothing: a mistake is recognised by what is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor

from course.performing.exercise import Answer

Kept: TypeAlias = dict[str, Tensor]


class Options(NamedTuple):
    """The numbers of one step."""

    lr: float
    momentum: float
    nesterov: bool
    decay: float


Update: TypeAlias = Callable[[Tensor, Tensor, Kept, Options], object]
Average: TypeAlias = Callable[[Tensor, Kept, Options], Tensor]
Look: TypeAlias = Callable[[Tensor, Tensor, Options], Tensor]


def stepping(update: Update) -> Answer:
    """A `sgd_step` that puts `update` on each parameter with its gradient and its state."""

    def answer(
        params: list[Tensor],
        grads: list[Tensor],
        state: list[Kept],
        *,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        for param, grad, kept in zip(params, grads, state, strict=True):
            update(param, grad, kept, Options(lr, momentum, nesterov, weight_decay))

    return answer


# --- the right parts, of which a wrong way replaces one --------------------------------------------


def running_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g, later mu b + g."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else g.clone()
    return kept["b"]


def looks_ahead(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """g + mu b with Nesterov, b without."""
    return g + options.momentum * b if options.nesterov else b


def direction(
    g: Tensor, kept: Kept, options: Options, *, average: Average = running_sum, look: Look = looks_ahead
) -> Tensor:
    """Where a step leads, after the decay was added to the gradient or was left out."""
    return look(g, average(g, kept, options), options) if options.momentum else g


def with_average(average: Average) -> Answer:
    """A `sgd_step` with another buffer."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        p.sub_(options.lr * direction(g + options.decay * p, kept, options, average=average))

    return stepping(update)


def with_look(look: Look) -> Answer:
    """A `sgd_step` with another direction from gradient and buffer."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        p.sub_(options.lr * direction(g + options.decay * p, kept, options, look=look))

    return stepping(update)
