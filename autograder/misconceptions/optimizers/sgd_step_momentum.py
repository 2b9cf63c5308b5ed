"""Wrong ways to write `sgd_step`: what the buffer takes in, and where Nesterov looks."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_parts import (
    Kept,
    Options,
    direction,
    stepping,
    with_average,
    with_look,
)


def first_step_damped(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """(1 - mu) g at first, mu b + g later."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else (1 - options.momentum) * g
    return kept["b"]


def first_gradient_lost(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """Zeros at first, and only the next step adds."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else torch.zeros_like(g)
    return kept["b"]


def first_gradient_twice(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g, and mu b + g in the same step."""
    kept["b"] = options.momentum * kept.get("b", g) + g
    return kept["b"]


def mean_from_zero(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b + (1 - mu) g, from zeros."""
    kept["b"] = options.momentum * kept.get("b", 0.0) + (1 - options.momentum) * g
    return kept["b"]


def mean_from_the_first(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same, from the first gradient."""
    kept["b"] = options.momentum * kept.get("b", g) + (1 - options.momentum) * g
    return kept["b"]


def difference_from_zero(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - g, from zeros."""
    kept["b"] = options.momentum * kept.get("b", 0.0) - g
    return kept["b"]


def difference_from_the_first(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - g, from the first gradient."""
    kept["b"] = options.momentum * kept["b"] - g if "b" in kept else g.clone()
    return kept["b"]


def uphill(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p + lr d."""
    p.add_(options.lr * direction(g + options.decay * p, kept, options))


def forgets_the_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """A new local tensor each time; the dict keeps the first gradient."""
    first = kept.get("b")
    if first is not None:
        return options.momentum * first + g
    kept["b"] = b = g.clone()
    return b


def drops_the_new_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept.mul(mu).add_(g) makes a new tensor: the first gradient for ever."""
    return kept.setdefault("b", g.clone())


def drops_the_new_gradient(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept.mul_(mu).add(g): the first gradient fades."""
    kept["b"] = options.momentum * kept["b"] if "b" in kept else g.clone()
    return kept["b"]


def begins_again(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g in every step, which looks for another key than it stores: no momentum."""
    kept["b"] = b = g.clone()
    return b


def keeps_nothing(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same with a local buffer."""
    return g


def rate_in_the_buffer(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """v = mu v + lr g, p - v: equal while the rate is constant."""
    g = g + options.decay * p
    if not options.momentum:
        p.sub_(options.lr * g)
        return
    kept["v"] = options.momentum * kept.get("v", 0.0) + options.lr * g
    p.sub_(options.lr * g + options.momentum * kept["v"] if options.nesterov else kept["v"])


def looks_back(g: Tensor, b: Tensor, options: Options) -> Tensor:
    """g + mu times the buffer of the step before: in other words the new buffer."""
    return b


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


MOMENTUM = (
    Misconception(
        name="first_step_damped",
        witnesses=(with_average(first_step_damped),),
        hint="Your first buffer is (1 - mu) g, and what is missing there is missing in all later ones. Here, as in "
        "torch.optim.SGD, the first gradient counts in full: b = g.",
    ),
    Misconception(
        name="first_gradient_lost_or_twice",
        witnesses=(with_average(first_gradient_lost), with_average(first_gradient_twice)),
        hint="After the first step the buffer must be g. Yours is zeros, which this step never adds to, or it becomes "
        "g and then mu g + g on top. Begin with zeros and add in every step, or begin with g and add from the next "
        "step on (`else`).",
    ),
    Misconception(
        name="a_mean_for_a_sum",
        witnesses=(with_average(mean_from_zero), with_average(mean_from_the_first)),
        hint="You average: mu b + (1 - mu) g, which is what Adam does. Momentum in SGD is a running sum, mu b + g: on "
        "a steady slope it grows to 1 / (1 - mu) gradients, and that is its gain.",
    ),
    Misconception(
        name="steps_uphill",
        witnesses=(stepping(uphill), with_average(difference_from_zero), with_average(difference_from_the_first)),
        hint="Your steps go uphill: the gradient points to where the loss grows. Either the direction is added to the "
        "parameter, or the buffer subtracts the gradient and the step subtracts the buffer. The buffer adds; the only "
        "minus is in the parameter's line.",
    ),
    Misconception(
        name="sum_not_kept",
        witnesses=(
            with_average(forgets_the_sum),
            with_average(drops_the_new_sum),
            with_average(drops_the_new_gradient),
            with_average(begins_again),
            with_average(keeps_nothing),
        ),
        hint="The new sum has a name in your function, or none, and no place in `state`: the next step does not find "
        "it. Store it under its key, or change the kept tensor in place. (mul and add make a new tensor, mul_ and add_ "
        "change the old.)",
    ),
    Misconception(
        name="rate_in_the_buffer",
        witnesses=(stepping(rate_in_the_buffer),),
        hint="Your buffer sums lr times the gradients. While the rate stays the same nobody sees it, but under a "
        "schedule old gradients go on moving the parameter with the rate of their own day. Keep the buffer free of lr "
        "and multiply the direction.",
    ),
    Misconception(
        name="nesterov_looks_back",
        witnesses=(with_look(looks_back),),
        hint="g plus mu times the *old* buffer is the new buffer, in other words momentum without Nesterov. Make the "
        "new buffer first, then go one step further: g + mu b with b as it is now.",
    ),
    Misconception(
        name="nesterov_kept_in_the_buffer",
        witnesses=(stepping(keeps_the_look),),
        hint="You store Nesterov's direction where the buffer was. It is a look ahead for this step only: the buffer "
        "goes on as mu b + g, as if there were no Nesterov.",
    ),
    Misconception(
        name="nesterov_with_other_weights",
        witnesses=(with_look(buffer_alone), with_look(whole_buffer)),
        hint="Your Nesterov direction is mu b or g + b. It is g + mu b: mu stands at the buffer, and nowhere else. The "
        "new gradient already is in b; together it counts 1 + mu times.",
    ),
)
