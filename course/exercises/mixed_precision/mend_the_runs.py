"""`mend_the_runs()`: find the wrong line in each of three short float16 training programs, and mend it.

A mended program is judged by its scales, losses and weights on secret numbers, so that any line and any spelling of a
cure is right. Its text is code of the student's, and is executed here, where the answer itself is.

Gradients are twice a distance of at most 0.7, and one seldom of 8 times as much, so that scaled by a power of two they
are clearly below the largest float16, or clearly above it. Two are far larger: of one the norm is beyond float16 and no
number is, and of the other the sums are inf - inf.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.lessons.experiments import half_runs, programs
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

CLIPPED = ("every step is clipped", "the first steps are clipped", "no step is clipped", "none, then a huge one")
GROWING = ("an outlier between two doublings", "a scale that is too large", "a scale that grows too large", "nan")
CACHED = ("one batch again and again", "another batch in each step", "steps below a rounding of float16")
FEW = 8  # roundings of float16, the dtype of x: processors add up products in half precision in different ways


def cases(rng: torch.Generator) -> list[Case]:
    """Each program where its fault shows, and where a cure that goes too far does."""

    def data(
        steps: int, factors: dict[int, float] | None = None, *, one: bool = True, coarse: bool = False
    ) -> dict[str, Any]:
        """Batches whose gradient at the start is about 1.3 in one place, times a factor in the steps named.

        A batch of factor 0 fits exactly the weights at the start, where these are `coarse`.
        """
        start = (1.2 + 0.6 * torch.rand(3, generator=rng)) * (2 * torch.randint(0, 2, (3,), generator=rng) - 1)
        start = (start * 64).round() / 64 if coarse else start
        far = torch.tensor([0.65, 0.45, 0.3]) * (1 + 0.05 * torch.rand(steps, 3, generator=rng))
        signs = 2 * torch.randint(0, 2, (steps, 3), generator=rng) - 1
        distances = (far[:1] * signs[:1]).expand(steps, 3).clone() if one else far * signs
        for step, factor in (factors or {}).items():
            distances[step] *= factor
        x, y = half_runs.batches(start, distances.tolist())
        return {"w": start, "x": x.half(), "y": y}

    draw = partial(integer, rng)

    scale = 2.0 ** draw(6, 9)
    interval = draw(4, 6)
    shared = {"program": "clipped", "lr": 0.1}
    always, at_first, never, huge = CLIPPED
    drawn: dict[str, dict[str, Any]] = {
        always: {**shared, **data(8), "scale": scale, "max_norm": 0.2},
        at_first: {**shared, **data(8), "scale": 4.0, "max_norm": 1.2},  # small: one division more or less is seen
        never: {**shared, **data(8), "scale": scale, "max_norm": 500.0},
        huge: {**shared, **data(2, {0: 0.0, 1: 84_000.0}, coarse=True), "scale": 0.5, "max_norm": 1.2},
    }
    outlier, large, grows, nan = GROWING
    shared = {"program": "growing", "lr": 0.005}
    drawn |= {
        outlier: {**shared, **data(14, {2: 8.0, interval + 4: 8.0}), "scale": 2.0**14, "interval": interval},
        large: {**shared, **data(12), "scale": 2.0**18, "interval": 3},
        grows: {**shared, **data(16), "scale": 2.0**13, "interval": 3},
        nan: {**shared, **data(6, {1: 512.0}), "scale": 2.0**14, "interval": 3},
    }
    repeated, others, small = CACHED
    shared = {"program": "cached", "scale": scale}
    drawn |= {
        repeated: {**shared, **data(8), "lr": 0.1},
        others: {**shared, **data(8, one=False), "lr": 0.1},
        small: {**shared, **data(60), "lr": 2e-4},
    }
    return [Case(name=name, inputs=inputs) for name, inputs in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it, in the dtypes of the lesson whatever the case's are."""
    given: Inputs = {key: each.float() if isinstance(each, Tensor) else each for key, each in inputs.items()}
    name = given.pop("program")
    program = half_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    log = half_runs.run(name, program, **given)
    return observe({"weights": log.weights, "scale": torch.tensor(log.scale), "loss": torch.tensor(log.loss)})


EXERCISE = Exercise(
    id="mixed_precision.mend_the_runs",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "clipped_mended",
            "`clipped` must step by the true gradient, made no longer than max_norm, and as long as it is where it is "
            "shorter. Say for each line whether g is still multiplied by the scale there.",
            points=2,
            roundings=FEW,
            cases=CLIPPED,
        ),
        Property(
            "growing_mended",
            "`growing` must double its scale after `interval` good steps in a row, and halve it after each skipped "
            "one. Count the good steps between two changes of the scale, first after a skipped step.",
            points=2,
            roundings=FEW,
            cases=GROWING,
        ),
        Property(
            "cached_mended",
            "Each step of `cached` must use the weights as they are then. Which weights does the half precision cast "
            "hold in the second step, and in the third?",
            points=2,
            roundings=FEW,
            cases=CACHED,
        ),
    ),
    hints=(
        "In each log find two numbers that cannot be: what should they be, and which name in the program holds them?",
        "A norm that is the same in all steps was put there by something that the gradients do not change. A scale "
        "that doubles too soon was counted wrongly. A loss that is equal to the last digit saw equal weights.",
        "In the first, the limit is compared with a gradient that is 1,024 times too long. In the second, what happens "
        "to `good` in a step that is skipped? In the third, when is the cast made, and when is it thrown away?",
    ),
    promises={
        'for "clipped", "growing" and "cached" the number': ("clipped_mended", "growing_mended", "cached_mended"),
        "Its indentation is kept, and may be left out": ("clipped_mended", "growing_mended", "cached_mended"),
        "does what it should on any numbers": ("clipped_mended", "growing_mended", "cached_mended"),
        "any spelling of it is right": ("clipped_mended", "growing_mended", "cached_mended"),
        "gradients shorter than max_norm": ("no step is clipped",),
        "skipped steps anywhere": GROWING,
    },
    seconds=2.0,
)
