"""`first_overflow(amaxes, init_scale, growth_interval)`: which step a loss scaler skips first.

All numbers are float32 numbers and all scales powers of two, so that no product has a rounding of its own: only that to
float16 decides. A case holds several runs; each was built so that another way to count gives another step.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from course.performing.compare import describe, measure
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

BELOW, TIE = 65_520 - 2.0**-8, 65_520.0  # the largest float32 number that float16 rounds to 65,504, and the next


def cases(rng: torch.Generator) -> list[Case]:
    """Runs of gradients that are far below the limit but for a place; and where that limit is."""
    draw = partial(integer, rng)

    def run(scale: float, interval: int, steps: int, peaks: dict[int, float]) -> dict[str, Any]:
        """A peak is what the scaled gradient of a step comes to, if all steps before it are good ones."""
        return {
            "amaxes": [
                peaks.get(good + 1, draw(100, 30_000)) / (scale * 2.0 ** (good // interval)) for good in range(steps)
            ],
            "init_scale": scale,
            "growth_interval": interval,
        }

    def limit(peak: float) -> dict[str, Any]:
        steps, at = draw(7, 10), draw(2, 6)
        return run(2.0 ** draw(8, 16), 20, steps, {at: peak, steps: 2.0**18})

    def constant(interval: int, doublings: int) -> dict[str, Any]:
        """The same gradient in all steps, until the scale has doubled so many times."""
        scale = 2.0 ** draw(4, 12)
        amax = draw(40_000, 55_000) / (scale * 2.0 ** (doublings - 1))
        return {"amaxes": [amax] * (interval * (doublings + 2)), "init_scale": scale, "growth_interval": interval}

    steady, fine = constant(draw(3, 6), 1), run(2.0**10, draw(2, 5), 12, {})
    last = run(2.0 ** draw(8, 12), 100, 9, {9: 2.0**18})
    runs: dict[str, list[dict[str, Any]]] = {
        "before any growth": [
            run(2.0 ** draw(8, 16), 100, 9, {draw(3, 8): 2.0**17}),
            {"amaxes": [1.0, 1.0], "init_scale": 2.0**16, "growth_interval": 2000},
            run(2.0**-3, 50, 9, {1: 20_000.0, draw(3, 8): 2.0**17}),
        ],
        "where float16 ends": [limit(peak) for peak in (65_504.0, 65_512.0, BELOW, TIE, 65_535.0, 2.0**16)],
        "growth": [
            steady,
            {**steady, "amaxes": list(steady["amaxes"]), "init_scale": steady["init_scale"] / 2},  # nothing is kept
            constant(draw(7, 10), 2),
            constant(draw(2, 4), 5),
        ],
        "in the step of a growth": [
            run(2.0**9, 4, 12, {4: 40_000.0, 9: 2.0**17}),  # too much for a scale that grew a step early
            run(2.0**9, 4, 12, {5: 2.0**16, 9: 2.0**17}),  # not too much for one that grows a step late
            run(2.0**9, 4, 12, {8: 40_000.0, 9: 65_600.0}),
        ],
        "in the first or the last step": [last, run(2.0**12, 100, 5, {1: 2.0**16, 5: 2.0**20})],
        "growth after each step": [
            constant(1, draw(3, 7)),
            run(2.0**-6, 1, 9, {draw(4, 8): 2.0**16}),
            run(2.0**60, 1, 9, {draw(4, 8): 2.0**16}),  # no size ends the growth
        ],
        "zeros before": [
            {"amaxes": [0.0] * draw(20, 30) + [2.0**4] * 3, "init_scale": 2.0**3, "growth_interval": 2},
            {"amaxes": [0.0] * 3 + [1.0] * 80, "init_scale": 1.0, "growth_interval": 5},
        ],
        "none": [fine, limit(60_000.0), {"amaxes": [], "init_scale": 2.0**16, "growth_interval": 1}, constant(3, 1)],
    }
    runs["none"][1]["amaxes"].pop()  # the only large one
    return [Case(name=name, inputs={"runs": list(each)}) for name, each in runs.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each run."""
    steps = [answer(run["amaxes"], run["init_scale"], run["growth_interval"]) for run in inputs["runs"]]
    return observe({"step": {str(at): step for at, step in enumerate(steps)}})


