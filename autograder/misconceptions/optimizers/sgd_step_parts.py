"""What the wrong ways to write `sgd_step` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from course.exercise import Answer
from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes

Kept: TypeAlias = dict[str, Any]


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
    """A `sgd_step` that puts `update` on each parameter with its gradient and its state, and refuses nothing."""

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

    def checked(params: list[Tensor], grads: list[Tensor], state: list[Kept], *, lr: float, **others: Any) -> None:
        at_least_zero(lr=lr, weight_decay=others.get("weight_decay", 0.0))
        below_one(momentum=others.get("momentum", 0.0))
        same_shapes(params, grads)
        answer(params, grads, state, lr=lr, **others)

    return checked


# --- the right parts, of which a wrong way replaces one --------------------------------------------


def running_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g, later mu b + g."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else g.clone()
    return kept["b"]  # type: ignore[no-any-return]


def looks_ahead(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """g + mu b with Nesterov, b without."""
    return g + options.momentum * b if options.nesterov else b


def blur_(p: Tensor) -> None:
    """Noise as of a float32 rounding in a float64 parameter: where roundings land is style.

    So two recordings do not share these values, and they are not compared with an answer's.
    """
    if p.dtype == torch.float64:
        p.add_(2**-24 * torch.randn(p.shape))


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
