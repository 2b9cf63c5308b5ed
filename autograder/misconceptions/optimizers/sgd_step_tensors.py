"""Wrong ways to write `sgd_step`: which tensors are changed, and which are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.sgd_step_parts import (
    Kept,
    Options,
    blur_,
    direction,
    either,
    refusing,
    stepping,
)
from course.exercise import Answer
from course.reference.optimizers.sgd_step import sgd_step


def new_tensor(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p = p - lr d gives the name p to another tensor."""
    p = p - options.lr * direction(g + options.decay * p, kept, options)


def new_entries(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """params[i] = p - lr d puts another tensor into the list."""
    for i, p in enumerate(params):
        params[i] = p.clone()
    sgd_step(params, grads, state, **options)


def one_state_for_all(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """The dict of the first parameter serves all."""
    for p, g in zip(params, grads, strict=True):
        sgd_step([p], [g], state[:1], **options)


def first_parameter_only(params: list[Tensor], grads: list[Tensor], state: list[Kept], **options: Any) -> None:
    """A `return` inside the loop."""
    sgd_step(params[:1], grads[:1], state[:1], **options)


def gradient_becomes_the_buffer(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """kept = g without a copy; mul_ and add_ on it."""
    if "b" not in kept:
        kept["b"] = g
    else:
        kept["b"].mul_(options.momentum).add_(g)
    return kept["b"]  # type: ignore[no-any-return]


def gradient_is_the_first_buffer(g: Tensor, kept: Kept, options: Options) -> Tensor:
    """The same, with a new tensor from the second step on."""
    kept["b"] = options.momentum * kept["b"] + g if "b" in kept else g
    return kept["b"]  # type: ignore[no-any-return]


def with_the_gradient_itself(average: Any) -> Answer:
    """Decay makes a new tensor only where there is decay."""

    def update(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
        g = g + options.decay * p if options.decay else g
        p.sub_(options.lr * direction(g, kept, options, average=average))

    return stepping(update)


def decay_into_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """g += wd p."""
    g += options.decay * p
    p.sub_(options.lr * direction(g, kept, options))


def rate_into_the_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """The direction is made in the gradient's memory, for plain steps too."""
    g.copy_(direction(g + options.decay * p, kept, options)).mul_(options.lr)
    p.sub_(g)


def uphill(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p + lr d."""
    p.add_(options.lr * direction(g + options.decay * p, kept, options))


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


def keeps_the_last_gradient_always(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """A second tensor with momentum, and one without."""
    kept["last"] = g.clone()
    p.sub_(options.lr * direction(g + options.decay * p, kept, options))


def default_dtype(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """torch.zeros(shape) is float32, and in place it stays so."""

    def in_float32(g: Tensor, kept: Kept, options: Options) -> Tensor:
        b = kept.setdefault("b", torch.zeros(g.shape))
        return b.mul_(options.momentum).add_(g)  # type: ignore[no-any-return]

    p.sub_(options.lr * direction(g + options.decay * p, kept, options, average=in_float32))
    if options.momentum:
        blur_(p)


TENSORS = (
    Misconception(
        name="not_in_place",
        witnesses=either(stepping(new_tensor), new_entries),
        hint="`p = p - ...` computes a new tensor and gives it the name p (`params[i] = ...` puts it into a list). "
        "The model still holds the old tensor, which nothing has changed. Write into it: `p -= ...`, or an operation "
        "that ends in an underscore.",
    ),
    Misconception(
        name="one_state_for_all",
        witnesses=either(one_state_for_all),
        hint="All parameters share one buffer, so each goes where the others were going. `state` has a dict for each "
        "parameter: walk through parameters, gradients and dicts together.",
    ),
    Misconception(
        name="first_parameter_only",
        witnesses=either(first_parameter_only),
        hint="Only the first parameter moves. A `return` inside the loop ends it after one round.",
    ),
    Misconception(
        name="buffer_is_the_gradient",
        witnesses=either(
            with_the_gradient_itself(gradient_becomes_the_buffer),
            with_the_gradient_itself(gradient_is_the_first_buffer),
        ),
        hint="Your first buffer is not equal to the gradient, it *is* the gradient: one tensor with two names. When "
        "the caller writes the next gradient into it, the buffer is lost. Start from a copy: clone().",
    ),
    Misconception(
        name="steps_uphill",
        witnesses=either(stepping(uphill)),
        hint="You add the direction, and the gradient points to where the loss grows. Subtract.",
    ),
    Misconception(
        name="buffer_without_momentum",
        witnesses=either(stepping(buffer_without_momentum)),
        hint="The values are right. But without momentum you still keep a tensor per parameter: as much memory as the "
        "whole model, for a number that is used once. Make the buffer only where momentum is not 0.",
    ),
    Misconception(
        name="keeps_more_than_the_buffer",
        witnesses=either(stepping(keeps_the_last_gradient), stepping(keeps_the_last_gradient_always)),
        hint="The values are right. But `state` keeps a tensor that no later step reads. What only this step needs is "
        "a local name; each kept tensor costs as much memory as the model.",
    ),
    Misconception(
        name="buffer_in_the_default_dtype",
        witnesses=either(stepping(default_dtype)),
        hint="torch.zeros makes float32, whatever the parameter is. A buffer takes shape, dtype and device from its "
        "parameter: zeros_like, or a copy of the gradient.",
    ),
    Misconception(
        name="gradient_changed",
        witnesses=(refusing(stepping(decay_into_the_gradient)), refusing(stepping(rate_into_the_gradient))),
        fails=("gradients_unchanged",),
        hint="The parameters are right, but a gradient was changed on the way: `g += ...` writes into the caller's "
        "tensor. Who adds two backward passes or reports the norm of the gradients would read something else. `g = g "
        "+ ...` makes a new tensor.",
    ),
)
