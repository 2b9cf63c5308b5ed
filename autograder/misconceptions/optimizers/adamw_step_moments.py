"""Wrong ways to write `adamw_step`: what the moments take in, and with which betas."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import (
    Kept,
    Options,
    average,
    begin,
    corrected,
    either,
    move,
    ratio,
    stepping,
)
from course.exercise import Answer


def with_averages(for_m: str, for_v: str) -> Answer:
    """m and v that weigh old and new in another way.

    "-" subtracts the new, "+" adds it in full, "~" swaps the weights of old and new, "=" is right.
    """

    def mixed(kind: str, beta: float, old: Tensor, new: Tensor) -> Tensor:
        weights = {"-": (beta, beta - 1), "+": (beta, 1.0), "~": (1 - beta, beta), "=": (beta, 1 - beta)}
        return weights[kind][0] * old + weights[kind][1] * new

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        begin(p, kept)
        kept["t"] += 1
        kept["m"] = mixed(for_m, options.beta1, kept["m"], g)
        kept["v"] = mixed(for_v, options.beta2, kept["v"], g * g)
        move(p, ratio(*corrected(kept["m"], kept["v"], kept["t"], options), options), options)

    return stepping(update)


def with_betas(averages: str, corrections: str) -> Answer:
    """The betas in the places of the first and the second: "21" swaps them, "11" takes the first for both."""

    def chosen(places: str, options: Options) -> Options:
        first, second = ((options.beta1, options.beta2)[int(place) - 1] for place in places)
        return options._replace(beta1=first, beta2=second)

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        m, v, t = average(p, g, kept, chosen(averages, options))
        move(p, ratio(*corrected(m, v, t, chosen(corrections, options)), options), options)

    return stepping(update)


def uphill(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p + lr m_hat / (sqrt(v_hat) + eps)."""
    m, v, t = average(p, g, kept, options)
    move(p, -ratio(*corrected(m, v, t, options), options), options)


def not_squared(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """v averages g: its root is nan wherever it is negative."""
    begin(p, kept)
    old = kept["v"]
    m, _, t = average(p, g, kept, options)
    kept["v"] = options.beta2 * old + (1 - options.beta2) * g
    move(p, ratio(*corrected(m, kept["v"], t, options), options), options)


def forgets(*names: str) -> Answer:
    """The averages are local: the next step finds zeros again."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        m, v, t = average(p, g, kept, options)
        kept.update({name: torch.zeros_like(p) for name in names})
        move(p, ratio(*corrected(m, v, t, options), options), options)

    return stepping(update)


def uses_what_is_forgotten(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """kept["m"].mul(beta1) makes a new tensor: the kept m stays at zeros, and is what the step uses."""
    _, v, t = average(p, g, kept, options)
    kept["m"] = torch.zeros_like(p)
    move(p, ratio(*corrected(kept["m"], v, t, options), options), options)


def begins_with_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m = g and v = g^2 at first, and both are corrected."""
    _begin_with(g, kept)
    move(p, ratio(*corrected(*average(p, g, kept, options), options), options), options)


def begins_with_the_gradient_instead(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same in place of a correction."""
    _begin_with(g, kept)
    m, v, _ = average(p, g, kept, options)
    move(p, ratio(m, v, options), options)


def _begin_with(g: Tensor, kept: Kept) -> None:
    if not kept:
        kept.update(t=0, m=g.clone(), v=g * g)


def one_tensor_for_both(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m = v = zeros_like(p) is one tensor with two names."""
    if not kept:
        zeros: Any = torch.zeros_like(p)
        kept.update(t=0, m=zeros, v=zeros)
    kept["t"] += 1
    kept["m"].mul_(options.beta1).add_(g, alpha=1 - options.beta1)
    kept["v"].mul_(options.beta2).addcmul_(g, g, value=1 - options.beta2)
    move(p, ratio(*corrected(kept["m"], kept["v"], kept["t"], options), options), options)


MOMENTS = (
    Misconception(
        name="a_minus_in_the_variance",
        witnesses=either(with_averages("=", "-"), with_averages("-", "-")),
        hint="A minus in the average of the squares makes v negative, and its root nan, at the first step. An average "
        "adds: v <- beta2 v + (1 - beta2) g^2, and m likewise.",
    ),
    Misconception(
        name="steps_uphill",
        witnesses=either(with_averages("-", "="), stepping(uphill)),
        hint="Each step goes uphill. Either the mean of the gradients has a minus, m <- beta1 m - (1 - beta1) g, or "
        "the step is added. An average adds, m <- beta1 m + (1 - beta1) g, and the step is subtracted.",
    ),
    Misconception(
        name="sums_for_means",
        witnesses=either(with_averages("+", "+"), with_averages("+", "="), with_averages("=", "+")),
        hint="The new gradient enters a moment in full, beta m + g, as in SGD's momentum. Adam's moments are means: "
        "the two weights are beta and 1 - beta, and the correction counts on that.",
    ),
    Misconception(
        name="weights_swapped",
        witnesses=either(with_averages("~", "~"), with_averages("~", "="), with_averages("=", "~")),
        hint="Your average gives beta to the new gradient and 1 - beta to the old mean, so it forgets at once. beta "
        "belongs to the old: beta m + (1 - beta) g. (torch's lerp_ takes the weight of the new.)",
    ),
    Misconception(
        name="betas_swapped",
        witnesses=either(with_betas("21", "21"), with_betas("21", "12")),
        hint="The first beta (0.9) belongs to the mean of the gradients, the second (0.999) to the mean of their "
        "squares. You have them the other way round.",
    ),
    Misconception(
        name="one_beta_in_two_places",
        witnesses=either(
            with_betas("12", "11"),
            with_betas("12", "22"),
            with_betas("12", "21"),
            with_betas("11", "12"),
            with_betas("22", "12"),
            with_betas("11", "11"),
            with_betas("22", "22"),
        ),
        hint="A beta stands where the other belongs, as happens when a line is copied. beta1 is in the average and in "
        "the correction of m, beta2 in both of v.",
    ),
    Misconception(
        name="not_squared",
        witnesses=either(stepping(not_squared)),
        hint="v averages the gradients themselves: where they are negative its root is nan. v is the mean of their "
        "squares, number by number.",
    ),
    Misconception(
        name="averages_not_kept",
        witnesses=either(
            forgets("m", "v"),
            forgets("m"),
            forgets("v"),
            stepping(uses_what_is_forgotten),
        ),
        hint="A new average has a name in your function and no place in `state`: the next step finds zeros again. "
        "Store it under its key, or change the kept tensor itself. (mul makes a new tensor, mul_ changes the old.)",
    ),
    Misconception(
        name="begins_with_the_gradient",
        witnesses=either(stepping(begins_with_the_gradient), stepping(begins_with_the_gradient_instead)),
        hint="Your moments begin as g and g^2. The corrections are made for averages that begin at 0: divided by "
        "1 - beta^t, a mean that has no such bias becomes too large; and without a correction the first gradient keeps "
        "too much weight. Begin with zeros.",
    ),
    Misconception(
        name="one_tensor_for_both",
        witnesses=either(stepping(one_tensor_for_both)),
        hint="`m = v = torch.zeros_like(p)` makes one tensor and gives it two names, so what goes into v goes into m "
        "too. Each moment needs a tensor of its own.",
    ),
)
