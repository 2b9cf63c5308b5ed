"""Wrong ways to write `sgd_step`: where Nesterov looks."""

from __future__ import annotations

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_parts import (
    Kept,
    Options,
    direction,
    either,
    running_sum,
    stepping,
    with_look,
)


def ignores_nesterov(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """The buffer; g + mu times the buffer of the step before is the same."""
    return b


def looks_back(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g + mu b with b as the last step left it."""
    g = g + options.decay * p
    old = kept.get("b")
    if options.nesterov and options.momentum:
        running_sum(g, kept, options)
        p.sub_(options.lr * (g if old is None else g + options.momentum * old))
    else:
        p.sub_(options.lr * direction(g, kept, options))


def keeps_the_look(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Nesterov's direction is stored as the buffer."""
    d = direction(g + options.decay * p, kept, options)
    if options.momentum:
        kept["b"] = d
    p.sub_(options.lr * d)


def buffer_alone(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """mu b: the gradient is missing."""
    return options.momentum * b if options.nesterov else b


def whole_buffer(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """g + b: mu is missing."""
    return g + b if options.nesterov else b


def nesterov_always(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """g + mu b, asked for or not."""
    return g + options.momentum * b


def swapped_weights(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """mu g + b."""
    return options.momentum * g + b if options.nesterov else b


NESTEROV = (
    Misconception(
        name="nesterov_looks_back",
        witnesses=either(with_look(ignores_nesterov), stepping(looks_back)),
        hint="g plus mu times the *old* buffer is the new buffer, in other words momentum without Nesterov. Make the "
        "new buffer first, then go one step further: g + mu b with b as it is now.",
    ),
    Misconception(
        name="nesterov_always",
        witnesses=either(with_look(nesterov_always)),
        hint="Your direction is always Nesterov's. Without `nesterov` it is the buffer alone.",
    ),
    Misconception(
        name="nesterov_kept_in_the_buffer",
        witnesses=either(stepping(keeps_the_look)),
        hint="You store Nesterov's direction where the buffer was. It is a look ahead for this step only: the buffer "
        "goes on as mu b + g, as if there were no Nesterov.",
    ),
    Misconception(
        name="nesterov_without_the_gradient",
        witnesses=either(with_look(buffer_alone)),
        hint="Your direction is mu b alone. Nesterov adds it to this step's gradient: g + mu b.",
    ),
    Misconception(
        name="nesterov_with_other_weights",
        witnesses=either(with_look(whole_buffer), with_look(swapped_weights)),
        hint="In Nesterov's direction mu stands at the buffer, and nowhere else: g + mu b. The new gradient already "
        "is in b; together it counts 1 + mu times.",
    ),
)
