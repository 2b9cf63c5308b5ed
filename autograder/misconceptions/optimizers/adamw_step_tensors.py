"""Wrong ways to write `adamw_step`: which tensors are changed and kept, and whose turn it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import Grads, Kept, Options, corrected, rightly, stepping
from course.reference.optimizers.adamw_step import adamw_step


def counts_calls(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """One counter of calls for all. The same: one for each, which goes up before None is noticed."""
    for g, kept in zip(grads, state, strict=True):
        if g is None:
            kept["t"] = kept.get("t", 0) + 1
    stepping(rightly)(params, grads, state, **others)


def counts_calls_from_the_first_gradient(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """None counts, but only where there are moments already."""
    for g, kept in zip(grads, state, strict=True):
        if g is None and kept:
            kept["t"] += 1
    stepping(rightly)(params, grads, state, **others)


def counts_parameters(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """One counter for all, up by 1 with each gradient."""
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is not None:
            kept["t"] = state[0].get("count", 0)
            state[0]["count"] = kept["t"] + 1
            stepping(rightly)([p], [g], [kept], **others)


def none_as_zeros(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """A gradient of zeros in place of None."""
    filled: Grads = [torch.zeros_like(p) if g is None else g for p, g in zip(params, grads, strict=True)]
    adamw_step(params, filled, state, **others)


def decays_without_a_gradient(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """The decay comes before None is noticed."""
    for p, g in zip(params, grads, strict=True):
        if g is None:
            p.mul_(1 - others["lr"] * others["weight_decay"])
    adamw_step(params, grads, state, **others)


def stops_at_none(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """`return` or `break` in place of `continue`."""
    there = next((i for i, g in enumerate(grads) if g is None), len(grads))
    adamw_step(params[:there], grads[:there], state[:there], **others)


def new_tensor(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """p = p - ... gives the name p to another tensor."""
    rightly(p.clone(), g, kept, options)


def keeps_the_corrected_too(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """m_hat and v_hat stand in the dict, and nobody reads them there."""
    rightly(p, g, kept, options)
    kept["m_hat"], kept["v_hat"] = corrected(kept["m"], kept["v"], kept["t"], options)


def keeps_the_last_gradient(p: Tensor, g: Tensor, kept: Kept, options: Options) -> None:
    """One more tensor, whichever."""
    rightly(p, g, kept, options)
    kept["last"] = g.clone()


def gradient_spoilt(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """g.square_() where it is used for the last time; all else is right, refusals too."""
    adamw_step(params, grads, state, **others)
    for g in grads:
        if g is not None:
            g.square_()


TENSORS = (
    Misconception(
        name="one_counter_for_all",
        witnesses=(counts_calls, counts_calls_from_the_first_gradient, counts_parameters),
        hint="Your t also counts what this parameter took no part in: one counter serves all parameters, or each has "
        "its own, which goes up before None is noticed. A parameter whose first gradient comes late is then corrected "
        "as if its moments were old, and its first steps are wrong. Keep t in each dict, and count gradients.",
    ),
    Misconception(
        name="none_is_not_skipped",
        witnesses=(none_as_zeros, decays_without_a_gradient, stops_at_none),
        hint="None means that this step does not concern the parameter: ask for it first of all, and go on to the next "
        "with `continue`. With zeros in its place the moments fade, and the old m goes on moving a parameter that was "
        "not used; decay before the question shrinks it; `return` or `break` robs those after it of their step.",
    ),
    Misconception(
        name="not_in_place",
        witnesses=(stepping(new_tensor),),
        hint="`p = p - ...` computes a new tensor and gives it the name p. The model still holds the old one, which "
        "nothing has changed. Write into it: `p -= ...`, or an operation that ends in an underscore.",
    ),
    Misconception(
        name="keeps_more_than_two",
        witnesses=(stepping(keeps_the_corrected_too), stepping(keeps_the_last_gradient)),
        hint="The values are right. But `state` keeps more than m and v, and no later step reads it. What only this "
        "step needs is a local name; each kept tensor costs as much memory as the model.",
    ),
    Misconception(
        name="gradient_changed",
        witnesses=(gradient_spoilt,),
        fails=("gradients_unchanged",),
        hint="The parameters are right, but a gradient was changed on the way: square_, mul_ and `**=` write into the "
        "caller's tensor. Who adds two backward passes or reports the norm of the gradients would read something else.",
    ),
)
