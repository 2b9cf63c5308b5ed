"""Wrong ways to write `sgd_step`: what the buffer takes in."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_parts import Kept, Options, either, stepping, with_average


def first_step_damped(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """(1 - mu) g at first, mu b + g later."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else (1 - options.momentum) * g
    return kept["b"]  # type: ignore[no-any-return]


def mean_from_zero(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b + (1 - mu) g, from zeros."""
    kept["b"] = options.momentum * kept.get("b", 0.0) + (1 - options.momentum) * g
    return kept["b"]  # type: ignore[no-any-return]


def mean_from_the_first(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same, from the first gradient."""
    kept["b"] = options.momentum * kept.get("b", g) + (1 - options.momentum) * g
    return kept["b"]  # type: ignore[no-any-return]


def difference_from_zero(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - g, from zeros."""
    kept["b"] = options.momentum * kept.get("b", 0.0) - g
    return kept["b"]  # type: ignore[no-any-return]


def difference_from_the_first(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - g, from the first gradient."""
    kept["b"] = options.momentum * kept["b"] - g if "b" in kept else g.clone()
    return kept["b"]  # type: ignore[no-any-return]


def damped_difference_from_zero(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - (1 - mu) g, from zeros."""
    kept["b"] = options.momentum * kept.get("b", 0.0) - (1 - options.momentum) * g
    return kept["b"]  # type: ignore[no-any-return]


def damped_difference_from_the_first(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu b - (1 - mu) g, from the first gradient."""
    kept["b"] = options.momentum * kept["b"] - (1 - options.momentum) * g if "b" in kept else g.clone()
    return kept["b"]  # type: ignore[no-any-return]


def shrinks_the_new_gradient_too(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu (b + g)."""
    kept["b"] = options.momentum * (kept["b"] + g) if "b" in kept else g.clone()
    return kept["b"]  # type: ignore[no-any-return]


def shrinks_the_first_gradient_too(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """mu (b + g), from zeros."""
    kept["b"] = options.momentum * (kept.get("b", 0.0) + g)
    return kept["b"]  # type: ignore[no-any-return]


def forgets_the_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """A new local tensor each time; the dict keeps the first gradient."""
    first = kept.get("b")
    if first is not None:
        return options.momentum * first + g  # type: ignore[no-any-return]
    kept["b"] = b = g.clone()
    return b


def drops_the_new_sum(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept.mul(mu).add_(g) makes a new tensor: the first gradient for ever."""
    return kept.setdefault("b", g.clone())  # type: ignore[no-any-return]


def drops_the_new_gradient(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept.mul_(mu).add(g): the first gradient fades."""
    kept["b"] = options.momentum * kept["b"] if "b" in kept else g.clone()
    return kept["b"]  # type: ignore[no-any-return]


def begins_again(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g in every step: no momentum."""
    kept["b"] = b = g.clone()
    return b


def keeps_nothing(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same without a buffer."""
    return g


def first_gradient_lost(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """Zeros at first, and only the next step adds."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else torch.zeros_like(g)
    return kept["b"]  # type: ignore[no-any-return]


def first_gradient_twice(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """b = g, and mu b + g in the same step."""
    kept["b"] = options.momentum * kept.get("b", g) + g
    return kept["b"]  # type: ignore[no-any-return]


def rate_in_the_buffer(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """v = mu v + lr g, p - v: equal while the rate is constant."""
    g = g + options.decay * p
    if not options.momentum:
        p.sub_(options.lr * g)
        return
    kept["v"] = options.momentum * kept.get("v", 0.0) + options.lr * g
    p.sub_(options.lr * g + options.momentum * kept["v"] if options.nesterov else kept["v"])


MOMENTUM = (
    Misconception(
        name="first_step_damped",
        witnesses=either(with_average(first_step_damped)),
        hint="Your first buffer is (1 - mu) g, and what is missing there is missing in all later ones. Here, as in "
        "torch.optim.SGD, the first gradient counts in full: b = g.",
    ),
    Misconception(
        name="a_mean_for_a_sum",
        witnesses=either(with_average(mean_from_zero), with_average(mean_from_the_first)),
        hint="You average: mu b + (1 - mu) g, which is what Adam does. Momentum in SGD is a running sum, mu b + g: on "
        "a steady slope it grows to 1 / (1 - mu) gradients, and that is its gain.",
    ),
    Misconception(
        name="a_minus_in_the_buffer",
        witnesses=either(
            with_average(difference_from_zero),
            with_average(difference_from_the_first),
            with_average(damped_difference_from_zero),
            with_average(damped_difference_from_the_first),
        ),
        hint="The buffer subtracts the gradient, and then lr times the buffer is subtracted from the parameter: two "
        "minus signs, and the step goes uphill. The buffer adds; the only minus is in the parameter's line.",
    ),
    Misconception(
        name="mu_on_the_new_gradient_too",
        witnesses=either(with_average(shrinks_the_new_gradient_too), with_average(shrinks_the_first_gradient_too)),
        hint="mu shrinks what is old. You shrink the new gradient with it: mu (b + g) in place of mu b + g, so the "
        "sum is too small by a factor of mu.",
    ),
    Misconception(
        name="sum_not_kept",
        witnesses=either(
            with_average(forgets_the_sum), with_average(drops_the_new_sum), with_average(drops_the_new_gradient)
        ),
        hint="The new sum has a name in your function, or none, and no place in `state`: the next step finds the first "
        "gradient again. Store it under its key, or change the kept tensor in place. (mul and add make a new tensor, "
        "mul_ and add_ change the old.)",
    ),
    Misconception(
        name="no_momentum",
        witnesses=either(with_average(begins_again), with_average(keeps_nothing)),
        hint="Your steps have no momentum: the buffer begins again in every step, or there is none. Its dict tells you "
        "whether this is the first step; later, b <- mu b + g.",
    ),
    Misconception(
        name="first_gradient_lost",
        witnesses=either(with_average(first_gradient_lost)),
        hint="Your buffer begins as zeros, and the first gradient never enters it. Zeros are fine if the first step "
        "adds its gradient too: mu 0 + g = g.",
    ),
    Misconception(
        name="first_gradient_twice",
        witnesses=either(with_average(first_gradient_twice)),
        hint="In the first step the buffer becomes g, and then mu b + g on top of it. One of the two: an `else` is "
        "missing.",
    ),
    Misconception(
        name="rate_in_the_buffer",
        witnesses=either(stepping(rate_in_the_buffer)),
        hint="Your buffer sums lr times the gradients. While the rate stays the same nobody sees it, but under a "
        "schedule old gradients go on moving the parameter with the rate of their own day. Keep the buffer free of lr "
        "and multiply the direction.",
    ),
)