def _same_steps(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that each run gives the reference's step; else the first that does not, with what decides there."""
    for at, run in enumerate(inputs["runs"]):
        came, wanted = got[f"step/{at}"], expected[f"step/{at}"]
        if not measure(came, wanted, torch.float64, roundings=0).held:
            amaxes = run["amaxes"]
            steps = sorted({step for step in (came, wanted) if isinstance(step, int) and 0 < step <= len(amaxes)})
            given = [
                f"init_scale 2^{math.frexp(run['init_scale'])[1] - 1}",
                f"growth_interval {run['growth_interval']}",
            ]
            given += [f"amaxes[{step - 1}] = {amaxes[step - 1]!r}" for step in steps]
            return f"{describe(came)}, not {describe(wanted)}, of {len(amaxes)} steps: {', '.join(given)}"
    return None


stated = partial(Property, holds=_same_steps)

EXERCISE = Exercise(
    id="mixed_precision.first_overflow",
    cases=cases,
    probe=probe,
    properties=(
        stated(
            "before_any_growth",
            "The first step, counted from 1, whose largest gradient times the scale is inf in float16; without a "
            "growth all are multiplied by init_scale.",
            cases=("before any growth",),
        ),
        stated(
            "where_float16_ends",
            "The largest float16 number is 65,504, and the next would be 65,536. What lies between them is rounded: to "
            "65,504 below the middle, to inf from the middle on (a tie goes to the even neighbour, which is 65,536).",
            points=2,
            cases=("where float16 ends",),
            needs=("before_any_growth",),
        ),
        stated(
            "growth",
            "After growth_interval good steps in a row the scale doubles. As long as no step was skipped, all of "
            "them were good.",
            points=2,
            cases=("growth",),
        ),
        stated(
            "growth_acts_on_the_next_step",
            "Steps 1 to growth_interval have init_scale; the first with twice as much is the one after them.",
            points=2,
            cases=("in the step of a growth", "growth after each step"),
            needs=("growth",),
        ),
        stated(
            "first_and_last",
            "Any step may be the one, the first and the last too.",
            cases=("in the first or the last step",),
        ),
        stated(
            "zeros",
            "A step whose gradients are all 0 is a good step: it counts towards the next growth.",
            cases=("zeros before",),
            needs=("growth",),
        ),
        stated(
            "none",
            "Where no step overflows, return None; also where there are no steps.",
            cases=("none",),
            needs=("before_any_growth",),
        ),
    ),
    hints=(
        "How many good steps lie behind a step t, if none before it was skipped?",
        "The scale of step t is init_scale, doubled once for each growth_interval good steps behind it: // counts.",
        "Go through amaxes with enumerate; compare amax times the scale with the number from which float16 rounds to "
        "inf; return the first number of a step, counted from 1.",
    ),
    keeps=("runs",),
    promises={
        "finite float32 numbers, 0 or above": ("where_float16_ends", "zeros"),
        "It may be empty": ("none",),
        "is not changed": ("arguments_unchanged",),
        "a power of two, also below 1": ("before_any_growth",),
        "Growth doubles it; there are never so many steps that float32 could not hold it": (
            "growth",
            "growth_acts_on_the_next_step",
        ),
        "how many good steps in a row make it grow, at least 1": ("growth", "growth after each step"),
        "growth acts from the next step on": ("growth_acts_on_the_next_step",),
        "counted from 1": ("before_any_growth", "first_and_last"),
        "becomes inf when it is rounded to float16": ("where_float16_ends",),
        "None if no step's does": ("none",),
    },
)
