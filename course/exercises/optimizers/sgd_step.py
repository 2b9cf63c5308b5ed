"""`sgd_step(params, grads, state, *, lr, momentum, nesterov, weight_decay)`: one step of SGD, in place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from course.exercises.optimizers.trajectory import (
    drive,
    half_precision,
    in_halves,
    one_and_none,
    refuse,
    views_in_float64,
)
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, every_form, observe
from course.performing.forms import at_once, in_dtype, put
from course.performing.refusals import all_refused, other_shapes, refused_in_time

RATE, MOMENTUM, DECAY = 0.1, 0.8, 0.3
STEPS = 6
MATRIX = (3, 2)
NONSENSE: dict[str, dict[str, Any]] = {
    "a negative lr": {"lr": -1e-9},
    "a momentum of 1": {"momentum": 1.0},
    "a momentum above 1": {"momentum": 1.5},
    "a negative momentum": {"momentum": -1e-9},
    "a negative weight_decay": {"weight_decay": -1e-9},
    **{f"a gradient of shape {other} for {MATRIX}": {"gradient": other} for other in other_shapes(MATRIX)},
    "a gradient of another shape before others": {"gradient": (1,), "at": 0},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Each option alone, then together, over steps of changing gradients.

    Momentum alone has two parameters of one shape, between which a state can be mixed up unseen.
    """
    several: list[tuple[int, ...]] = [MATRIX, ()]
    momentum, decay = {"momentum": MOMENTUM}, {"weight_decay": DECAY}
    nesterov = {**momentum, "nesterov": True}
    falling = [RATE * (STEPS - step) / STEPS for step in range(STEPS)]
    return [
        _case(rng, "plain", 3, several, asks_for_refusals=True),
        _case(rng, "weight decay", 4, [*several, (4,)], options=decay),
        _case(rng, "momentum", STEPS, [MATRIX, MATRIX], options=momentum),
        _case(rng, "momentum and decay", STEPS, several, options=momentum | decay),
        _case(rng, "Nesterov", STEPS, several, options=nesterov),
        _case(rng, "a falling rate", STEPS, several, options=momentum, rates=falling),
        _case(rng, SAME, 4, several, options=momentum, same_memory=True),
        _case(rng, "all together", STEPS, several, options=nesterov | decay, rates=falling),
    ]


def _case(rng: torch.Generator, name: str, steps: int, shapes: list[tuple[int, ...]], **others: Any) -> Case:
    def draw(*shape: int) -> torch.Tensor:
        return normal(rng, *shape)

    inputs: dict[str, Any] = {
        "params": [draw(*shape).sign() + draw(*shape) / 4 for shape in shapes],
        "grads": [draw(steps, *shape) for shape in shapes],
        "rates": [RATE] * steps,
        "options": {},
        "same_memory": False,
        "in_turns": False,
        "asks_for_refusals": False,
    }
    return Case(name=name, inputs=inputs | others)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """As many calls as there are rates, on one state."""

    def step(params: list[Any], grads: list[Any], state: list[Any], t: int) -> None:
        answer(params, grads, state, lr=inputs["rates"][t], **inputs["options"])

    seen = drive(
        step, inputs["params"], inputs["grads"], same_memory=inputs["same_memory"], in_turns=inputs["in_turns"]
    )
    if inputs["asks_for_refusals"]:
        seen["refused"] = refuse(answer, inputs["params"][::-1], NONSENSE, lr=RATE)
    return observe(seen)


on_params = partial(Property, keys=("params/*",))
many_steps = partial(on_params, roundings=64)
SAME = "gradients in the same memory"
RATE_0 = "a rate of 0 in the first step, weight decay, dimensions of 1 and of 0"
TURNS = "two models in turns, loaded before each step; a momentum near 1, a rate of 2"
NESTEROV_ALONE = "Nesterov without momentum, a weight decay above 1, gradients of zeros"
HALVES = tuple(
    at_once(each.name, replace(each, of=""), put("decay", {"options/weight_decay": DECAY}), of="momentum")
    for each in in_halves("momentum")
)
FORMS = (
    views_in_float64("all together"),
    one_and_none(RATE_0, "momentum", {"rates/0": 0.0, "options/weight_decay": DECAY}),
    put(
        NESTEROV_ALONE,
        {"options/nesterov": True, "options/weight_decay": 1.5, "grads/0": torch.zeros(4, *MATRIX)},
        of="weight decay",
    ),
    in_dtype(torch.float64, "params", "grads", of=SAME, name=f"{SAME}, in float64"),
    put(TURNS, {"in_turns": True, "options/momentum": 0.9999, "rates/1": 2.0}, of="momentum"),
)
STATE = "one_buffer_with_momentum_none_without"
PROMISES = {
    "any shapes, () too": ("plain_steps", RATE_0),
    "any floating dtype": ("half_precision", "views in float64 that are not contiguous"),
    "in the tensor's own memory: an assignment to a name or to `.data` does not change it": ("plain_steps",),
    "of the same shapes and dtypes": ("half_precision",),
    "They are not changed": ("gradients_unchanged",),
    "who may write the next gradients into it": ("buffers_own_their_memory",),
    "it comes back as you left it, or as a copy, with a copy of the parameter": ("momentum", TURNS),
    "one tensor of the parameter's shape and dtype": (STATE, "half_precision", RATE_0),
    "without momentum none": (STATE, NESTEROV_ALONE),
    "at least 0; it may differ from step to step": (RATE_0, "the_rate_acts_at_once"),
    "mu, in [0, 1); 0 means no momentum": ("momentum", NESTEROV_ALONE),
    "whether the direction is g + mu b instead of b": ("nesterov",),
    "of no effect without momentum": (NESTEROV_ALONE,),
    "at least 0: wd p is added to the gradient before all else": ("weight_decay", "momentum", NESTEROV_ALONE),
    "before anything is changed": ("refused_before_any_change",),
    "a negative lr or weight_decay": ("refusals",),
    "a momentum outside [0, 1)": ("refusals",),
    "a gradient that has another shape than its parameter": ("refusals",),
}

