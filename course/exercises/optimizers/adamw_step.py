"""`adamw_step(params, grads, state, *, lr, betas, eps, weight_decay)`: one step of AdamW, in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course.exercises.optimizers.refusals import all_refused, refused_in_time
from course.exercises.optimizers.trajectory import drive, refuse
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

RATE = 0.05
LONG = 20
ABSENT = ((0, 1, 2, 7, 8, 15), (11,))  # steps without a gradient, of the second parameter and of the first
NONSENSE: dict[str, dict[str, Any]] = {
    "a negative lr": {"lr": -0.1},
    "a beta1 of 1": {"betas": (1.0, 0.999)},
    "a beta2 of 1": {"betas": (0.9, 1.0)},
    "a negative beta1": {"betas": (-0.1, 0.999)},
    "a gradient of another shape": {},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients change in size from step to step, so that each step's own m and v are seen. Parameters start at a
    size of about 1: tolerances are shares of it, but the steps, and their roundings, have the size of lr.

    Decay and eps are seen in a single step, so that they can be right where the averages are not. Where a state can be
    mixed up, parameters have one shape. In float64 the betas are such that both corrections of the only step are exact
    in every dtype: a step count in float32 is no mistake.
    """

    two: list[tuple[int, ...]] = [(3, 2), (4,)]
    ages = torch.ones(LONG, 2, dtype=torch.bool)
    ages[list(ABSENT[0]), 1] = False
    ages[list(ABSENT[1]), 0] = False
    exact = {"betas": [0.5, 0.75], "eps": 0.01, "weight_decay": 0.3}
    return [
        _case(rng, "one step", 1, two, asks_for_refusals=True),
        _case(rng, "twenty steps", LONG, [(3, 2), (3, 2)]),
        _case(rng, "weight decay", 1, two, options={"weight_decay": 0.3}),
        _case(rng, "a large eps", 1, [*two, ()], options={"weight_decay": 0.0, "eps": 0.3}),
        _case(rng, "a gradient of zeros", 1, [(4,), (3,)], silent=1),
        _case(rng, "parameters of different age", LONG, [(4,), (4,)], options={"weight_decay": 0.2}, present=ages),
        _case(rng, "double precision", 1, two, options=exact, dtype=torch.float64),
    ]


def _case(
    rng: torch.Generator,
    name: str,
    steps: int,
    shapes: list[tuple[int, ...]],
    dtype: torch.dtype = torch.float32,
    silent: int | None = None,
    **others: Any,
) -> Case:
    """A case; `silent` numbers a parameter whose gradients are zeros, and those of the others are then positive."""
    sizes = torch.empty(steps, dtype=dtype).uniform_(-1.5, 0.5, generator=rng).exp()

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng, dtype=dtype)

    def sized(grads: torch.Tensor) -> torch.Tensor:
        return grads * sizes.view(steps, *(1 for _ in grads.shape[1:]))

    inputs: dict[str, Any] = {
        "params": [draw(*shape).sign() + draw(*shape) / 4 for shape in shapes],
        "grads": [
            sized(draw(steps, *shape)) if silent is None else draw(steps, *shape).abs() * (i != silent)
            for i, shape in enumerate(shapes)
        ],
        "present": torch.ones(steps, len(shapes), dtype=torch.bool),
        "options": {"weight_decay": 0.0},
        "asks_for_refusals": False,
    }
    return Case(name=name, inputs=inputs | others)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """As many calls as there are gradients, on one state."""
    options = dict(inputs["options"])
    if "betas" in options:
        options["betas"] = tuple(float(beta) for beta in options["betas"])

    def step(params: list[Any], grads: list[Any], state: list[Any], t: int) -> None:
        answer(params, grads, state, lr=RATE, **options)

    seen = drive(step, inputs["params"], inputs["grads"], present=inputs["present"])
    if inputs["asks_for_refusals"]:
        seen["refused"] = refuse(answer, inputs["params"][::-1], NONSENSE, lr=RATE)
    return observe(seen)


# A step count in float32 costs digits: 1 - 0.999 is then off by 3e-5 of its size, which is no mistake.
on_params = partial(Property, keys=("params/*",), roundings=128)

EXERCISE = Exercise(
    id="optimizers.adamw_step",
    cases=cases,
    probe=probe,
    properties=(
        on_params(
            "the_first_step",
            "At t = 1 both corrections undo the averages exactly: m_hat = g and v_hat = g^2. So whatever the size "
            "of the gradient, each number of a parameter moves by almost lr, against the sign of its gradient. The "
            "tensor itself must move: the caller looks at no other.",
            cases=("one step",),
        ),
        on_params(
            "twenty_steps",
            "m and v are kept uncorrected in the dict of their own parameter, with beta1 in m and beta2 in v. The "
            "correction of step t divides by 1 - beta^t, for use in this step only.",
            points=2,
            cases=("twenty steps",),
            needs=("the_first_step",),
        ),
        on_params(
            "weight_decay",
            "The parameter loses lr wd times what it was before the step. Neither m nor v hears of it. One of "
            "these cases is in float64: compute in the parameter's dtype.",
            cases=("weight decay", "double precision"),
            needs=("the_first_step",),
        ),
        on_params(
            "eps",
            "eps is added to sqrt(v_hat): after the root, and after the correction. Where all gradients were "
            "zero, 0 / (0 + eps) leaves the parameter where it is. One parameter is a number, of shape ().",
            cases=("a large eps", "a gradient of zeros"),
            needs=("the_first_step",),
        ),
        on_params(
            "each_parameter_has_its_age",
            "t counts the gradients that this very parameter has had. Where its gradient is None, nothing of it "
            "changes: not the parameter, not m and v, not t; the parameters after it still have their step.",
            points=2,
            cases=("parameters of different age",),
            needs=("twenty_steps", "weight_decay"),
        ),
        Property(
            "two_moments_kept",
            "The dict of each parameter keeps two tensors of the parameter's shape and dtype, and numbers. A "
            "third tensor of this size would be half as much memory again, for the whole model.",
            keys=("state/*",),
        ),
        Property(
            "gradients_unchanged",
            "A gradient was changed in place (add_, mul_, square_, **=). It belongs to the caller, who may add to "
            "it or report its norm: work on a new tensor.",
            keys=("grads/*",),
            roundings=0,
            needs=("two_moments_kept",),  # who does nothing changes nothing
        ),
        Property(
            "refusals",
            "Before anything is changed, raise a ValueError that says what must hold and what came, for each of "
            "the things that the docstring refuses. With a beta of 1 the correction would divide by 0; a wrong shape "
            "may broadcast without a word.",
            holds=all_refused,
            cases=("one step",),
        ),
        refused_in_time("one step"),
    ),
    hints=(
        "m and v start from zero. How large are they after the first step, compared with g and g^2?",
        "Per parameter: count the step, shrink the parameter, move both averages, correct both, take the step. An "
        "empty dict says that this parameter has had no gradient yet. Correct copies: what is kept stays uncorrected.",
        "t += 1. p *= 1 - lr wd. m moves to beta1 m + (1 - beta1) g, v to beta2 v + (1 - beta2) g^2. The step divides "
        "m / (1 - beta1^t) by (the root of v / (1 - beta2^t), plus eps). Each in place, or stored again in the dict; a "
        "gradient of None goes on to the next parameter.",
    ),
    removes=("torch.optim",),
)
