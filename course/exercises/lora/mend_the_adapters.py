"""`mend_the_adapters()`: find the wrong line in each of three short programs that fine-tune, and mend it.

A mended program is judged by its losses, by what has moved and by the bytes of its optimizer's states on secret
numbers, so that any line and any spelling of a cure is right. Its text is code of the student's, and is executed here,
where the answer itself is. Numbers are in float64, whatever the case's dtype is.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from course.lessons.experiments import adapter_runs, programs
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

UP, DOWN = "largest: the gradient of up is larger", "largest: the gradient of down is larger"
CASES = {"classifier": ("classifier",), "matrices": ("matrices",), "largest": (UP, DOWN)}
MORE = 1.25  # times our bytes


def cases(rng: torch.Generator) -> list[Case]:
    """Each program on its own numbers; `largest` where either layer is the one."""

    def drawn(name: str) -> Inputs:
        numbers = {"seed": integer(rng, 0, 2**31), "r": integer(rng, 1, 4), "lr": 0.02}
        return {"program": name, **cast(Inputs, adapter_runs.data(rng, 12)), **cast(Inputs, numbers)}

    found = {name: drawn(name) for name in ("classifier", "matrices")}
    while not {UP, DOWN} <= found.keys():
        inputs = drawn("largest")
        given = {key: each for key, each in inputs.items() if key != "program"}
        found.setdefault(UP if "up" in adapter_runs.run("largest", **given).adapted else DOWN, inputs)
    return [Case(name=name, inputs=found[name]) for names in CASES.values() for name in names]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it."""
    given: Inputs = {key: each.double() if isinstance(each, Tensor) else each for key, each in inputs.items()}
    name = given.pop("program")
    program = adapter_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    log = adapter_runs.run(name, program, **given)
    numbers: Inputs = {"losses": torch.tensor(log.losses), "factors": {**log.factors}, "moved": {**_tensors(log.moved)}}
    return observe({name: {**numbers, "bytes": torch.tensor(float(log.bytes))}})


def _tensors(numbers: dict[str, float]) -> dict[str, Tensor]:
    return {name.replace(".", " "): torch.tensor(number) for name, number in numbers.items()}


def _as_few_bytes(name: str, inputs: Inputs, got: Values, expected: Values) -> str | None:
    bytes_, ours = (_number(each[f"{name}/bytes"]) for each in (got, expected))
    return None if bytes_ <= MORE * ours else f"{bytes_:,.0f} bytes of states, where {ours:,.0f} are enough"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (Tensor, int, float)) else float("nan")


def _learns(name: str, hint: str, points: int) -> Property:
    """The losses and the factors are ours: so nothing trains that must not, either."""
    keys = (f"{name}/losses", f"{name}/factors/*")
    return Property(f"{name}_learns", hint, points=points, roundings=256, keys=keys, cases=CASES[name])


EXERCISE = Exercise(
    id="lora.mend_the_adapters",
    cases=cases,
    probe=probe,
    properties=(
        _learns(
            "classifier",
            "In `classifier` the adapters and the head learn, and nothing else, neither biases nor the norm. Which "
            "parameters require a gradient when `trained` is made?",
            3,
        ),
        _learns(
            "matrices",
            "In `matrices` the adapters alone learn: the losses are those of a run in which every other parameter is "
            "frozen. Which of them have one dimension?",
            3,
        ),
        _learns(
            "largest",
            "`largest` must have the losses that it has now: Adam, one adapter, at the layer whose weight has the "
            "larger gradient.",
            1,
        ),
        Property(
            "largest_states",
            "The optimizer of `largest` keeps states for weights that are frozen. Adam passes over a parameter whose "
            "gradient is None, not over one whose gradient is full of zeros.",
            points=2,
            holds=partial(_as_few_bytes, "largest"),
            cases=CASES["largest"],
            needs=("largest_learns",),
        ),
    ),
    hints=(
        "For each program: which number in its row cannot be right, and which parameters does it speak of?",
        "Go through the lines and write down after each of them which parameters require a gradient, and which have "
        "one that is not None.",
        "`classifier` freezes after the adapters are in, and them as well. A bias is no matrix. In `largest`, who made "
        "gradients for the base, and what does zero_grad leave of them?",
    ),
    promises={
        'for "classifier", "matrices" and "largest" the number': (
            "classifier_learns",
            "matrices_learns",
            "largest_states",
        ),
        "Its indentation is kept, and may be left out": ("classifier_learns", "matrices_learns", "largest_states"),
        "by the losses, by the factors, by what": ("classifier_learns", "matrices_learns", "largest_learns"),
        "which may be a quarter above ours": ("largest_states",),
        "any spelling of a cure is right": ("classifier_learns", "matrices_learns", "largest_learns"),
        "the adapters and the head train, and nothing else": ("classifier_learns",),
        "the adapters train, and nothing else, the head included": ("matrices_learns",),
        "the one adapter trains, by Adam": ("largest_learns", UP, DOWN),
    },
    seconds=10.0,
)
