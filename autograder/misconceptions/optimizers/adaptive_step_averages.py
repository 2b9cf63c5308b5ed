"""Wrong ways to write `adaptive_step`: what the accumulators of squares collect, and from where they start."""

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
    outside,
    quotient,
    total,
    two_averages,
)


def not_weighted(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """Decays, but the new square comes in full."""
    return decay * old + g * g


def weights_exchanged(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """decay stands at the new square."""
    return (1 - decay) * old + decay * g * g


def minus(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """The new square is taken away."""
    return decay * old - (1 - decay) * g * g


def fades(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """decay at the old sum."""
    return decay * old + g * g


def from_the_first(old: Tensor, g: Tensor, decay: float) -> Tensor:
    """v = g^2 in the first step, which is known by its zeros: what had no gradient may begin later."""
    return g * g if not old.any() else average(old, g, decay)


def corrected_squares(g: Tensor, state: State, decay: float) -> Tensor:
    """v / (1 - decay^t), with v brought up to date."""
    t = kept(state, "t", torch.zeros(())).add_(1)
    v = kept(state, "v", g)
    v.copy_(average(v, g, decay))
    return v / (1 - decay ** int(t))


def corrected_quotient(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """RMSprop with Adam's correction."""
    return g / outside(corrected_squares(g, state, decay), eps)


def corrected_adadelta(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """The same in Adadelta, where nobody corrects u."""
    u = kept(state, "u", g)
    d = g * inside(u, eps) / inside(corrected_squares(g, state, decay), eps)
    u.copy_(average(u, d, decay))
    return d


AVERAGES = (
    Misconception(
        name="adagrad_averages",
        witnesses=(made(adagrad=quotient(average)), made(adagrad=quotient(fades))),
        hint="Your Adagrad averages the squares, or lets the old ones fade. Adagrad adds them up and never forgets "
        "one: its steps become shorter the longer it runs, and that is how it can reach a minimum in spite of noise. "
        "The average is RMSprop's.",
    ),
    Misconception(
        name="rmsprop_sums",
        witnesses=(made(rmsprop=quotient(total)),),
        hint="Your RMSprop adds up the squares without forgetting any, which is Adagrad. RMSprop was made to forget: "
        "v = decay v + (1 - decay) g^2.",
    ),
    Misconception(
        name="no_moving_average",
        witnesses=tuple(
            made(rmsprop=quotient(wrong), adadelta=adadelta)
            for wrong in (not_weighted, weights_exchanged, minus)
            for adadelta in (two_averages(), two_averages(wrong), two_averages(wrong, moves=average))
        ),
        hint="A moving average is decay times the old value *plus* (1 - decay) times the new square: with decay = 0.9 "
        "it remembers about ten steps. Exchanged, the weights forget at once; without 1 - decay it settles at 1 / (1 - "
        "decay) times the mean square; with a minus it is negative at the first step, and its root is nan.",
    ),
    Misconception(
        name="not_from_zero",
        witnesses=tuple(
            made(rmsprop=quotient(from_the_first), adadelta=adadelta)
            for adadelta in (
                two_averages(),
                two_averages(from_the_first),
                two_averages(from_the_first, moves=average),
            )
        ),
        hint="Your average begins with the first square. Here, as in torch, it begins with 0: the first v is (1 - "
        "decay) g^2, and the first step of RMSprop is longer than lr by 1 / sqrt(1 - decay).",
    ),
    Misconception(
        name="corrected_as_in_adam",
        witnesses=(made(rmsprop=corrected_quotient), made(rmsprop=corrected_quotient, adadelta=corrected_adadelta)),
        hint="You divide v by 1 - decay^t, as Adam does, because an average that begins with 0 is too small at first. "
        "RMSprop and Adadelta are older than this correction: they use v as it is, and their first steps are longer.",
    ),
)
