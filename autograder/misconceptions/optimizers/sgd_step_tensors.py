"""Wrong ways to write `sgd_step`: which tensors are changed, and which are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_parts import (
    Average,
    Kept,
    Options,
    Update,
    direction,
    stepping,
    with_average,
)
from course.performing.exercise import Answer
from course.reference.optimizers.sgd_step import sgd_step


def new_tensor(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p = p - lr d gives the name p to another tensor; params[i] = p - lr d puts it into a list."""
    p = p - options.lr * direction(g + options.decay * p, kept, options)


def one_state_for_all(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """The dict of the first parameter serves all."""
    for p, g in zip(params, grads, strict=True):
        sgd_step([p], [g], state[:1], **options)


def gradient_becomes_the_buffer(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept = g without a copy; mul_ and add_ on it."""
    if "b" not in kept:
        kept["b"] = g
    else:
        kept["b"].mul_(options.momentum).add_(g)
    return kept["b"]


def gradient_is_the_first_buffer(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same, with a new tensor from the second step on."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else g
    return kept["b"]


def becomes_the_buffer(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g += mu b, and then g is the buffer: Nesterov adds mu b to that."""
    if options.momentum:
        kept["b"] = g.add_(kept["b"], alpha=options.momentum) if "b" in kept else g
    p.sub_(options.lr * (g + options.momentum * kept["b"] if options.nesterov else g))


def becomes_the_buffer_of_a_copy(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The same; what is kept has its own memory."""
    becomes_the_buffer(p, g, kept, options)
    if options.momentum:
        kept["b"] = kept["b"].clone()


def looks_ahead_in_the_buffer(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g += mu b for Nesterov; in the first step g is the buffer, which grows too."""
    if options.momentum:
        kept["b"] = kept["b"].mul_(options.momentum).add_(g) if "b" in kept else g
        g = g.add_(kept["b"], alpha=options.momentum) if options.nesterov else kept["b"]
    p.sub_(options.lr * g)


def after_decay(update: Update, *, copied: bool) -> Answer:
    """g + wd p before the update; a new tensor always, or only where there is decay."""

    def decayed(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        update(p, g + options.decay * p if copied or options.decay else g, kept, options)

    return stepping(decayed)


def with_the_gradient_itself(average: Average) -> Answer:
    """Decay makes a new tensor only where there is decay."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        g = g + options.decay * p if options.decay else g
        p.sub_(options.lr * direction(g, kept, options, average=average))

    return stepping(update)


def buffer_without_momentum(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """With mu = 0 the buffer is the gradient, and is kept for nothing."""
    g = g + options.decay * p
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else g.clone()
    p.sub_(options.lr * (g + options.momentum * kept["b"] if options.nesterov else kept["b"]))


def keeps_the_last_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """A second tensor with momentum."""
    g = g + options.decay * p
    p.sub_(options.lr * direction(g, kept, options))
    if options.momentum:
        kept["last"] = g


def in_float32(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """torch.zeros(shape) is float32, and in place it stays so.

    Where its roundings land in float64 is style. So noise of their size is added: two recordings do not share these
    values, and they are not compared with an answer's.
    """
    b = kept.setdefault("b", torch.zeros(g.shape)).mul_(options.momentum).add_(g)
    return b + 2**-22 * torch.randn(g.shape) if g.dtype == torch.float64 else b


def gradient_spoilt(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """g *= lr where it is used; all else is right, refusals too."""
    sgd_step(params, grads, state, **options)
    for g in grads:
        g.mul_(options["lr"])


TENSORS = (
    Misconception(
        name="not_in_place",
        witnesses=(stepping(new_tensor),),
        hint="`p = p - ...` computes a new tensor and gives it the name p (`params[i] = ...` puts it into a list). "
        "The model still holds the old tensor, which nothing has changed. Write into it: `p -= ...`, or an operation "
        "that ends in an underscore.",
    ),
    Misconception(
        name="one_state_for_all",
        witnesses=(one_state_for_all,),
        hint="All parameters share one buffer, so each goes where the others were going. `state` has a dict for each "
        "parameter: walk through parameters, gradients and dicts together.",
    ),
    Misconception(
        name="buffer_is_the_gradient",
        witnesses=(
            with_the_gradient_itself(gradient_becomes_the_buffer),
            with_the_gradient_itself(gradient_is_the_first_buffer),
        ),
        hint="Your first buffer is not equal to the gradient, it *is* the gradient: one tensor with two names. When "
        "the caller writes the next gradient into it, the buffer is lost. Start from a copy: clone().",
    ),
    Misconception(
        name="gradient_and_buffer_are_one",
        witnesses=(
            after_decay(becomes_the_buffer, copied=True),
            after_decay(becomes_the_buffer, copied=False),
            after_decay(becomes_the_buffer_of_a_copy, copied=False),
            after_decay(looks_ahead_in_the_buffer, copied=True),
            after_decay(looks_ahead_in_the_buffer, copied=False),
        ),
        hint="You add the one to the other in place, and g and the buffer are then one tensor, or hold the same. "
        "Nesterov needs both: g as it came, and the buffer, whose g + mu b is for this step only. Let the buffer have "
        "a tensor of its own (clone()), and make the direction a new one.",
    ),
    Misconception(
        name="keeps_more_than_the_buffer",
        witnesses=(stepping(buffer_without_momentum), stepping(keeps_the_last_gradient)),
        hint="The values are right. But `state` keeps a tensor that no later step reads: without momentum nothing need "
        "be kept, with momentum the buffer alone. What only this step needs is a local name; each kept tensor costs as "
        "much memory as the model.",
    ),
    Misconception(
        name="buffer_in_the_default_dtype",
        witnesses=(with_average(in_float32),),
        hint="torch.zeros makes float32, whatever the parameter is. A buffer takes shape, dtype and device from its "
        "parameter: zeros_like, or a copy of the gradient.",
    ),
    Misconception(
        name="gradient_changed",
        witnesses=(gradient_spoilt,),
        fails=("gradients_unchanged",),
        hint="The parameters are right, but a gradient was changed on the way: `g += ...` writes into the caller's "
        "tensor. Who adds two backward passes or reports the norm of the gradients would read something else. `g = g "
        "+ ...` makes a new tensor.",
    ),
)
