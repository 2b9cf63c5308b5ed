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


def _frozen(name: str, inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: what does not move in ours has not moved, not by a rounding, and an adapter has."""
    keys = [key for key, ours in expected.items() if key.startswith(f"{name}/moved/") and not _number(ours)]
    moved = [key.rpartition("/")[2] for key in keys if _number(got[key])]
    factors = [each for key, each in got.items() if key.startswith(f"{name}/factors/") and key.endswith(".B")]
    if not any(isinstance(each, Tensor) and each.any() for each in factors):
        return "no adapter has learned anything: that nothing else moves is no wonder"
    return f"moved: {', '.join(moved)}" if moved else None


def _as_few_bytes(name: str, inputs: Inputs, got: Values, expected: Values) -> str | None:
    bytes_, ours = (_number(each[f"{name}/bytes"]) for each in (got, expected))
    return None if bytes_ <= MORE * ours else f"{bytes_:,.0f} bytes of states, where {ours:,.0f} are enough"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (Tensor, int, float)) else float("nan")


def _judged(name: str, learns: str, frozen: str, states: str) -> tuple[Property, ...]:
    return (
        Property(
            f"{name}_learns",
            learns,
            points=2,
            roundings=256,
            keys=(f"{name}/losses", f"{name}/factors/*"),
            cases=CASES[name],
        ),
        Property(
            f"{name}_base",
            frozen,
            holds=partial(_frozen, name),
            cases=CASES[name],
        ),
        Property(
            f"{name}_states",
            states,
            holds=partial(_as_few_bytes, name),
            cases=CASES[name],
            needs=(f"{name}_learns",),
        ),
    )


EXERCISE = Exercise(
    id="lora.mend_the_adapters",
    cases=cases,
    probe=probe,
    properties=(
        *_judged(
            "classifier",
            "In `classifier` the adapters and the head learn. Which parameters require a gradient when `trained` is "
            "made?",
            "What `classifier` had before stays as it was, but for its head: biases and the norm, too.",
            "The optimizer of `classifier` keeps two numbers for each number of the adapters and the head, and none "
            "for others.",
        ),
        *_judged(
            "matrices",
            "In `matrices` the adapters alone learn: the losses are those of a run in which every other parameter is "
            "frozen.",
            "Nothing that `matrices` had before may move. Which of its parameters have one dimension?",
            "The optimizer of `matrices` keeps states for the adapters alone.",
        ),
        *_judged(
            "largest",
            "`largest` must have the losses that it has now: Adam, one adapter, at the layer whose weight has the "
            "larger gradient.",
            "The base of `largest` does not move now, and must not.",
            "The optimizer of `largest` keeps states for weights that are frozen. Adam passes over a parameter whose "
            "gradient is None, not over one whose gradient is full of zeros.",
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
        "by the losses, by the factors, by what": ("classifier_learns", "matrices_base", "largest_learns"),
        "which may be a quarter above ours": ("classifier_states", "matrices_states", "largest_states"),
        "any spelling of a cure is right": ("classifier_learns", "matrices_learns", "largest_learns"),
        "the adapters and the head train, and nothing else": ("classifier_learns", "classifier_base"),
        "the adapters train, and nothing else, the head included": ("matrices_learns", "matrices_base"),
        "the one adapter trains, by Adam": ("largest_learns", "largest_base", UP, DOWN),
    },
    seconds=10.0,
)
