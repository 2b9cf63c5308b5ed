"""Wrong ways to write `sgd_step`: here, what is wrong about the decay, and what is not refused."""

from __future__ import annotations

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_momentum import MOMENTUM
from autograder.misconceptions.optimizers.sgd_step_nesterov import NESTEROV
from autograder.misconceptions.optimizers.sgd_step_parts import Kept, Options, direction, either, stepping
from autograder.misconceptions.optimizers.sgd_step_tensors import TENSORS


def decay_after_momentum(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p - lr (d + wd p): the buffer hears nothing of the decay."""
    p.sub_(options.lr * (direction(g, kept, options) + options.decay * p))


def decay_after_the_step(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same, of the parameter that has already moved."""
    p.sub_(options.lr * direction(g, kept, options))
    p.mul_(1 - options.lr * options.decay)


def decay_of_the_moved(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Through the buffer, and the parameter shrinks once more."""
    p.sub_(options.lr * direction(g + options.decay * p, kept, options))
    p.mul_(1 - options.lr * options.decay)


def decay_without_the_rate(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p (1 - wd) - lr d."""
    p.mul_(1 - options.decay).sub_(options.lr * direction(g, kept, options))


def decay_without_the_rate_at_once(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p - lr d, and then p (1 - wd)."""
    p.sub_(options.lr * direction(g, kept, options)).mul_(1 - options.decay)


def decay_with_the_rate_twice(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + lr wd p, which lr multiplies once more."""
    p.sub_(options.lr * direction(g + options.lr * options.decay * p, kept, options))


def decay_subtracted(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g - wd p."""
    p.sub_(options.lr * direction(g - options.decay * p, kept, options))


def decay_doubled(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + 2 wd p, the gradient of wd |p|^2."""
    p.sub_(options.lr * direction(g + 2 * options.decay * p, kept, options))


def no_decay(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The option is not read."""
    p.sub_(options.lr * direction(g, kept, options))


def refuses_nothing(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Right, for whatever numbers and shapes."""
    p.sub_(options.lr * direction(g + options.decay * p, kept, options))


MISCONCEPTIONS = (
    Misconception(
        name="decay_beside_the_momentum",
        witnesses=either(stepping(decay_after_momentum), stepping(decay_after_the_step)),
        hint="You shrink the parameter beside the momentum: the buffer knows nothing of the decay. (AdamW does that, "
        "and calls it decoupled.) In SGD the decay is part of the gradient, g + wd p, before the buffer takes it in.",
    ),
    Misconception(
        name="decays_twice",
        witnesses=either(stepping(decay_of_the_moved)),
        hint="The decay goes into the gradient, and then the parameter shrinks once more. Once is meant: g + wd p, "
        "and nothing after it.",
    ),
    Misconception(
        name="decay_without_the_rate",
        witnesses=either(stepping(decay_without_the_rate), stepping(decay_without_the_rate_at_once)),
        hint="Your decay takes wd p from the parameter, whatever the rate. As part of the gradient it is multiplied "
        "by lr like everything else: a step of size 0 moves nothing.",
    ),
    Misconception(
        name="decay_with_the_rate_twice",
        witnesses=either(stepping(decay_with_the_rate_twice)),
        hint="You add lr wd p to the gradient, and the step multiplies it by lr once more. The gradient gets wd p.",
    ),
    Misconception(
        name="decay_with_a_minus",
        witnesses=either(stepping(decay_subtracted)),
        hint="Your decay lets the parameters grow. The penalty wd/2 |p|^2 has the gradient + wd p, and the step "
        "subtracts it.",
    ),
    Misconception(
        name="decay_doubled",
        witnesses=either(stepping(decay_doubled)),
        hint="2 wd p is the gradient of wd |p|^2. The convention is the penalty wd/2 |p|^2, so that the term is wd p.",
    ),
    Misconception(
        name="no_decay",
        witnesses=either(stepping(no_decay)),
        hint="`weight_decay` changes nothing in your steps. It adds wd p to the gradient, before anything else.",
    ),
    *MOMENTUM,
    *NESTEROV,
    *TENSORS,
    Misconception(
        name="not_refused",
        witnesses=(stepping(refuses_nothing),),
        fails=("refusals",),
        hint="The steps are right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, momentum, decay and every shape at the top, before anything is changed; `assert` is "
        "for one's own mistakes, and vanishes under `python -O`.",
    ),
)
