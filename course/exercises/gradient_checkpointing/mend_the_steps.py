"""`mend_the_steps()`: find the wrong line in each of two short training programs with checkpoints, and mend it.

A mended program is judged by its losses and by its bytes on secret numbers, so that any line and any spelling of a cure
is right. Its text is code of the student's, and is executed here, where the answer itself is. Numbers are in float64,
whose roundings stay far below the tolerance of float32 that the losses are compared with.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.lessons.experiments import checkpoint_runs, programs
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import Tree

MORE = 1.25  # times our bytes: a cure may keep a mask in a wider dtype, but not in float64


def cases(rng: torch.Generator) -> list[Case]:
    """Both programs on their own numbers."""

    def drawn(name: str, steps: int) -> dict[str, Tree]:
        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        seed = integer(rng, 0, 2**31)
        data: dict[str, Tree] = {"w": numbers(8, 8), "x": numbers(steps, 16, 8), "y": numbers(steps, 16, 8)}
        return {"program": name, **data, "lr": 0.5, "keep": 0.6, "seed": seed}

    return [Case(name=name, inputs=drawn(name, 5)) for name in checkpoint_runs.PROGRAMS]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it, in float64 whatever the case's dtype is."""
    given: dict[str, Any] = {key: each.double() if isinstance(each, Tensor) else each for key, each in inputs.items()}
    name = given.pop("program")
    program = checkpoint_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    log = checkpoint_runs.run(name, program, **given)
    numbers = {"losses": torch.tensor(log.losses), "means": torch.tensor(log.means)}
    return observe({name: {**numbers, "peaks": torch.tensor(log.peaks), "drawn": log.drawn}})


def _as_few_bytes(name: str, inputs: Inputs, got: Values, expected: Values) -> str | None:
    peaks, ours = got[f"{name}/peaks"], expected[f"{name}/peaks"]
    if isinstance(peaks, Tensor) and isinstance(ours, Tensor) and bool((peaks <= MORE * ours).all()):
        return None
    return f"bytes at the highest of each step: {peaks}, where {ours} are enough"


def _judged(name: str, numbers: str, bytes_: str) -> tuple[Property, Property]:
    return (
        Property(
            f"{name}_losses",
            numbers,
            points=2,
            roundings=256,
            keys=(f"{name}/losses", f"{name}/means"),
            cases=(name,),
        ),
        Property(
            f"{name}_bytes",
            bytes_,
            points=2,
            holds=partial(_as_few_bytes, name),
            cases=(name,),
            needs=(f"{name}_losses",),
        ),
    )


EXERCISE = Exercise(
    id="gradient_checkpointing.mend_the_steps",
    cases=cases,
    probe=probe,
    properties=(
        *_judged(
            "masked",
            "`masked` must have the losses of its plain run: every layer draws one mask from `draw`, and the second "
            "run of the layer uses that one again. A checkpoint restores the state of torch's own generator only.",
            "The layers of `masked` must stay checkpointed: what a layer computes is not kept, and a mask is kept as "
            "bool, one byte for each number.",
        ),
        *_judged(
            "watched",
            "`watched` must have the losses and the means that it has now: only its memory is at fault.",
            "The bytes of `watched` may not grow from step to step. Which line puts something into a list, and what "
            "hangs on it?",
        ),
    ),
    hints=(
        "In which of the two do the losses differ from the plain run's, and from which step on? In which do the bytes "
        "grow?",
        "A first loss that is right, and a second that is not: what went wrong in the backward between them? What does "
        "the second run of a layer draw? A tensor in a list keeps its graph as long as the list lives.",
        "Draw the mask once, before the checkpoint is called, and let the layer hold it (a lambda's default value is "
        "computed where the lambda is made). Put a Python number into the list.",
    ),
    promises={
        'for "masked" and "watched" the number': ("masked_losses", "watched_bytes"),
        "Its indentation is kept, and may be left out": ("masked_losses", "watched_bytes"),
        "by the losses and means of the program with your line in it": ("masked_losses", "watched_losses"),
        "Masks still come from `draw`": ("masked_losses",),
        "Bytes may be a quarter above ours": ("masked_bytes", "watched_bytes"),
        "bytes alive at the highest": ("masked_bytes", "watched_bytes"),
        "any spelling of a cure is right": ("masked_losses", "watched_bytes"),
    },
    seconds=10.0,
)
