"""Wrong ways to write `adamw_step`: what the moments take in, with which betas, and where they stay."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import (
    Kept,
    Options,
    age,
    average,
    corrected,
    move,
    ratio,
    rightly,
    stepping,
)
from course.performing.exercise import Answer


def with_averages(for_m: str, for_v: str) -> Answer:
    """m and v that weigh old and new in another way.

    "-" subtracts the new, "+" adds it in full, "~" swaps the weights of old and new, "=" is right.
    """

    def mixed(kind: str, beta: float, old: Tensor, new: Tensor) -> Tensor:
        weights = {"-": (beta, beta - 1), "+": (beta, 1.0), "~": (1 - beta, beta), "=": (beta, 1 - beta)}
        return weights[kind][0] * old + weights[kind][1] * new

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        t = age(p, kept)
        kept["m"] = mixed(for_m, options.beta1, kept["m"], g)
        kept["v"] = mixed(for_v, options.beta2, kept["v"], g * g)
        move(p, ratio(*corrected(kept["m"], kept["v"], t, options), options), options)

    return stepping(update)


def sum_uncorrected(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m as SGD keeps it, beta1 m + g, of which the first is right without a correction."""
    t = age(p, kept)
    kept["m"] = options.beta1 * kept["m"] + g
    kept["v"] = options.beta2 * kept["v"] + (1 - options.beta2) * g * g
    move(p, ratio(kept["m"], corrected(kept["m"], kept["v"], t, options)[1], options), options)


def with_betas(averages: str, corrections: str) -> Answer:
    """The betas in the places of the first and the second: "21" swaps them, "11" takes the first for both."""

    def chosen(places: str, options: Options) -> Options:
        first, second = ((options.beta1, options.beta2)[int(place) - 1] for place in places)
        return options._replace(beta1=first, beta2=second)

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        m, v, t = average(p, g, kept, chosen(averages, options))
        move(p, ratio(*corrected(m, v, t, chosen(corrections, options)), options), options)

    return stepping(update)


def forgets(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The averages are local: the next step finds zeros again."""
    rightly(p, g, kept, options)
    kept.update(m=torch.zeros_like(p), v=torch.zeros_like(p))


def uses_what_is_forgotten(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """kept["m"].mul(beta1) makes a new tensor: the kept m stays at zeros, and is what the step uses."""
    _, v, t = average(p, g, kept, options)
    kept["m"] = torch.zeros_like(p)
    move(p, ratio(*corrected(kept["m"], v, t, options), options), options)


def begins_with_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m = g and v = g^2 before the first average, and both are corrected."""
    if not kept:
        kept.update(m=g.clone(), v=g * g)
    rightly(p, g, kept, options)


def begins_with_the_gradient_instead(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same in place of a correction."""
    if not kept:
        kept.update(m=g.clone(), v=g * g)
    m, v, _ = average(p, g, kept, options)
    move(p, ratio(m, v, options), options)


MOMENTS = (
    Misconception(
        name="a_minus_in_an_average",
        witnesses=(with_averages("-", "-"), with_averages("-", "=")),
        hint="There is a minus too many. In the average of the squares it makes v negative, and its root nan, at the "
        "first step; in that of the gradients, or where the step is added to p, each step goes uphill. An average "
        "adds, m <- beta1 m + (1 - beta1) g, v likewise; the one minus is in the parameter's step.",
    ),
    Misconception(
        name="other_weights_in_an_average",
        witnesses=(
            with_averages("+", "+"),
            with_averages("+", "="),
            with_averages("~", "~"),
            with_averages("~", "="),
            stepping(sum_uncorrected),
        ),
        hint="Your average weighs old and new in another way than beta m + (1 - beta) g. Where the new gradient enters "
        "in full it is a sum, as in SGD's momentum, and where beta belongs to the new it forgets at once. (torch's "
        "lerp_ takes the weight of the new.)",
    ),
    Misconception(
        name="betas_mixed_up",
        witnesses=(with_betas("21", "21"), with_betas("11", "11"), with_betas("11", "12"), with_betas("12", "11")),
        hint="A beta stands where the other belongs, as happens when a line is copied. beta1 (0.9) is in the average "
        "and in the correction of m, beta2 (0.999) in both of v.",
    ),
    Misconception(
        name="averages_not_kept",
        witnesses=(stepping(forgets), stepping(uses_what_is_forgotten)),
        hint="A new average has a name in your function and no place in `state`: the next step finds zeros again. "
        "Store it under its key, or change the kept tensor itself. (mul makes a new tensor, mul_ changes the old.)",
    ),
    Misconception(
        name="begins_with_the_gradient",
        witnesses=(stepping(begins_with_the_gradient), stepping(begins_with_the_gradient_instead)),
        hint="Your moments begin as g and g^2. The corrections are made for averages that begin at 0: divided by "
        "1 - beta^t, a mean that has no such bias becomes too large; and without a correction the first gradient keeps "
        "too much weight. Begin with zeros.",
    ),
)
