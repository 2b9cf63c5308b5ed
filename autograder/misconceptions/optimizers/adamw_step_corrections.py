"""Wrong ways to write `adamw_step`: how the moments are corrected, and what the step divides by."""

from __future__ import annotations

import math

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
    stepping,
    with_look,
)


def uncorrected(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m and v as they are; the same where m_hat and v_hat are computed and not used."""
    return ratio(m, v, options)


def only_m_corrected(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m_hat over the root of v."""
    return ratio(corrected(m, v, t, options)[0], v, options)


def only_v_corrected(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m over the root of v_hat."""
    return ratio(m, corrected(m, v, t, options)[1], options)


def frozen(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """t = 1 for ever: the count is not stored, or beta stands without a power."""
    return ratio(*corrected(m, v, 1, options), options)


def one_behind(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """t = 0 in the first step: 0 / 0."""
    return ratio(*corrected(m, v, t - 1, options), options)


def one_ahead(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """t = 2 in the first step: it starts at 1 and is counted up before use."""
    return ratio(*corrected(m, v, t + 1, options), options)


def one_behind_later(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """t - 1 from the second step on: it is counted up after use, and only where it is there already."""
    return ratio(*corrected(m, v, max(1, t - 1), options), options)


def stores_the_corrected(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m_hat and v_hat are what the next step averages with."""
    kept["m"], kept["v"] = corrected(*average(p, g, kept, options), options)
    move(p, ratio(kept["m"], kept["v"], options), options)


def stores_m_hat(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same of m alone."""
    kept["m"], v_hat = corrected(*average(p, g, kept, options), options)
    move(p, ratio(kept["m"], v_hat, options), options)


def eps_in_the_root(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """sqrt(v_hat + eps)."""
    m_hat, v_hat = corrected(m, v, t, options)
    return m_hat / (v_hat + options.eps).sqrt()


def eps_before_the_correction(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """(sqrt(v) + eps) / sqrt(1 - beta2^t); the same as the efficient form with eps unchanged."""
    m_hat, _ = corrected(m, v, t, options)
    return m_hat * math.sqrt(1 - options.beta2**t) / (v.sqrt() + options.eps)


def no_root(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m_hat / (v_hat + eps)."""
    m_hat, v_hat = corrected(m, v, t, options)
    return m_hat / (v_hat + options.eps)


def not_squared(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """v averages g: its root is nan wherever it is negative."""
    t = age(p, kept)
    for name, beta in (("m", options.beta1), ("v", options.beta2)):
        kept[name] = beta * kept[name] + (1 - beta) * g
    move(p, ratio(*corrected(kept["m"], kept["v"], t, options), options), options)


CORRECTIONS = (
    Misconception(
        name="no_bias_correction",
        witnesses=(with_look(uncorrected), with_look(only_m_corrected), with_look(only_v_corrected)),
        hint="m, v or both go into the step uncorrected: m_hat and v_hat are missing, or they are computed and not "
        "used. Both averages start at 0 and are too small at first, v more than m: with the usual betas the first step "
        "without any correction is 0.1 / sqrt(0.001) = 3 times too long. Use m / (1 - beta1^t) and v / (1 - beta2^t).",
    ),
    Misconception(
        name="correction_frozen",
        witnesses=(with_look(frozen),),
        hint="Your correction is that of t = 1 in every step: the count is not kept from step to step, or beta stands "
        "without its power. As t grows, 1 - beta^t approaches 1 and the correction ends. Count up and store the count.",
    ),
    Misconception(
        name="correction_off_by_one",
        witnesses=(with_look(one_behind), with_look(one_behind_later), with_look(one_ahead)),
        hint="In the first step your t is 0, and you divide by 1 - beta^0 = 0; or it is 2, and you correct too "
        "little; or in the second it still is 1. t counts the gradients that are in the average, the present one too: "
        "begin at 0 and count up first, or begin at 1 and count up last.",
    ),
    Misconception(
        name="corrected_moments_stored",
        witnesses=(stepping(stores_the_corrected), stepping(stores_m_hat)),
        hint="You keep a corrected moment (div_ does so too), and the next step averages it and corrects it once "
        "more. What is kept is m and v; m_hat and v_hat live for one step.",
    ),
    Misconception(
        name="eps_inside_the_root",
        witnesses=(with_look(eps_in_the_root), with_look(eps_before_the_correction)),
        hint="eps stands in the wrong place: sqrt(v_hat) + eps means correct v, take the root, then add eps. Under the "
        "root 1e-8 acts like 1e-4; added to sqrt(v) before the correction it is 32 times as large at the first step. "
        "(The Adam paper's more efficient form, before section 2.1, has that other eps, and calls it by another name.)",
    ),
    Misconception(
        name="no_root_of_the_squares",
        witnesses=(with_look(no_root), stepping(not_squared)),
        hint="v is the mean of the *squares* of the gradients, and the step divides by its root. Without the squares v "
        "is negative here and there, and its root nan. Without the root the ratio has the unit of 1 / g; with it the "
        "ratio has none, and the step is about lr, however the loss is scaled.",
    ),
)