EXERCISE = Exercise(
    id="optimizers.sgd_step",
    cases=cases,
    probe=probe,
    properties=(
        on_params(
            "plain_steps",
            "Without options a step is p <- p - lr g, for each parameter, written into the tensor itself: the "
            "caller holds this tensor, and looks at no other. `p = p - lr * g` makes a new one; `p -= lr * g` does "
            "not.",
            cases=("plain",),
        ),
        on_params(
            "weight_decay",
            "Decay adds wd p to the gradient before anything else, with p as it is before the step.",
            cases=("weight decay",),
            needs=("plain_steps",),
        ),
        many_steps(
            "momentum",
            "b is the first gradient at the first step, and mu b + g at every step after it, kept in the dict of "
            "its own parameter; the parameter moves by -lr b.",
            cases=("momentum",),
            needs=("plain_steps",),
        ),
        many_steps(
            "decay_goes_through_the_momentum",
            "The decay term is part of the gradient: it is added before the buffer takes the gradient in, and so "
            "goes on acting with the momentum.",
            cases=("momentum and decay",),
            needs=("momentum",),
        ),
        many_steps(
            "nesterov",
            "Nesterov's direction is g + mu b with the buffer that this step has just made, in the first step "
            "too. The buffer itself stays as it is without Nesterov.",
            cases=("Nesterov",),
            needs=("momentum",),
        ),
        many_steps(
            "the_rate_acts_at_once",
            "The rate of a step multiplies the whole direction of this step. What the buffer keeps knows no rate.",
            cases=("a falling rate",),
            needs=("momentum",),
        ),
        on_params(
            "buffers_own_their_memory",
            "Here the caller writes each step's gradients into the same tensors. A buffer that *is* such a tensor "
            "changes with it: start it from a copy.",
            cases=(SAME,),
            needs=("momentum",),
        ),
        Property(
            STATE,
            "With momentum, the dict of each parameter keeps one tensor of the parameter's shape and dtype. "
            "Without momentum nothing needs to be kept. (Single numbers are not counted.)",
            keys=("state/*",),
        ),
        Property(
            "gradients_unchanged",
            "A gradient was changed in place (+=, add_, mul_). It belongs to the caller, who may add to it or "
            "report its norm: work on a new tensor.",
            keys=("grads/*",),
            roundings=0,
            hard=True,
            needs=("plain_steps",),
        ),
        Property(
            "refusals",
            "Before anything is changed, raise a ValueError that says what must hold and what came, for each of "
            "the things that the docstring refuses. Not every wrong shape breaks by itself: most broadcast.",
            holds=all_refused,
            cases=("plain",),
        ),
        refused_in_time("plain"),
        half_precision(HALVES),
        every_form(needs=(), keys=("params/*", "state/*"), roundings=64, cases=tuple(form.name for form in FORMS)),
    ),
    hints=(
        "Which of the two tensors, gradient and buffer, does each option change, and in which order?",
        "Four lines per parameter: add the decay to the gradient, put the result into the buffer, choose the "
        "direction, move the parameter. A dict that is still empty says that this is the first step.",
        "g = gradient + wd p, as a new tensor. With momentum: the buffer starts as a copy of g, later it becomes mu "
        "times itself plus g. The direction is the buffer, or g + mu buffer with Nesterov. Then subtract lr times the "
        "direction from the parameter with an operation that ends in an underscore.",
    ),
    forms=(*HALVES, *FORMS),
    promises=PROMISES,
    removes=("torch.optim",),
)
