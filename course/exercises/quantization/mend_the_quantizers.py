"""`mend_the_quantizers()`: find the wrong line in each of three short programs that quantize, and mend it.

A mended program is judged by its outputs and by the bytes that it keeps, on secret numbers, so that any line and any
spelling of a cure is right. Its text is code of the student's, and is executed here, where the answer itself is.
Numbers are in float64, whatever the case's dtype is.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from course.lessons.experiments import programs, quantizer_runs
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

NAMES = ("layer", "channels", "calibrated")
MORE = 1.1  # times our bytes
LEAST = 4  # bytes of a row's step


def cases(rng: torch.Generator) -> list[Case]:
    """Each program on its own numbers."""
    return [Case(name=name, inputs={"program": name, **cast(Inputs, quantizer_runs.data(rng))}) for name in NAMES]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it."""
    given: Inputs = {key: each.double() if isinstance(each, Tensor) else each for key, each in inputs.items()}
    name = given.pop("program")
    program = quantizer_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    log = quantizer_runs.run(name, program, **given)
    return observe({name: {"outputs": torch.stack(log.outputs), "bytes": torch.tensor(float(log.bytes))}})


def _as_few_bytes(name: str, inputs: Inputs, got: Values, expected: Values) -> str | None:
    bytes_, ours = (_number(each[f"{name}/bytes"]) for each in (got, expected))
    if bytes_ < quantizer_runs.M * (quantizer_runs.N + LEAST):
        return f"{bytes_:,.0f} bytes are kept, fewer than codes and steps have"
    return None if bytes_ <= MORE * ours else f"{bytes_:,.0f} bytes are kept, where {ours:,.0f} are enough"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (Tensor, int, float)) else float("nan")


def _outputs(name: str, hint: str) -> Property:
    return Property(f"{name}_outputs", hint, points=2, roundings=256, keys=(f"{name}/outputs",), cases=(name,))


def _bytes(name: str, hint: str) -> Property:
    holds = partial(_as_few_bytes, name)
    return Property(f"{name}_bytes", hint, points=2, holds=holds, cases=(name,), needs=(f"{name}_outputs",))


EXERCISE = Exercise(
    id="quantization.mend_the_quantizers",
    cases=cases,
    probe=probe,
    properties=(
        _outputs("layer", "The outputs of `layer` are right as they are, and must stay so."),
        _bytes(
            "layer",
            "`layer` is to keep a byte for each weight and a step for each row, no more and no less. Who holds tensors "
            "besides codes and step, and where did they come from?",
        ),
        _outputs(
            "channels",
            "In `channels` each row of the weight has a step of its own. Over which dimension must the largest "
            "magnitude be taken?",
        ),
        _bytes("channels", "`channels` keeps codes in int8 and a step for each row, and no more."),
        _outputs(
            "calibrated",
            "`calibrated` clips what its calibration has seen. Which batches does its range know when the loop ends?",
        ),
    ),
    hints=(
        "For each program: which number in its row cannot be right, and what would it be if one tensor were as it is "
        "named?",
        "`layer`: list the tensors of `kept`. `channels`: print step.shape beside weight.shape. `calibrated`: print "
        "peak after each batch.",
        "A torch.nn.Linear brings a weight. Steps of rows are (m, 1). A largest number so far looks at what it was "
        "before.",
    ),
    promises={
        'for "layer", "channels" and "calibrated" the number': (
            "layer_outputs",
            "channels_outputs",
            "calibrated_outputs",
        ),
        "Its indentation is kept, and may be left out": ("layer_bytes", "channels_outputs", "calibrated_outputs"),
        "by the outputs, and by the bytes that are kept": ("layer_outputs", "layer_bytes", "channels_bytes"),
        "which may be a tenth above ours": ("layer_bytes", "channels_bytes"),
        "any spelling of a cure is right": ("layer_outputs", "channels_outputs", "calibrated_outputs"),
        "a step for each output channel are kept; outputs stay": ("layer_outputs", "layer_bytes"),
        "the codes of each output channel go up to 127": ("channels_outputs", "channels_bytes"),
        "the largest |number| of all calibration batches has the code 127": ("calibrated_outputs",),
    },
)
