"""Wrong ways to write `adamw_step`: which tensors are changed, and which are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import (
    Grads,
    Kept,
    Options,
    average,
    blur_,
    corrected,
    either,
    move,
    ratio,
    refusing,
    rightly,
    stepping,
)
from course.reference.optimizers.adamw_step import adamw_step


def new_tensor(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p = p - ... gives the name p to another tensor."""
    rightly(p.clone(), g, kept, options)


def one_state_for_all(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """The dict of the first parameter serves all."""
    for p, g in zip(params, grads, strict=True):
        adamw_step([p], [g], state[:1], **others)


def keeps_the_corrected_too(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m_hat and v_hat stand in the dict, and nobody reads them there."""
    rightly(p, g, kept, options)
    kept["m_hat"], kept["v_hat"] = corrected(kept["m"], kept["v"], kept["t"], options)


def keeps_the_last_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """A third tensor."""
    rightly(p, g, kept, options)
    kept["last"] = g.clone()


def default_dtype(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """torch.zeros(shape) is float32, and in place it stays so."""
    if not kept:
        kept.update(t=0, m=torch.zeros(p.shape), v=torch.zeros(p.shape))
    kept["t"] += 1
    kept["m"].mul_(options.beta1).add_(g, alpha=1 - options.beta1)
    kept["v"].mul_(options.beta2).add_(g * g, alpha=1 - options.beta2)
    move(p, ratio(*corrected(kept["m"], kept["v"], kept["t"], options), options), options)
    blur_(p)


def count_of_shape_one(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """t = torch.zeros(1): what it divides has shape (1,), where the parameter has ()."""
    m, v, t = average(p, g, kept, options)
    m_hat, v_hat = corrected(m, v, t, options)
    move(p, ratio(m_hat, v_hat, options) * torch.ones(1, dtype=p.dtype), options)


def kept_in_float64(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """Moments with more digits than the parameter, for ever."""
    wide = p.double()
    rightly(wide, g.double(), kept, options)
    p.copy_(wide)


def squares_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g.square_(), when m has been made."""
    rightly(p, g, kept, options)
    g.square_()


TENSORS = (
    Misconception(
        name="not_in_place",
        witnesses=either(stepping(new_tensor)),
        hint="`p = p - ...` computes a new tensor and gives it the name p. The model still holds the old one, which "
        "nothing has changed. Write into it: `p -= ...`, or an operation that ends in an underscore.",
    ),
    Misconception(
        name="one_state_for_all",
        witnesses=either(one_state_for_all),
        hint="All parameters share their moments, so each goes where the others were going. `state` has a dict for "
        "each parameter: walk through parameters, gradients and dicts together.",
    ),
    Misconception(
        name="keeps_more_than_two",
        witnesses=either(stepping(keeps_the_corrected_too), stepping(keeps_the_last_gradient)),
        hint="The values are right. But `state` keeps more than m and v, and no later step reads it. What only this "
        "step needs is a local name; each kept tensor costs as much memory as the model.",
    ),
    Misconception(
        name="moments_in_the_default_dtype",
        witnesses=either(stepping(default_dtype)),
        hint="torch.zeros makes float32, whatever the parameter is. A moment takes shape, dtype and device from its "
        "parameter: zeros_like.",
    ),
    Misconception(
        name="moments_kept_in_float64",
        witnesses=either(stepping(kept_in_float64)),
        hint="The values are right. But the moments are kept in float64, which doubles the memory of the state. You "
        "may compute with more digits; what is kept has the dtype of the parameter.",
    ),
    Misconception(
        name="count_of_shape_one",
        witnesses=either(stepping(count_of_shape_one)),
        hint="A parameter that is one number has shape (), and something in your step has shape (1,): a step count of "
        "torch.zeros(1), for instance. The result then has shape (1,) too and does not fit. Count with a Python number "
        "or with torch.zeros(()).",
    ),
    Misconception(
        name="gradient_changed",
        witnesses=(refusing(stepping(squares_the_gradient)),),
        fails=("gradients_unchanged",),
        hint="The parameters are right, but a gradient was changed on the way: square_, mul_ and `**=` write into the "
        "caller's tensor. Who adds two backward passes or reports the norm of the gradients would read something else.",
    ),
)
