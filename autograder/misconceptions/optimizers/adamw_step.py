"""Wrong ways to write `adamw_step`: here, what is wrong about the decay, and what is not refused."""

from __future__ import annotations

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_ages import AGES
from autograder.misconceptions.optimizers.adamw_step_corrections import CORRECTIONS
from autograder.misconceptions.optimizers.adamw_step_moments import MOMENTS
from autograder.misconceptions.optimizers.adamw_step_parts import Kept, Options, either, rightly, stepping
from autograder.misconceptions.optimizers.adamw_step_tensors import TENSORS


def decay_through_the_moments(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + wd p: Adam with an L2 penalty."""
    rightly(p, g + options.decay * p, kept, options._replace(decay=0.0))


def decay_into_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same with g += wd p, which the caller sees."""
    rightly(p, g.add_(p, alpha=options.decay), kept, options._replace(decay=0.0))


def decay_in_both_places(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Through the moments, and beside them."""
    rightly(p, g + options.decay * p, kept, options)


def decay_without_the_rate(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p (1 - wd): what the paper's line says where its schedule is 1."""
    p.mul_(1 - options.decay)
    rightly(p, g, kept, options._replace(decay=0.0))


def decay_after_the_step(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The parameter that has already moved shrinks."""
    rightly(p, g, kept, options._replace(decay=0.0))
    p.mul_(1 - options.lr * options.decay)


def decay_with_a_minus(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p (1 + lr wd)."""
    rightly(p, g, kept, options._replace(decay=-options.decay))


def no_decay(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The option is not read."""
    rightly(p, g, kept, options._replace(decay=0.0))


MISCONCEPTIONS = (
    Misconception(
        name="decay_through_the_moments",
        witnesses=either(stepping(decay_through_the_moments), stepping(decay_into_the_gradient)),
        hint="You add wd p to the gradient: Adam with an L2 penalty. There the decay is divided by sqrt(v_hat) like "
        "everything else, and parameters with large gradients hardly decay. The W of AdamW takes it out: the moments "
        "see the plain gradient, and p shrinks by lr wd p beside them.",
    ),
    Misconception(
        name="decay_in_both_places",
        witnesses=either(stepping(decay_in_both_places)),
        hint="The decay acts twice: it goes into the gradient, and the parameter shrinks besides. Only the second is "
        "meant.",
    ),
    Misconception(
        name="decay_without_the_rate",
        witnesses=either(stepping(decay_without_the_rate)),
        hint="Your parameter loses wd p per step, whatever the rate. (Algorithm 2 of the AdamW paper says so where "
        "its schedule is 1; libraries multiply by the rate.) Here it loses lr wd p.",
    ),
    Misconception(
        name="decay_after_the_step",
        witnesses=either(stepping(decay_after_the_step)),
        hint="You shrink the parameter that has already moved. The decay is a share of what the parameter was before "
        "the step: shrink first, or compute lr wd p from the old p.",
    ),
    Misconception(
        name="decay_with_a_minus",
        witnesses=either(stepping(decay_with_a_minus)),
        hint="Your decay lets the parameters grow: the factor is 1 - lr wd.",
    ),
    Misconception(
        name="no_decay",
        witnesses=either(stepping(no_decay)),
        hint="`weight_decay` changes nothing in your steps. The parameter loses lr wd p besides Adam's step.",
    ),
    *CORRECTIONS,
    *MOMENTS,
    *AGES,
    *TENSORS,
    Misconception(
        name="not_refused",
        witnesses=(stepping(rightly),),
        fails=("refusals",),
        hint="The steps are right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, betas and every shape at the top, before anything is changed; `assert` is for one's "
        "own mistakes, and vanishes under `python -O`.",
    ),
)
