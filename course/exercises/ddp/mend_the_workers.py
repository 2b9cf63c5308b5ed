"""`mend_the_workers()`: find the wrong line in each of three short programs for several workers, and mend it.

A mended program is judged by the weights of all ranks on secret numbers, and by its time on the virtual clock, so that
any line and any spelling of a cure is right. Its text is code of the student's, and is executed on the ranks, where the
answer itself is. Numbers are in float64, so that no step hangs on a rounding.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from course.lessons.experiments import programs, worker_runs
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.schedules import same_seconds
from course.tree import Tree

STOPS = ("rank 0 is ready first", "the last of 4 is ready first", "ready before the first step")
BRANCHES = (
    "one rank takes the other branch",
    "4 ranks, three branches",
    "a branch that nobody takes",
    "small gradients",
)
WAITS = ("6 layers", "4 ranks, 5 layers")
SLACK = 1.1  # times our seconds


def cases(rng: torch.Generator) -> list[Case]:
    """Each program where its fault shows on the first, on the last or on some rank."""

    def draw(*shape: int) -> Tensor:
        return normal(rng, *shape, dtype=torch.float64)

    def stops(fars: list[float], enough: float) -> list[dict[str, Tree]]:
        """fars: of each rank's y from what any weight can give."""
        w, parts = draw(4), []
        start = w + (1.3 + 0.4 * torch.rand((), generator=rng, dtype=torch.float64)) * draw(4).sign()
        for far in fars:
            # Orthogonal columns: each step takes the same share of the loss, down to far**2.
            columns = torch.linalg.qr(draw(12, 5)).Q * 12**0.5
            x, rest = columns[:, :4].contiguous(), columns[:, 4]
            parts.append({"w": start, "x": x, "y": x @ w + far * rest, "lr": 0.05, "enough": enough})
        return parts

    def branches(taken: list[list[int]], count: int) -> list[dict[str, Tree]]:
        weights, steps = draw(count, 4), len(taken[0])
        shared: dict[str, Tree] = {"weights": weights, "lr": 0.1}
        return [{**shared, "xs": draw(steps, 6, 4), "ys": draw(steps, 6), "taken": list(each)} for each in taken]

    def waits(ranks: int, layers: int) -> list[dict[str, Tree]]:
        weights = draw(layers, 64)
        return [{"weights": weights, "targets": draw(2, layers, 64), "lr": 0.1} for _ in range(ranks)]

    def small(parts: list[dict[str, Tree]]) -> list[dict[str, Tree]]:
        """Gradients that begin with a 0; they add up to 0, then none is above 0, then none below. All are about 1e-9:
        `allclose` takes what is below 1e-8 for 0.
        """
        signs = torch.tensor([[0, 1, -1, 0], [0, 1, 1, 0], [0, -1, -1, 0]], dtype=torch.float64)
        given = [(part, cast(Tensor, part["xs"])[..., :1].abs(), cast(Tensor, part["ys"])) for part in parts]
        return [{**part, "xs": 1e-10 * x * signs[:, None], "ys": torch.full_like(y, 10)} for part, x, y in given]

    other = [[0, 0, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]]
    three = [[integer(rng, 0, 3) for _ in range(6)] for _ in range(3)] + [[0, 1, 2, 0, 1, 2]]
    drawn = {
        ("stops", STOPS[0]): stops([0.1, 0.6, 0.5], 0.7),
        ("stops", STOPS[1]): stops([0.7, 0.6, 0.6, 0.1], 0.6),
        ("stops", STOPS[2]): stops([0.1, 0.2], 1e6),
        ("branches", BRANCHES[0]): branches(other, 2),
        ("branches", BRANCHES[1]): branches(three, 3),
        ("branches", BRANCHES[2]): branches([[0, 0, 2], [2, 0, 0]], 3),
        ("waits", WAITS[0]): waits(3, 6),
        ("waits", WAITS[1]): waits(4, 5),
        ("branches", BRANCHES[3]): small(branches([[0, 1, 1], [1, 1, 1]], 2)),
    }
    return [
        Case(name=name, inputs={"program": program, "parts": list(parts)}) for (program, name), parts in drawn.items()
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank the program's name, and its part."""
    return [{"program": inputs["program"], "given": part} for part in inputs["parts"]]


def probe(answer: Answer, comm: Any, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it, in float64 whatever the case's dtype is."""
    name = inputs["program"]
    given = {key: each.double() if isinstance(each, Tensor) else each for key, each in inputs["given"].items()}
    program = worker_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    return observe({"weights": worker_runs.run(comm, name, program, **given)})


def _in_time(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether the run ends about when ours does, and all that takes time has been done."""
    took, ours = float(got["makespan"]), float(expected["makespan"])  # type: ignore[arg-type]
    if not same_seconds(got, expected):
        return "the gradients are not computed as often as they must be"
    return None if took <= SLACK * ours else f"{took * 1e6:.0f} microseconds, where {ours * 1e6:.0f} are enough"


EXERCISE = Exercise(
    id="ddp.mend_the_workers",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather", "broadcast", "barrier"),
    properties=(
        Property(
            "stops_mended",
            "All ranks of `stops` must leave the loop in the same step: the first one in which the mean of their "
            "losses is below `enough`. Who must not be asked alone?",
            points=3,
            cases=STOPS,
        ),
        Property(
            "branches_mended",
            "All ranks of `branches` must have equal weights after every step, each weight moved by the mean of all "
            "ranks' gradients. Which rank does not move a weight, and which name decides it?",
            points=3,
            cases=BRANCHES,
        ),
        Property(
            "waits_right",
            "`waits` must have the weights that it has now: only its time is at fault. What is begun must be over "
            "before its gradient is used.",
            cases=WAITS,
        ),
        Property(
            "waits_in_time",
            "In `waits` an all-reduce can travel while the next gradient is computed. Which line waits for one that "
            "has only just begun?",
            points=2,
            evidence="ledger",
            holds=_in_time,
            beside=("*/weights",),
            cases=WAITS,
            needs=("waits_right",),
        ),
    ),
    hints=(
        "For each line ask: can what stands here be another value on another rank? And what does that value decide?",
        "In `stops` and in `branches` a question is put to a number that no all-reduce has touched. In `waits` find "
        "out for each wait how long ago its all-reduce was begun.",
        "Ask for the mean in `stops`, and in `branches` look at the gradient after the all-reduce. In `waits` wait for "
        "the all-reduce before the last one, or for none inside of the loop.",
    ),
    promises={
        'for "stops", "branches" and "waits" the number': ("stops_mended", "branches_mended", "waits_in_time"),
        "Its indentation is kept, and may be left out": ("stops_mended", "branches_mended", "waits_in_time"),
        "by the weights of all ranks": ("stops_mended", "branches_mended", "waits_right"),
        "as soon as the mean of the ranks' losses is below `enough`": ("stops_mended",),
        "by the mean of all ranks' gradients": ("branches_mended",),
        "The weights are those that it has now": ("waits_right",),
        "may be a tenth above ours": ("waits_in_time",),
        "any spelling of a cure is right": ("stops_mended", "branches_mended", "waits_in_time"),
    },
)
