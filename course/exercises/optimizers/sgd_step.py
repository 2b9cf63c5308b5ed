"""`sgd_step(params, grads, state, *, lr, momentum, nesterov, weight_decay)`: one step of SGD, in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course.exercises.optimizers.refusals import all_refused, refused_in_time
from course.exercises.optimizers.trajectory import drive, refuse
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

RATE, MOMENTUM, DECAY = 0.1, 0.8, 0.3
STEPS = 10
NONSENSE = {
    "a negative lr": {"lr": -0.1},
    "a momentum of 1": {"momentum": 1.0},
    "a negative momentum": {"momentum": -0.5},
    "a negative weight_decay": {"weight_decay": -0.1},
    "a gradient of another shape": {},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Each option alone, then together, over steps of changing gradients.

    Momentum alone has two parameters of one shape, between which a state can be mixed up unseen. What is computed in
    float64 is each option once: decay in one case, the rest in another.
    """
    several: list[tuple[int, ...]] = [(3, 2), ()]
    momentum, decay = {"momentum": MOMENTUM}, {"weight_decay": DECAY}
    nesterov = {**momentum, "nesterov": True}
    falling = [RATE * (STEPS - step) / STEPS for step in range(STEPS)]
    single, double = torch.float32, torch.float64
    return [
        _case(rng, "plain", 3, several, single, asks_for_refusals=True),
        _case(rng, "weight decay", 4, several, double, options=decay),
        _case(rng, "momentum", STEPS, [(3, 2), (3, 2)], single, options=momentum),
        _case(rng, "momentum and decay", STEPS, several, single, options=momentum | decay),
        _case(rng, "Nesterov", STEPS, several, single, options=nesterov),
        _case(rng, "a falling rate", STEPS, several, single, options=momentum, rates=falling),
        _case(rng, "gradients in the same memory", 4, several, single, options=momentum, same_memory=True),
        _case(rng, "all together", STEPS, several, double, options=nesterov | decay, rates=falling),
    ]


def _case(
    rng: torch.Generator, name: str, steps: int, shapes: list[tuple[int, ...]], dtype: torch.dtype, **others: Any
) -> Case:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng, dtype=dtype)

    inputs: dict[str, Any] = {
        "params": [draw(*shape).sign() + draw(*shape) / 4 for shape in shapes],
        "grads": [draw(steps, *shape) for shape in shapes],
        "rates": [RATE] * steps,
        "options": {},
        "same_memory": False,
        "asks_for_refusals": False,
    }
    return Case(name=name, inputs=inputs | others)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """As many calls as there are rates, on one state."""

    def step(params: list[Any], grads: list[Any], state: list[Any], t: int) -> None:
        answer(params, grads, state, lr=inputs["rates"][t], **inputs["options"])

    seen = drive(step, inputs["params"], inputs["grads"], same_memory=inputs["same_memory"])
    if inputs["asks_for_refusals"]:
        seen["refused"] = refuse(answer, inputs["params"][::-1], NONSENSE, lr=RATE)
    return observe(seen)


on_params = partial(Property, keys=("params/*",))
many_steps = partial(on_params, roundings=64)

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
            "Decay adds wd p to the gradient before anything else, with p as it is before the step. The "
            "parameters of this case are in float64: compute in their dtype.",
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
            needs=("weight_decay", "momentum"),
        ),
        many_steps(
            "nesterov",
            "Nesterov's direction is g + mu b with the buffer that this step has just made, in the first step "
            "too. The buffer itself stays as it is without Nesterov.",
            cases=("Nesterov", "all together"),
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
            cases=("gradients in the same memory",),
            needs=("momentum",),
        ),
        Property(
            "one_buffer_with_momentum_none_without",
            "With momentum, the dict of each parameter keeps one tensor of the parameter's shape and dtype. "
            "Without momentum nothing needs to be kept. (Single numbers are not counted.)",
            keys=("state/*",),
            needs=("momentum",),
        ),
        Property(
            "gradients_unchanged",
            "A gradient was changed in place (+=, add_, mul_). It belongs to the caller, who may add to it or "
            "report its norm: work on a new tensor.",
            keys=("grads/*",),
            roundings=0,
            needs=("plain_steps",),
        ),
        Property(
            "refusals",
            "Before anything is changed, raise a ValueError that says what must hold and what came, for each of "
            "the things that the docstring refuses. Not every wrong shape breaks by itself: most broadcast.",
            holds=all_refused,
            cases=("plain",),
            needs=("plain_steps",),
        ),
        refused_in_time("plain"),
    ),
    hints=(
        "Which of the two tensors, gradient and buffer, does each option change, and in which order?",
        "Four lines per parameter: add the decay to the gradient, put the result into the buffer, choose the "
        "direction, move the parameter. A dict that is still empty says that this is the first step.",
        "g = gradient + wd p, as a new tensor. With momentum: the buffer starts as a copy of g, later it becomes mu "
        "times itself plus g. The direction is the buffer, or g + mu buffer with Nesterov. Then subtract lr times the "
        "direction from the parameter with an operation that ends in an underscore.",
    ),
    removes=("torch.optim",),
)
