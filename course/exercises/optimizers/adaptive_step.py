"""`adaptive_step(rule, param, grad, state, ...)`: one step of Adagrad, RMSprop or Adadelta, in place.

Gradients are scripted. Two parameters of one shape take turns, each with its own state, and half way both go on as
deep copies, as after loading a checkpoint: what is remembered anywhere but in `state` is lost there.
"""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.optimizers.trajectory import copied, form, refuse
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    every_form,
    in_form,
    observe,
)
from course.performing.forms import at_once, cut, in_dtype, put, strided, times
from course.performing.refusals import all_refused, refused_in_time
from course.tree import Tree

RULES = ("adagrad", "rmsprop", "adadelta")
RATES = {"adagrad": 0.3, "rmsprop": 0.1, "adadelta": 1.5}
TURNS = (0, 1, 0, 1, 1, 0)  # whose step it is
HALF = 3
SHAPE = (3, 4)
COLUMNS = {"changing": slice(0, 2), "steady": slice(2, 3), "still": slice(3, 4)}
REFUSALS = "what is refused"
TINY = 1e-30  # where eps is not what is judged, it may stand anywhere
NONSENSE: dict[str, dict[str, Any]] = {
    **{f"the rule {other}": {"rule": other} for other in ("adamax", "Adagrad", "ada", "rmsprop2")},
    **{f"a negative lr for {rule}": {"rule": rule, "lr": -1e-9} for rule in RULES},
    **{f"a decay of 1 for {rule}": {"rule": rule, "decay": 1.0} for rule in RULES},
    **{f"a decay above 1 for {rule}": {"rule": rule, "decay": 1.5} for rule in RULES},
    **{f"a negative decay for {rule}": {"rule": rule, "decay": -1e-9} for rule in RULES},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Every rule; Adagrad in float64 too; and two cases for eps alone, which in Adadelta is part of the rule.

    Where eps is judged it is 1e-3, and the size of a number's gradients lies between 1e-3 and 1 and stays so: where
    eps stands is seen in the small ones. In the last column all gradients are then 0, which without eps are divided by
    0. In the column before it all are positive; in the others they change their sign. The rate falls from turn to turn.
    """

    def case(name: str, rule: str, dtype: torch.dtype = torch.float32, *, judges_eps: bool = False) -> Case:
        def draw() -> Tensor:
            return torch.rand(SHAPE, generator=rng, dtype=dtype)

        def sign(negative: float) -> Tensor:
            return torch.where(draw() < negative, -1.0, 1.0).to(dtype)

        sizes = [10 ** ((-3 if judges_eps else -1) * draw()) for _ in range(2)]
        signs = [sign(0.3) for _ in TURNS]
        for each in signs:
            each[:, COLUMNS["still"]], each[:, COLUMNS["steady"]] = float(not judges_eps), 1.0
        rate = RATES[rule] * (0.8 + 0.4 * float(torch.rand((), generator=rng)))
        inputs: dict[str, Any] = {
            "rule": rule,
            "params": [(1 + draw()) * sign(0.5) for _ in range(2)],
            "grads": [sizes[turn] * each * (0.5 + draw()) for turn, each in zip(TURNS, signs, strict=True)],
            "rates": [rate * (1 - number / 12) for number in range(len(TURNS))],
            "decay": 0.75 + 0.15 * float(torch.rand((), generator=rng)),
            "eps": 1e-3 * (1 + float(torch.rand((), generator=rng))) if judges_eps else TINY,
        }
        return Case(name=name, inputs=inputs)

    return [
        case("adagrad", "adagrad"),
        case("rmsprop", "rmsprop"),
        case("adadelta", "adadelta", judges_eps=True),
        case("eps in adagrad", "adagrad", judges_eps=True),
        case("eps in rmsprop", "rmsprop", judges_eps=True),
        case("adagrad in float64", "adagrad", torch.float64),
        Case(name=REFUSALS, inputs={"param": torch.rand(SHAPE, generator=rng)}),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """All turns of a case: the memory of the parameters half way and at the end, gradients, what the states hold."""
    if "rule" not in inputs:
        return observe({"refused": _refusals(answer, inputs)})
    numbers = {name: inputs[name] for name in ("decay", "eps") if name in inputs}
    params = [copied(param) for param in inputs["params"]]
    memory = [param.view_as(param) for param in params]
    states: list[dict[str, Any]] = [{} for _ in params]
    halfway: list[dict[str, Tensor]] = []
    for number, (turn, grad) in enumerate(zip(TURNS, inputs["grads"], strict=True)):
        if number == HALF:
            halfway = _columns(memory)
            spare, theirs = copy.deepcopy((params, states))
            params, states = copy.deepcopy((params, states))
            for other, state in zip(spare, theirs, strict=True):  # what it leaves outside of the state would be found
                answer(inputs["rule"], other, torch.ones_like(other), state, lr=inputs["rates"][number], **numbers)
            memory = [param.view_as(param) for param in params]
        answer(inputs["rule"], params[turn], grad, states[turn], lr=inputs["rates"][number], **numbers)
    values: dict[str, Any] = {"halfway": halfway, "params": _columns(memory), "grads": inputs["grads"]}
    values["state"] = [form(state, param) for state, param in zip(states, inputs["params"], strict=True)]
    return observe(values)


def _columns(params: list[Tensor]) -> list[dict[str, Tensor]]:
    """What each kind of gradient has made of the parameters; each apart, because nan in one would hide the others."""
    return [
        {name: param[..., columns].clone() for name, columns in COLUMNS.items()}
        if param.dim()
        else {"one": param.clone()}
        for param in params
    ]


def _refusals(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """What the docstring says is refused; and what those calls left of their parameter and of their empty state."""

    def step(params: list[Tensor], grads: list[Tensor], state: list[Any], *, rule: str, **numbers: float) -> None:
        answer(rule, params[0], grads[0], state[0], **numbers)

    return refuse(step, [inputs["param"]], NONSENSE, lr=0.1)


def _tiny(case: Case) -> Case:
    """Gradients of about 1e-15, and an eps of 0."""
    grads: list[Tree] = [1e-15 * each for each in cast(list[Tensor], case.inputs["grads"])]
    return dataclasses.replace(case, inputs={**case.inputs, "grads": grads, "eps": 0.0})


def _left_out(case: Case) -> Case:
    """Neither decay nor eps; gradients between 1e-8 and 1e-5, for which it matters how small eps is by itself."""
    inputs: dict[str, Any] = {name: value for name, value in case.inputs.items() if name not in ("decay", "eps")}
    return dataclasses.replace(case, inputs={**inputs, "grads": [1e-5 * each for each in inputs["grads"]]})


def _one_number(case: Case) -> Case:
    """The first number of each tensor alone, of shape ()."""
    numbers = dict(case.inputs)
    for name in TENSORS:
        numbers[name] = [each[0, 0].clone() for each in cast(list[Tensor], case.inputs[name])]
    return dataclasses.replace(case, inputs=numbers)


TENSORS = ("params", "grads")
SHAPES = ((1, 1), (0, 0))  # the first parameter is cut to a column, the second to no rows
CUTS = {f"params/{turn}": shape for turn, shape in enumerate(SHAPES)} | {
    f"grads/{number}": SHAPES[turn] for number, turn in enumerate(TURNS)
}
LEFT_OUT = Form(name="without decay and eps", change=_left_out)
FORMS = (
    Form(
        name="Adagrad on a number, of shape (), with tiny gradients and an eps of 0",
        change=lambda case: _one_number(_tiny(case)),
        of="adagrad",
    ),
    Form(
        name="RMSprop on a number in float64, with tiny gradients, an eps of 0 and a decay of 0",
        change=lambda case: in_form(_one_number(_tiny(case)), in_dtype(torch.float64, *TENSORS), put("0", decay=0.0)),
        of="rmsprop",
    ),
    at_once(
        "Adadelta in float64, on views that are not contiguous",
        in_dtype(torch.float64, *TENSORS),
        strided(*TENSORS),
        of="adadelta",
    ),
    dataclasses.replace(LEFT_OUT, name="RMSprop without decay and eps", of="eps in rmsprop"),
    at_once(
        "Adagrad without decay and eps, an lr of 0 at first, dimensions of 1 and of 0",  # what is noted shows later
        put("0", {"rates/0": 0.0, "rates/1": 0.0}),
        cut("dimensions", of="", **CUTS),
        LEFT_OUT,
        of="eps in adagrad",
    ),
    at_once(
        "Adadelta without decay and eps, an lr of 0 at first",
        put("0", {"rates/0": 0.0, "rates/1": 0.0}),
        LEFT_OUT,
        of="adadelta",
    ),
    put("RMSprop, with a gradient of zeros between", {"grads/2": torch.zeros(SHAPE)}, of="eps in rmsprop"),
    at_once(
        "Adadelta on a number in float64, with tiny gradients and a tiny eps",
        Form(name="one number", change=_one_number),
        in_dtype(torch.float64, *TENSORS),
        times("tiny", 1e-9, "grads"),
        put("eps", eps=1e-20),
        of="adadelta",
    ),
)
NUMBER, DECAY_0, VIEWS, NO_EPS, RATE_0, ADADELTA, BETWEEN, TINY_EPS = (form.name for form in FORMS)
STATE = "state_like_the_parameter"
PROMISES = {
    '"adagrad", "rmsprop" or "adadelta"': ("adagrad", "rmsprop", "adadelta"),
    "any shape, float32 or float64": (NUMBER, RATE_0, DECAY_0, TINY_EPS, VIEWS, "in_float64"),
    "in the tensor's own memory: an assignment to a name or to `.data` does not change it": ("adagrad",),
    "shape and dtype of param; not changed": ("gradients_unchanged",),
    "empty before the first step, and kept by the caller between steps": ("adagrad",),
    "tensors of param's shape and dtype, under names of your choice": (STATE, RATE_0, DECAY_0, VIEWS),
    "one for Adagrad, one for RMSprop, two for Adadelta": (STATE,),
    "after some steps of the check a deep copy of param and state goes on": ("adagrad", "rmsprop", "adadelta"),
    "also in Adadelta": ("adadelta",),
    "it may differ from step to step": (*RULES, RATE_0),
    "of the moving averages, which start from 0; not used by Adagrad": (
        "rmsprop",
        "adagrad",
        DECAY_0,
        NO_EPS,
        ADADELTA,
        BETWEEN,
    ),
    "outside the root in Adagrad and RMSprop": ("eps_outside_the_root", NO_EPS, RATE_0),
    "inside both roots in Adadelta": ("adadelta", TINY_EPS, ADADELTA),
    "nothing else is added to a denominator, and 0 is allowed": (NUMBER, DECAY_0),
    "before anything is changed": ("refused_before_any_change",),
    "another rule, lr < 0": ("refusals",),
    "decay outside [0, 1) (under every rule, Adagrad too)": ("refusals",),
}

on_params = partial(Property, keys=("halfway/*", "params/*"))

EXERCISE = Exercise(
    id="optimizers.adaptive_step",
    cases=cases,
    probe=probe,
    properties=(
        on_params(
            "adagrad",
            "Adagrad sums the squares of all gradients so far, this one included, and divides by the root of the "
            "sum plus eps. The result goes into param itself, the sum into state.",
            points=2,
            cases=("adagrad",),
        ),
        on_params(
            "rmsprop",
            "RMSprop divides as Adagrad does, with a moving average of the squares in place of their sum: decay "
            "times the old average plus (1 - decay) times the new square, from 0 on.",
            points=2,
            cases=("rmsprop",),
        ),
        on_params(
            "adadelta",
            "Two averages: of squared gradients, brought up to date before the step, and of squared moves, "
            "brought up to date after it. eps stands inside both roots, and lr only multiplies the move at the end.",
            points=2,
            cases=("adadelta",),
        ),
        on_params(
            "eps_outside_the_root",
            "In Adagrad and RMSprop the direction is g / (sqrt(v) + eps). Look at small gradients, for which it "
            "matters where eps stands, and at those that are 0, where sqrt(v) + eps is eps alone.",
            cases=("eps in adagrad", "eps in rmsprop"),
        ),
        on_params(
            "in_float64",
            "With parameters in float64 nothing may pass through float32: torch.zeros_like(param) has the dtype "
            "of param, torch.zeros(param.shape) has not.",
            cases=("adagrad in float64",),
            needs=("adagrad",),
        ),
        Property(
            STATE,
            "What is remembered lies in `state`, under names of your choice: tensors of param's shape and dtype, "
            "one for Adagrad, one for RMSprop, two for Adadelta. A single number beside them is free.",
            keys=("state/*",),
            cases=(*RULES, "adagrad in float64"),
        ),
        Property(
            "gradients_unchanged",
            "The gradient belongs to the caller, who may still clip, log or add to it. Operations that end in an "
            "underscore, and +=, change the tensor on their left: use them on param and on your state only.",
            keys=("grads/*",),
            roundings=0,
            cases=(*RULES, "adagrad in float64", VIEWS, RATE_0, ADADELTA),
            needs=(STATE,),  # who does nothing changes nothing
        ),
        Property(
            "refusals",
            "An unknown rule, an lr below 0 and a decay outside [0, 1) raise ValueError, whichever rule it is, "
            "before anything is changed.",
            holds=all_refused,
            cases=(REFUSALS,),
            needs=(STATE,),  # who refuses every call tells nothing apart
        ),
        refused_in_time(REFUSALS),
        every_form(needs=(), keys=("halfway/*", "params/*", "state/*"), roundings=32),
    ),
    hints=(
        "Which of the three lets go of an old gradient, and which never does? What does that make of the accumulator?",
        "All three end in param <- param - lr d. Create what state lacks with zeros_like(param); bring the squares up "
        "to date; then compute d. Only Adadelta has something left to do after that.",
        "Refuse first. v: plus g squared, or the average. d: g over (root of v, plus eps); for Adadelta the root of "
        "(u plus eps) over the root of (v plus eps), times g, and after it u's average takes d squared. Write into "
        "param with sub_.",
    ),
    forms=FORMS,
    promises=PROMISES,
    removes=("torch.optim",),
)
