"""`adamw_step(params, grads, state, *, lr, betas, eps, weight_decay)`: one step of AdamW, in place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.optimizers.trajectory import (
    drive,
    half_precision,
    in_halves,
    one_and_none,
    refuse,
    views_in_float64,
)
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Form, Inputs, Observation, Property, every_form, observe
from course.performing.forms import at_once, put, times
from course.performing.refusals import all_refused, other_shapes, refused_in_time
from course.tree import Leaf

RATE = 0.05
LONG = 6
ABSENT = ((0, 1, 4), (3,))  # steps without a gradient, of the second parameter and of the first
MATRIX = (3, 2)
TINY = 1e-20  # where eps is not what is judged, it may stand anywhere
NONSENSE: dict[str, dict[str, Any]] = {
    "a negative lr": {"lr": -1e-9},
    "a beta1 of 1": {"betas": (1.0, 0.999)},
    "a beta2 of 1": {"betas": (0.9, 1.0)},
    "a beta1 above 1": {"betas": (1.5, 0.999)},
    "a beta2 above 1": {"betas": (0.9, 1.5)},
    "a negative beta1": {"betas": (-1e-9, 0.999)},
    "a negative beta2": {"betas": (0.9, -1e-9)},
    "a wrong gradient after a None": {"gradient": MATRIX[1:], "none_before": True},
    **{f"a gradient of shape {other} for {MATRIX}": {"gradient": other} for other in other_shapes(MATRIX)},
    "a gradient of another shape before others": {"gradient": (1,), "at": 0},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients change in size from step to step, so that each step's own m and v are seen, and v falls as well as it
    grows. Parameters start at a size of about 1: tolerances are shares of it, but the steps, and their roundings, have
    the size of lr.

    Decay and eps are seen in a single step, so that they can be right where the averages are not; eps is seen in its
    cases alone, because elsewhere each gradient is much larger. Where a state can be mixed up, parameters have one
    shape. In one step and in six the betas are such that the corrections are exact in every dtype: a step count in
    float32 is no mistake.
    """

    two: list[tuple[int, ...]] = [MATRIX, (4,)]
    ages = torch.ones(LONG, 3, dtype=torch.bool)
    ages[list(ABSENT[0]), 1] = False
    ages[list(ABSENT[1]), 0] = False
    first = {"weight_decay": 0.0, "betas": [0.5, 0.9375], "eps": TINY}
    long = {"weight_decay": 0.0, "betas": [0.5, 0.75], "eps": TINY}
    falling = [RATE * (LONG - step / 2) / LONG for step in range(LONG)]
    return [
        _case(rng, "one step", 1, two, options=first, asks_for_refusals=True),
        _case(rng, "six steps", LONG, [MATRIX, MATRIX], options=long, rates=falling),
        _case(rng, "weight decay", 1, two, options={"weight_decay": 0.3, "eps": TINY}),
        _case(rng, "a large eps", 1, [*two, ()], options={"weight_decay": 0.0, "eps": 0.3}),
        _case(rng, "a gradient of zeros", 1, [(4,), (3,)], silent=1),
        _case(rng, "tiny gradients", 1, [MATRIX, (4,)], scale=1e-15, options={"weight_decay": 0.0, "eps": 1e-17}),
        _case(rng, "parameters of different age", LONG, [(4,), (4,), ()], present=ages),
    ]


def _case(
    rng: torch.Generator,
    name: str,
    steps: int,
    shapes: list[tuple[int, ...]],
    silent: int | None = None,
    scale: float = 1.0,
    **others: Any,
) -> Case:
    """A case; `silent` numbers a parameter whose gradients are zeros, and those of the others are then positive."""
    large = torch.arange(steps) % 3 == 0
    sizes = (
        scale
        * torch.where(large, 1.5, 0.4).double()
        * (0.8 + 0.4 * torch.rand(steps, generator=rng, dtype=torch.float64))
    )

    def draw(*shape: int) -> torch.Tensor:
        return normal(rng, *shape, dtype=torch.float64)

    def sized(i: int, *shape: int) -> torch.Tensor:
        grads = draw(steps, *shape)
        signs = grads.sign() if silent is None else float(i != silent)
        return (signs * (0.5 + grads.abs() / 2) * sizes.view(steps, *(1 for _ in shape))).float()

    inputs: dict[str, Any] = {
        "params": [(draw(*shape).sign() + draw(*shape) / 4).float() for shape in shapes],
        "grads": [sized(i, *shape) for i, shape in enumerate(shapes)],
        "present": torch.ones(steps, len(shapes), dtype=torch.bool),
        "rates": [RATE] * steps,
        "options": {"weight_decay": 0.0},
        "in_turns": False,
        "asks_for_refusals": False,
    }
    return Case(name=name, inputs=inputs | others)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """As many calls as there are gradients, on one state."""
    options = dict(inputs["options"])
    if "betas" in options:
        options["betas"] = tuple(float(beta) for beta in options["betas"])

    def step(params: list[Any], grads: list[Any], state: list[Any], t: int) -> None:
        answer(params, grads, state, lr=inputs["rates"][t], **options)

    def refusing(params: list[Any], grads: list[Any], state: list[Any], none_before: bool = False, **more: Any) -> None:
        answer(params, [None, *grads[1:]] if none_before else grads, state, **more)

    script = inputs["params"], inputs["grads"]
    seen = drive(step, *script, present=inputs["present"], in_turns=inputs["in_turns"])
    if inputs["asks_for_refusals"]:
        seen["refused"] = refuse(refusing, inputs["params"][::-1], NONSENSE, lr=RATE)
    return observe(seen)


