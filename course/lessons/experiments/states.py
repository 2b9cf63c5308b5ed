"""How many bytes does a step of Adam really leave in memory, when parameters and gradients are narrow?

    recipe --build a model, run a pass and a step--> parameters, gradients, master copy, moments, weighed

A recipe is the dict of the exercise `training_bytes`. torch's AdamW takes the step, on the parameters or on their
master copy. It keeps its moments in the dtype of what it steps on, so that recipes with moments in another one, and
those in blocks, cannot be measured here. It knows no stochastic rounding, which would not change a byte.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from course.errors import BadArgument
from course.meter import kept_bytes, metered

WIDTH = 256
Held = list[Any]  # what a run holds on to


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Bytes for each parameter: `states` after a step, `passing` of the casts of parameters in a forward pass."""

    states: float
    passing: float


def measured(recipe: Mapping[str, Any], *, width: int = WIDTH) -> Weighed:
    """One step of two linear layers of this width, by this recipe.

    Raises BadArgument where torch's AdamW would keep the moments in another dtype than the recipe's.
    """
    stepped = torch.float32 if _needs_master(recipe) else recipe["param"]
    if recipe["block"] is not None or recipe["moments"] != stepped:
        raise BadArgument(f"moments must be in {stepped} and without blocks, as AdamW keeps them, got {recipe}")
    numbers = 2 * width * width
    with kept_bytes() as meter:
        held = _run(recipe, width)
        gc.collect()
    states = meter.bytes_alive()
    return Weighed(states=states / numbers, passing=_cast_bytes(held[0], recipe["autocast"]) / numbers)


def _needs_master(recipe: Mapping[str, Any]) -> bool:
    return bool(recipe["param"].itemsize < 4 and recipe["rounding"] == "nearest")


def _run(recipe: Mapping[str, Any], width: int) -> Held:
    """A pass and a step; returns the model and all that is kept with it."""
    model = nn.Sequential(*(nn.Linear(width, width, bias=False, dtype=recipe["param"]) for _ in range(2)))
    params = list(model.parameters())
    masters = [each.detach().float() for each in params] if _needs_master(recipe) else params
    _pass(model, recipe["autocast"])
    held: Held = [model, masters]
    for param, copied in zip(params, masters, strict=True):
        grad = cast(Tensor, param.grad)
        copies = [grad.to(dtype) for dtype in recipe["grads"]]
        optimizer = torch.optim.AdamW([copied])
        copied.grad = grad.to(copied.dtype)
        optimizer.step()
        param.grad = copied.grad = None  # what is kept of them is in `copies`
        with torch.no_grad():
            param.copy_(copied)
        held += [copies, optimizer]
    return held


def _pass(model: nn.Module, autocast: torch.dtype | None) -> None:
    """Forward and backward on a small batch of ones, in the dtype of the products."""
    weight = next(model.parameters())
    x = torch.ones(2, weight.shape[1], dtype=autocast or weight.dtype, device=weight.device)
    with torch.autocast(weight.device.type, autocast) if autocast else nullcontext():
        loss: Tensor = model(x).float().mean()
    torch.autograd.backward(loss)


def _cast_bytes(model: nn.Module, autocast: torch.dtype | None) -> int:
    """Bytes of all copies of weights in another dtype that a forward pass makes."""
    with metered() as run:
        _pass(model, autocast)
    shapes = {tuple(each.shape) for each in model.parameters()}
    return sum(op.made for op in run.trace if op.is_cast and not op.backward and op.shape in shapes)
