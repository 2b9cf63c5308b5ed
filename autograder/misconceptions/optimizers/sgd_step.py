"""Wrong ways to write `sgd_step`: here, what is wrong about the decay, and what is not refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_momentum import MOMENTUM
from autograder.misconceptions.optimizers.sgd_step_parts import Kept, Options, direction, stepping
from autograder.misconceptions.optimizers.sgd_step_tensors import TENSORS
from course.reference.optimizers.sgd_step import sgd_step


def decay_after_momentum(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p - lr (d + wd p): the buffer hears nothing of the decay."""
    p.sub_(options.lr * (direction(g, kept, options) + options.decay * p))


def decay_after_the_step(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same, of the parameter that has already moved."""
    p.sub_(options.lr * direction(g, kept, options))
    p.mul_(1 - options.lr * options.decay)


def decay_without_the_rate(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p (1 - wd) - lr d."""
    p.mul_(1 - options.decay).sub_(options.lr * direction(g, kept, options))


def decay_with_the_rate_twice(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + lr wd p, which lr multiplies once more."""
    p.sub_(options.lr * direction(g + options.lr * options.decay * p, kept, options))


def refuses_nothing(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Right, for whatever numbers and shapes."""
    p.sub_(options.lr * direction(g + options.decay * p, kept, options))


def one_after_the_other(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """Each parameter is looked at when it is its turn."""
    for p, g, kept in zip(params, grads, state, strict=True):
        sgd_step([p], [g], [kept], **options)


MISCONCEPTIONS = (
    Misconception(
        name="decay_beside_the_momentum",
        witnesses=(stepping(decay_after_momentum), stepping(decay_after_the_step)),
        hint="You shrink the parameter beside the momentum: the buffer knows nothing of the decay. (AdamW does that, "
        "and calls it decoupled.) In SGD the decay is part of the gradient, g + wd p, before the buffer takes it in.",
    ),
    Misconception(
        name="decay_with_another_rate",
        witnesses=(stepping(decay_without_the_rate), stepping(decay_with_the_rate_twice)),
        hint="Your decay is multiplied by lr twice, or never. It is part of the gradient: g + wd p, without a rate of "
        "its own, and the step multiplies that by lr like everything else. A step of size 0 moves nothing.",
    ),
    *MOMENTUM,
    *TENSORS,
    Misconception(
        name="not_refused",
        witnesses=(stepping(refuses_nothing),),
        fails=("refusals", "refused_before_any_change"),
        hint="The steps are right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, momentum, decay and every shape at the top, before anything is changed; `assert` is "
        "for one's own mistakes, and vanishes under `python -O`.",
    ),
    Misconception(
        name="refuses_too_late",
        witnesses=(one_after_the_other,),
        fails=("refused_before_any_change",),
        hint="You refuse all that is to be refused. But when the second gradient turns out to be wrong, the first "
        "parameter has moved already: the model has taken part of a step, and its caller does not know which. Use two "
        "loops: first look at all pairs, then step.",
    ),
)
