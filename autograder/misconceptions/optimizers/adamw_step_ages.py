"""Wrong ways to write `adamw_step`: parameters of different age, and gradients that are None."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adamw_step_parts import Grads, Kept, begin, either, rightly, stepping
from course.reference.optimizers.adamw_step import adamw_step


def counts_calls(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """One counter in the first dict, up by 1 with each call."""
    state[0]["calls"] = state[0].get("calls", 0) + 1
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is not None:
            own = kept.setdefault("own", {})
            begin(p, own)
            own["t"] = state[0]["calls"] - 1
            adamw_update(p, g, own, **others)


def counts_parameters(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """One counter, up by 1 with each parameter."""
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is not None:
            own = kept.setdefault("own", {})
            begin(p, own)
            own["t"] = state[0].get("count", 0)
            state[0]["count"] = own["t"] + 1
            adamw_update(p, g, own, **others)


def adamw_update(p: Tensor, g: Tensor, kept: Kept, **others: Any) -> None:
    """The right step with a count that is already there."""
    stepping(rightly)([p], [g], [kept], **others)


def ages_without_a_gradient(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """None moves nothing, but counts from the first gradient on."""
    for g, kept in zip(grads, state, strict=True):
        if g is None and kept:
            kept["step"] += 1
    adamw_step(params, grads, state, **others)


def none_as_zeros(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """A gradient of zeros in place of None."""
    filled: Grads = [torch.zeros_like(p) if g is None else g for p, g in zip(params, grads, strict=True)]
    adamw_step(params, filled, state, **others)


def decays_without_a_gradient(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """The decay comes before None is noticed."""
    for p, g in zip(params, grads, strict=True):
        if g is None:
            p.mul_(1 - others["lr"] * others.get("weight_decay", 0.01))
    adamw_step(params, grads, state, **others)


def stops_at_none(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """`return` or `break` in place of `continue`."""
    there = next((i for i, g in enumerate(grads) if g is None), len(grads))
    adamw_step(params[:there], grads[:there], state[:there], **others)


def breaks_on_none(params: list[Tensor], grads: Grads, state: list[Kept], **others: Any) -> None:
    """None is not expected."""
    stepping(rightly)(params, [torch.mul(g, 1) for g in grads], state, **others)  # type: ignore[arg-type]


AGES = (
    Misconception(
        name="one_counter_for_all",
        witnesses=either(counts_calls, counts_parameters),
        hint="One counter serves all parameters, counting calls or parameters. A parameter whose first gradient comes "
        "late is then corrected as if its moments were old, and its first steps are wrong. Keep t in each dict.",
    ),
    Misconception(
        name="ages_without_a_gradient",
        witnesses=either(ages_without_a_gradient),
        hint="You count a step for a parameter that had no gradient. Its moments took nothing in, so their bias is "
        "what it was: with None, go on to the next parameter before counting.",
    ),
    Misconception(
        name="none_as_zeros",
        witnesses=either(none_as_zeros),
        hint="You treat None as a gradient of zeros: the moments fade, the age grows, and the old m goes on moving a "
        "parameter that was not used. None means that this step does not concern it.",
    ),
    Misconception(
        name="decays_without_a_gradient",
        witnesses=either(decays_without_a_gradient),
        hint="You shrink a parameter that has no gradient in this step. Ask for None first: then nothing of it "
        "changes.",
    ),
    Misconception(
        name="stops_at_none",
        witnesses=either(stops_at_none),
        hint="At the first None your loop ends, and the parameters after it miss their step. Skip only this one: "
        "`continue`, not `return` or `break`.",
    ),
    Misconception(
        name="breaks_on_none",
        witnesses=either(breaks_on_none),
        hint="A parameter that took no part in a step has the gradient None, and nothing can be computed with None. "
        "Go on to the next parameter.",
    ),
)
