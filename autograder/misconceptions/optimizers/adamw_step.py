"""Wrong ways to write `adamw_step`: here, what is wrong about the decay, and what is not refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_corrections import CORRECTIONS
from autograder.misconceptions.optimizers.adamw_step_moments import MOMENTS
from autograder.misconceptions.optimizers.adamw_step_parts import Kept, Options, rightly, stepping
from autograder.misconceptions.optimizers.adamw_step_tensors import TENSORS
from course.reference.optimizers.adamw_step import adamw_step


def decay_through_the_moments(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + wd p: Adam with an L2 penalty."""
    rightly(p, g + options.decay * p, kept, options._replace(decay=0.0))


def decay_into_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same with g += wd p, which the caller sees."""
    rightly(p, g.add_(p, alpha=options.decay), kept, options._replace(decay=0.0))


def decay_without_the_rate(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p (1 - wd): what the paper's line says where its schedule is 1."""
    p.mul_(1 - options.decay)
    rightly(p, g, kept, options._replace(decay=0.0))


def decay_after_the_step(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The parameter that has already moved shrinks."""
    rightly(p, g, kept, options._replace(decay=0.0))
    p.mul_(1 - options.lr * options.decay)


def one_after_the_other(params: list[Tensor], grads: list[Tensor], state: list[Kept], **others: Any) -> None:
    """Each parameter is looked at when it is its turn."""
    for p, g, kept in zip(params, grads, state, strict=True):
        adamw_step([p], [g], [kept], **others)


MISCONCEPTIONS = (
    Misconception(
        name="decay_through_the_moments",
        witnesses=(stepping(decay_through_the_moments), stepping(decay_into_the_gradient)),
        hint="You add wd p to the gradient: Adam with an L2 penalty. There the decay is divided by sqrt(v_hat) like "
        "everything else, and parameters with large gradients hardly decay. The W of AdamW takes it out: the moments "
        "see the plain gradient, and p shrinks by lr wd p beside them.",
    ),
    Misconception(
        name="decay_of_another_size",
        witnesses=(stepping(decay_without_the_rate), stepping(decay_after_the_step)),
        hint="The parameter loses lr wd times what it was before the step: multiply it by 1 - lr wd, first of all. "
        "Yours loses wd p, whatever the rate (as Algorithm 2 of the AdamW paper says where its schedule is 1; "
        "libraries multiply by the rate), or it shrinks when it has already moved.",
    ),
    *CORRECTIONS,
    *MOMENTS,
    *TENSORS,
    Misconception(
        name="not_refused",
        witnesses=(stepping(rightly),),
        fails=("refusals", "refused_before_any_change"),
        hint="The steps are right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, betas and every shape at the top, before anything is changed; `assert` is for one's "
        "own mistakes, and vanishes under `python -O`.",
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