# A step count in float32 costs digits: 1 - 0.999 is then off by 3e-5 of its size, which is no mistake.
on_params = partial(Property, keys=("params/*",), roundings=128)
HALVES = in_halves("six steps")
RATE_0 = "a rate of 0 in the first step and of 2 in the second, a beta1 of 0"
DECAY_AND_0 = "a weight decay above 1 at different ages, small gradients and one of zeros, an eps of 0"
BETA_0 = "a beta2 of 0, dimensions of 1 and of 0"


def _zeros_at_last(case: Case) -> Case:
    """The last gradient of the first parameter is zeros."""
    first, *others = cast(list[Tensor], case.inputs["grads"])
    return replace(case, inputs={**case.inputs, "grads": [torch.cat([first[:-1], 0 * first[-1:]]), *others]})


EXACT: dict[str, Leaf] = {  # the rate over a correction, and the root of the other one, in float32 too
    "options/betas/1": 0.0,
    **{f"rates/{t}": (1 - 0.5 ** (t + 1)) / 32 for t in range(LONG)},
}
IN_FLOAT64 = views_in_float64("six steps")
FORMS = (
    at_once(IN_FLOAT64.name, replace(IN_FLOAT64, of=""), put("exact", EXACT), of="six steps"),
    put(RATE_0, {"rates/0": 0.0, "rates/1": 2.0, "options/betas/0": 0.0}, of="six steps"),
    one_and_none(BETA_0, "six steps", {"options/betas/1": 0.0}),
    at_once(
        DECAY_AND_0,
        put("decay", {"options/weight_decay": 1.5, "options/eps": 0.0}),
        times("small", 1e-12, "grads"),
        Form(name="zeros", change=_zeros_at_last),
        of="parameters of different age",
    ),
    at_once(
        "two models in turns, loaded before each step, with all defaults",
        put("turns", in_turns=True, options={}),
        times("small", 1e-7, "grads"),
        of="parameters of different age",
    ),
)
PROMISES: dict[str, tuple[str, ...]] = {
    "any shapes, () too": ("a large eps", "each_parameter_has_its_age", BETA_0),
    "any floating dtype": ("half_precision", "views in float64 that are not contiguous"),
    "in the tensor's own memory: an assignment to a name or to `.data` does not change it": ("the_first_step",),
    "of the same shapes and dtypes": ("half_precision",),
    "They are not changed": ("gradients_unchanged",),
    "nothing of it changes, neither its moments nor its age": (
        "each_parameter_has_its_age",
        DECAY_AND_0,
    ),
    "it comes back as you left it, or as a copy, with a copy of the parameter": (
        "each_parameter_has_its_age",
        "two models in turns, loaded before each step, with all defaults",
    ),
    "in a dtype that can count to a million": ("half_precision",),
    "two tensors of the parameter's shape and dtype": (
        "two_moments_kept",
        "half_precision",
        BETA_0,
    ),
    "at least 0; it may differ from step to step": (RATE_0, "six_steps"),
    "each in [0, 1)": (RATE_0, BETA_0, "refusals"),
    "is added to the root of the corrected v. Nothing else is added to that root": ("eps",),
    "the parameter loses lr wd p, with p as it was before the step": ("weight_decay",),
    "before anything is changed": ("refused_before_any_change",),
    "a negative lr": ("refusals",),
    "a beta outside [0, 1)": ("refusals",),
    "a gradient that has another shape than its parameter": ("refusals",),
}

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
            "six_steps",
            "m and v are kept uncorrected in the dict of their own parameter, with beta1 in m and beta2 in v. The "
            "correction of step t divides by 1 - beta^t, for use in this step only, and the rate of a step moves the "
            "parameter in this step only.",
            points=2,
            cases=("six steps",),
            needs=("the_first_step",),
        ),
        on_params(
            "weight_decay",
            "The parameter loses lr wd times what it was before the step. Neither m nor v hears of it.",
            cases=("weight decay",),
            needs=("the_first_step",),
        ),
        on_params(
            "eps",
            "eps is added to sqrt(v_hat): after the root, and after the correction, and nothing else is. Where all "
            "gradients were zero, 0 / (0 + eps) leaves the parameter where it is; where they are tiny, eps alone says "
            "how tiny they may be. One parameter is a number, of shape ().",
            cases=("a large eps", "a gradient of zeros", "tiny gradients"),
            needs=("the_first_step",),
        ),
        on_params(
            "each_parameter_has_its_age",
            "t counts the gradients that this very parameter has had. Where its gradient is None, nothing of it "
            "changes: not the parameter, not m and v, not t; the parameters after it still have their step.",
            points=2,
            cases=("parameters of different age",),
            needs=("six_steps",),
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
            hard=True,
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
        half_precision(HALVES),
        every_form(needs=(), keys=("params/*", "state/*"), roundings=128, cases=tuple(form.name for form in FORMS)),
    ),
    hints=(
        "m and v start from zero. How large are they after the first step, compared with g and g^2?",
        "Per parameter: count the step, shrink the parameter, move both averages, correct both, take the step. An "
        "empty dict says that this parameter has had no gradient yet. Correct copies: what is kept stays uncorrected.",
        "t += 1. p *= 1 - lr wd. m moves to beta1 m + (1 - beta1) g, v to beta2 v + (1 - beta2) g^2. The step divides "
        "m / (1 - beta1^t) by (the root of v / (1 - beta2^t), plus eps). Each in place, or stored again in the dict; a "
        "gradient of None goes on to the next parameter.",
    ),
    forms=(*HALVES, *FORMS),
    promises=PROMISES,
    removes=("torch.optim",),
)
