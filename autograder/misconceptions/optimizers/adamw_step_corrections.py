"""Wrong ways to write `adamw_step`: how the moments are corrected, and where eps stands."""

from __future__ import annotations

import math

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import (
    Kept,
    Options,
    average,
    corrected,
    either,
    move,
    ratio,
    stepping,
    with_look,
)
from course.exercise import Answer


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


def one_behind_in_numbers(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """The same with Python's division, which raises."""
    correction: float = 1 - options.beta1 ** (t - 1)
    return ratio(m, v, options) * (options.lr / correction)


def one_ahead(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """t = 2 in the first step: it starts at 1 and is counted up before use."""
    return ratio(*corrected(m, v, t + 1, options), options)


def stores_the_corrected(*names: str) -> Answer:
    """m_hat, v_hat or both are what the next step averages with."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        m_hat, v_hat = corrected(*average(p, g, kept, options), options)
        kept.update({name: each for name, each in (("m", m_hat), ("v", v_hat)) if name in names})
        move(p, ratio(m_hat, v_hat, options), options)

    return stepping(update)


def eps_in_the_root(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """sqrt(v_hat + eps)."""
    m_hat, v_hat = corrected(m, v, t, options)
    return m_hat / (v_hat + options.eps).sqrt()


def eps_before_the_correction(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """(sqrt(v) + eps) / sqrt(1 - beta2^t); the same as the efficient form with eps unchanged."""
    m_hat, _ = corrected(m, v, t, options)
    return m_hat * math.sqrt(1 - options.beta2**t) / (v.sqrt() + options.eps)


def no_eps(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m_hat / sqrt(v_hat)."""
    m_hat, v_hat = corrected(m, v, t, options)
    return m_hat / v_hat.sqrt()


def no_root(m: Tensor, v: Tensor, t: int, options: Options) -> Tensor:
    """m_hat / (v_hat + eps)."""
    m_hat, v_hat = corrected(m, v, t, options)
    return m_hat / (v_hat + options.eps)


CORRECTIONS = (
    Misconception(
        name="no_bias_correction",
        witnesses=either(with_look(uncorrected)),
        hint="The step divides m by sqrt(v), uncorrected: either m_hat and v_hat are missing, or they are computed and "
        "not used. Both averages start at 0 and are too small at first, v more than m: with the usual betas the first "
        "step is 0.1 / sqrt(0.001) = 3 times too long. Use m / (1 - beta1^t) and v / (1 - beta2^t).",
    ),
    Misconception(
        name="only_one_corrected",
        witnesses=either(with_look(only_m_corrected), with_look(only_v_corrected)),
        hint="One of the two moments goes into the step uncorrected. Both start at 0, each with a beta of its own: "
        "divide m by 1 - beta1^t and v by 1 - beta2^t.",
    ),
    Misconception(
        name="correction_frozen",
        witnesses=either(with_look(frozen)),
        hint="Your correction is that of t = 1 in every step: the count is not kept from step to step, or beta stands "
        "without its power. As t grows, 1 - beta^t approaches 1 and the correction ends. Count up and store the count.",
    ),
    Misconception(
        name="correction_starts_at_zero",
        witnesses=either(with_look(one_behind), with_look(one_behind_in_numbers)),
        hint="In the first step your t is 0, so 1 - beta^t is 0, and you divide by it. t counts gradients that are in "
        "the average, the present one too: add 1 before the correction.",
    ),
    Misconception(
        name="correction_one_ahead",
        witnesses=either(with_look(one_ahead)),
        hint="In the first step your t is 2: it begins at 1 and is counted up before it is used. Begin at 0 and count "
        "up first, or begin at 1 and count up last.",
    ),
    Misconception(
        name="corrected_moments_stored",
        witnesses=either(stores_the_corrected("m", "v"), stores_the_corrected("m"), stores_the_corrected("v")),
        hint="You keep a corrected moment (div_ does so too), and the next step averages it and corrects it once more. "
        "What is kept is m and v; m_hat and v_hat live for one step.",
    ),
    Misconception(
        name="eps_inside_the_root",
        witnesses=either(with_look(eps_in_the_root)),
        hint="You add eps to v_hat, under the root: 1e-8 there acts like 1e-4 outside. Take the root first, then add "
        "eps.",
    ),
    Misconception(
        name="eps_before_the_correction",
        witnesses=either(with_look(eps_before_the_correction)),
        hint="You add eps to sqrt(v) and correct the sum, so eps is divided by sqrt(1 - beta2^t) too: 32 times as "
        "large at the first step with the usual beta2. (The Adam paper's more efficient form, before section 2.1, has "
        "this other eps, and calls it by another name.) Correct v, take the root, then add eps.",
    ),
    Misconception(
        name="no_eps",
        witnesses=either(with_look(no_eps)),
        hint="Without eps, a number whose gradients have all been 0 moves by 0 / 0, which is nan. Add eps to the root.",
    ),
    Misconception(
        name="no_root",
        witnesses=either(with_look(no_root)),
        hint="You divide by v_hat, the mean of *squares*. Its root has the units of a gradient, so that the ratio has "
        "none and the step is about lr, however the loss is scaled.",
    ),
)
