"""`adaptive_step(rule, param, grad, state, ...)`: one step of Adagrad, RMSprop or Adadelta, in place.

Gradients are scripted. Two parameters of one shape take turns, each with its own state, and half way both go on as
deep copies, as after loading a checkpoint: what is remembered anywhere but in `state` is lost there.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import all_refused, refused_in_time
from course.exercises.optimizers.trajectory import refuse
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

RULES = {"adagrad": 1, "rmsprop": 1, "adadelta": 2}  # and how many tensors each keeps
RATES = {"adagrad": 0.3, "rmsprop": 0.1, "adadelta": 1.5}
TURNS = (0, 1, 0, 0, 1, 0, 1, 1)  # whose step it is
HALF = 4
SHAPE = (3, 4)
COLUMNS = {"still": slice(0, 1), "steady": slice(1, 2), "changing": slice(2, None)}
REFUSALS = "what is refused"


def cases(rng: torch.Generator) -> list[Case]:
    """Every rule in float32 and in float64.

    The size of a number's gradients lies between 1e-3 and 1 and stays so, eps is 1e-3: where it stands is seen in the
    small ones. In the first column all gradients are 0, which without eps are divided by 0; in the second all are
    positive; in the others they change their sign.
    """

    def case(rule: str, dtype: torch.dtype) -> Case:
        def draw() -> Tensor:
            return torch.rand(SHAPE, generator=rng, dtype=dtype)

        sizes = [10 ** (-3 * draw()) for _ in range(2)]
        signs = [torch.where(draw() < 0.3, -1.0, 1.0).to(dtype) for _ in TURNS]
        for sign in signs:
            sign[:, COLUMNS["still"]], sign[:, COLUMNS["steady"]] = 0.0, 1.0
        inputs: dict[str, Any] = {
            "rule": rule,
            "params": [1 + draw() for _ in range(2)],
            "grads": [sizes[turn] * sign * (0.5 + draw()) for turn, sign in zip(TURNS, signs, strict=True)],
            "lr": RATES[rule] * (0.8 + 0.4 * float(torch.rand((), generator=rng))),
            "decay": 0.75 + 0.15 * float(torch.rand((), generator=rng)),
            "eps": 1e-3 * (1 + float(torch.rand((), generator=rng))),
        }
        return Case(name=rule if dtype == torch.float32 else f"{rule} in float64", inputs=inputs)

    drawn = [case(rule, dtype) for dtype in (torch.float32, torch.float64) for rule in RULES]
    pair: dict[str, Any] = {"param": torch.rand(SHAPE, generator=rng), "grad": torch.rand(SHAPE, generator=rng)}
    return [*drawn, Case(name=REFUSALS, inputs=pair)]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """All turns of a case: the memory of the parameters half way and at the end, gradients, what the states hold."""
    if "rule" not in inputs:
        return observe({"refused": _refusals(answer, inputs)})
    numbers = {name: inputs[name] for name in ("lr", "decay", "eps")}
    params = [param.clone() for param in inputs["params"]]
    memory = [param.view_as(param) for param in params]
    states: list[dict[str, Any]] = [{} for _ in params]
    halfway: list[dict[str, Tensor]] = []
    for number, (turn, grad) in enumerate(zip(TURNS, inputs["grads"], strict=True)):
        if number == HALF:
            halfway = _columns(memory)
            params, states = copy.deepcopy((params, states))
            memory = [param.view_as(param) for param in params]
        answer(inputs["rule"], params[turn], grad, states[turn], **numbers)
    values: dict[str, Any] = {"halfway": halfway, "params": _columns(memory), "grads": inputs["grads"]}
    return observe({**values, "state": [_kept(state) for state in states]})


def _columns(params: list[Tensor]) -> list[dict[str, Tensor]]:
    """What each kind of gradient has made of the parameters; each apart, because nan in one would hide the others."""
    return [{name: param[:, columns].clone() for name, columns in COLUMNS.items()} for param in params]


def _refusals(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """What the docstring says is refused; and what those calls left of their parameter and of their empty state."""

    def step(params: list[Tensor], grads: list[Tensor], state: list[Any], *, rule: str, **numbers: float) -> None:
        answer(rule, params[0], inputs["grad"].clone(), state[0], **numbers)

    nonsense: dict[str, dict[str, Any]] = {
        "an unknown rule": {"rule": "adamax"},
        "a negative lr": {"rule": "adagrad", "lr": -0.1},
        "a decay of 1": {"rule": "rmsprop", "decay": 1.0},
        "a decay of 1 for adagrad": {"rule": "adagrad", "decay": 1.0},
        "a negative decay": {"rule": "adadelta", "decay": -0.1},
    }
    return refuse(step, [inputs["param"]], nonsense, lr=0.1)


def _kept(state: dict[str, Any]) -> str:
    """Dtype and shape of what a state holds, whatever it is called; single numbers, such as a step count, are free."""
    tensors = [each for each in state.values() if isinstance(each, Tensor) and each.numel() > 1]
    return ", ".join(sorted(_form(each.dtype, tuple(each.shape)) for each in tensors))


def _form(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype} {shape}".removeprefix("torch.")


def _like_the_parameter(inputs: Inputs, got: Values, expected: Values) -> str | None:
    one = _form(inputs["params"][0].dtype, SHAPE)
    wanted = ", ".join([one] * RULES[inputs["rule"]])
    others = [got[f"state/{number}"] or "no tensor" for number in range(2) if got[f"state/{number}"] != wanted]
    return f"the state holds {others[0]}, where {inputs['rule']} keeps {wanted}" if others else None


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
            "in_float64",
            "With parameters in float64 nothing may pass through float32: torch.zeros_like(param) has the dtype "
            "of param, torch.zeros(param.shape) has not.",
            cases=("adagrad in float64",),
            needs=("adagrad",),
        ),
        Property(
            "state_like_the_parameter",
            "What is remembered lies in `state`, under names of your choice: tensors of param's shape and dtype, "
            "one for Adagrad, one for RMSprop, two for Adadelta. A single number beside them is free.",
            holds=_like_the_parameter,
            cases=tuple(f"{rule}{dtype}" for rule in RULES for dtype in ("", " in float64")),
            needs=("adagrad",),
        ),
        Property(
            "gradients_unchanged",
            "The gradient belongs to the caller, who may still clip, log or add to it. Operations that end in an "
            "underscore, and +=, change the tensor on their left: use them on param and on your state only.",
            keys=("grads/*",),
            roundings=0,
            cases=tuple(RULES),
            needs=("adagrad",),
        ),
        Property(
            "refusals",
            "An unknown rule, an lr below 0 and a decay outside [0, 1) raise ValueError, whichever rule it is, "
            "before anything is changed.",
            holds=all_refused,
            cases=(REFUSALS,),
            needs=("adagrad",),
        ),
        refused_in_time(REFUSALS),
    ),
    hints=(
        "Which of the three lets go of an old gradient, and which never does? What does that make of the accumulator?",
        "All three end in param <- param - lr d. Create what state lacks with zeros_like(param); bring the squares up "
        "to date; then compute d. Only Adadelta has something left to do after that.",
        "Refuse first. v: plus g squared, or the average. d: g over (root of v, plus eps); for Adadelta the root of "
        "(u plus eps) over the root of (v plus eps), times g, and after it u's average takes d squared. Write into "
        "param with sub_.",
    ),
    removes=("torch.optim",),
)
