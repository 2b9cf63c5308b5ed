"""Wrong ways to write `adaptive_step`: what Adagrad and RMSprop collect, and what they divide by."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adaptive_step_parts import (
    State,
    average,
    inside,
    kept,
    made,
    quotient,
    total,
    two_averages,
)


def mean_of_all(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """The sum of squares over their number."""
    v, count = kept(state, "v", g), kept(state, "count", torch.zeros(()))
    v += g * g
    count += 1
    return g / ((v / count).sqrt() + eps)


def bias_corrected(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """As in Adam: the average over 1 - decay^t."""
    v, count = kept(state, "v", g), kept(state, "count", torch.zeros((), dtype=torch.float64))
    v.copy_(average(v, g, decay))
    count += 1
    corrected = v / (1 - decay ** count.item())
    return g / (corrected.sqrt() + eps)


def starts_with_the_square(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """The first square in full, as momentum in torch's SGD starts."""
    state["v"] = average(state["v"], g, decay) if "v" in state else g * g
    return g / (state["v"].sqrt() + eps)


def not_weighted(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """Decays, but the new square comes in full."""
    return decay * old + g * g


def weights_exchanged(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """decay stands at the new square."""
    return (1 - decay) * old + decay * g * g


def minus(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The new square is taken away."""
    return decay * old - (1 - decay) * g * g


def total_of_sizes(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """Absolute values where squares belong."""
    return old + g.abs()


def average_of_sizes(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The same, averaged."""
    return decay * old + (1 - decay) * g.abs()


def total_of_gradients(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """Gradients where squares belong: the sum may be negative."""
    return old + g


def average_of_gradients(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The same, averaged."""
    return decay * old + (1 - decay) * g


def without_eps(v: Tensor, eps: float) -> Tensor:
    """Nothing keeps the divisor from 0."""
    return v.sqrt()


def without_root(v: Tensor, eps: float) -> Tensor:
    """The accumulator itself."""
    return v + eps


ADADELTA_WITHOUT_ROOTS = two_averages(numerator=without_root, denominator=without_root)

MISCONCEPTIONS = (
    Misconception(
        name="adagrad_averages",
        witnesses=(made(adagrad=quotient(average)), made(adagrad=mean_of_all)),
        hint="Your Adagrad averages the squares. Adagrad adds them up and never forgets one: its steps become shorter "
        "the longer it runs, and that is how it can reach a minimum in spite of noise. The average is RMSprop's.",
    ),
    Misconception(
        name="rmsprop_sums",
        witnesses=(made(rmsprop=quotient(total)),),
        hint="Your RMSprop adds up the squares without forgetting any, which is Adagrad. RMSprop was made to forget: "
        "v = decay v + (1 - decay) g^2.",
    ),
    Misconception(
        name="square_not_weighted",
        witnesses=(
            made(rmsprop=quotient(not_weighted)),
            made(adadelta=two_averages(not_weighted)),
            made(rmsprop=quotient(not_weighted), adadelta=two_averages(not_weighted)),
        ),
        hint="You let the old value decay and add the new square in full. The weights of an average add up to 1: decay "
        "for the old value and 1 - decay for the new one. Yours settles at 1 / (1 - decay) times the mean square.",
    ),
    Misconception(
        name="weights_exchanged",
        witnesses=(
            made(rmsprop=quotient(weights_exchanged)),
            made(adadelta=two_averages(weights_exchanged)),
            made(rmsprop=quotient(weights_exchanged), adadelta=two_averages(weights_exchanged)),
        ),
        hint="decay is the share of the old average that stays, so it multiplies the old one: with decay = 0.9 the "
        "average remembers about ten steps. Yours weighs the newest square by 0.9 and forgets the rest at once.",
    ),
    Misconception(
        name="minus_in_the_average",
        witnesses=(
            made(rmsprop=quotient(minus)),
            made(adadelta=two_averages(minus)),
            made(rmsprop=quotient(minus), adadelta=two_averages(minus)),
        ),
        hint="You subtract the new square: the average becomes negative at the first step, and its root is nan. A "
        "moving average adds: decay times the old value plus (1 - decay) times the new one.",
    ),
    Misconception(
        name="starts_with_the_first_square",
        witnesses=(made(rmsprop=starts_with_the_square),),
        hint="Your first average is the first square in full. RMSprop starts from 0, as torch has it, so the "
        "first one is (1 - decay) g^2. It is momentum in torch's SGD that starts with the first gradient itself.",
    ),
    Misconception(
        name="corrects_the_bias",
        witnesses=(made(rmsprop=bias_corrected),),
        hint="You divide the average by 1 - decay^t. That correction of the start from 0 came with Adam; RMSprop has "
        "none, so its first steps are longer: 1 / sqrt(1 - decay) times lr.",
    ),
    Misconception(
        name="eps_inside_the_root",
        witnesses=(
            made(quotient(total, inside)),
            made(rmsprop=quotient(average, inside)),
            made(quotient(total, inside), quotient(average, inside)),
        ),
        hint="You add eps under the root in Adagrad or RMSprop. There sqrt(eps) is what small gradients are compared "
        "with: 1e-8 acts like 1e-4. In torch's Adagrad and RMSprop eps stands outside: sqrt(v) + eps. Only Adadelta "
        "has it inside.",
    ),
    Misconception(
        name="eps_forgotten",
        witnesses=(
            made(quotient(total, without_eps)),
            made(rmsprop=quotient(average, without_eps)),
            made(quotient(total, without_eps), quotient(average, without_eps)),
        ),
        hint="eps is missing. A number that has had no gradient yet, such as an embedding row of a word that did not "
        "occur, is then moved by 0 / 0, which is nan. Add eps to the root.",
    ),
    Misconception(
        name="root_forgotten",
        witnesses=(
            made(quotient(total, without_root)),
            made(rmsprop=quotient(average, without_root)),
            made(quotient(total, without_root), quotient(average, without_root)),
            made(adadelta=ADADELTA_WITHOUT_ROOTS),
            made(quotient(total, without_root), quotient(average, without_root), ADADELTA_WITHOUT_ROOTS),
        ),
        hint="You divide by the squares without taking the root. g / v has the unit of 1 / g: a number with small "
        "gradients takes enormous steps. g / sqrt(v) has no unit, so lr alone sets how far a number moves.",
    ),
    Misconception(
        name="squares_forgotten",
        witnesses=(
            made(quotient(total_of_sizes)),
            made(rmsprop=quotient(average_of_sizes)),
            made(quotient(total_of_sizes), quotient(average_of_sizes)),
            made(quotient(total_of_sizes), quotient(average_of_sizes), two_averages(average_of_sizes)),
            made(quotient(total_of_sizes, without_root)),
            made(rmsprop=quotient(average_of_sizes, without_root)),
            made(quotient(total_of_sizes, without_root), quotient(average_of_sizes, without_root)),
        ),
        hint="You collect absolute values of gradients. All three rules collect squares and take the root of what they "
        "have: a root of the mean square, not a mean size.",
    ),
    Misconception(
        name="gradients_not_squared",
        witnesses=(
            made(quotient(total_of_gradients)),
            made(rmsprop=quotient(average_of_gradients)),
            made(quotient(total_of_gradients), quotient(average_of_gradients)),
            made(quotient(total_of_gradients), quotient(average_of_gradients), two_averages(average_of_gradients)),
        ),
        hint="You collect gradients as they are, and take a root. Where they are negative, that is nan; where they "
        "change their sign, they cancel. Collect their squares.",
    ),
    Misconception(
        name="divides_before_it_updates",
        witnesses=(
            made(quotient(total, stale=True)),
            made(rmsprop=quotient(average, stale=True)),
            made(quotient(total, stale=True), quotient(average, stale=True)),
            made(adadelta=two_averages(stale=True)),
            made(quotient(total, stale=True), quotient(average, stale=True), two_averages(stale=True)),
        ),
        hint="You divide by the squares as they were before this step. At the first step they are 0, and g / eps is "
        "enormous. Bring the squares up to date first: the gradient is measured by a root that knows it.",
    ),
    Misconception(
        name="climbs",
        witnesses=(made(sign=-1.0),),
        hint="You add the step. The gradient points uphill, so a step that shall lower the loss is subtracted.",
    ),
)
