"""`longest_chain(slots, sweeps)`: how many layers can go backward with little memory and few evaluations.

tests/test_longest_chain.py searches all schedules of short chains, so that the rules are those of the numbers here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

FEW = 8
MOST = 200  # of slots, and of sweeps


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks for several pairs of slots and sweeps; short chains are the same each time."""
    draw = partial(integer, rng)

    few = [(slots, sweeps) for slots in range(2, 5) for sweeps in range(2, 5)]
    drawn = {
        "one slot": [(1, 0), (1, 1), (1, 2), (1, draw(5, FEW)), (1, draw(180, MOST))],
        "one sweep or none": [(1, 1), (2, 1), (3, 1), (draw(5, FEW), 1), (draw(5, FEW), 0), (draw(180, MOST), 1)],
        "few slots and sweeps": [*few, (draw(5, FEW), draw(2, 5)), (draw(2, 5), draw(5, FEW))],
        "few of one, many of the other": [(4, MOST), (MOST, 4)],
        "many": [
            (draw(100, 150), draw(150, MOST)),
            (draw(150, MOST), draw(100, 150)),
            (MOST, MOST),
            (2, draw(100, MOST)),
        ],
    }
    return [
        Case(name=name, inputs={"asked": [list(pair) for pair in pairs], "exact": name == "many"})
        for name, pairs in drawn.items()
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each pair. Text has all digits, and tells an int from other numbers."""
    values: dict[str, Any] = {}
    for slots, sweeps in inputs["asked"]:
        layers = answer(slots, sweeps)
        values[f"{slots} slots, {sweeps} sweeps"] = repr(layers)[:300] if inputs["exact"] else layers
    return observe(values)


EXERCISE = Exercise(
    id="gradient_checkpointing.longest_chain",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "one_slot",
            "The one slot holds x_0, and every walk begins there. Layer 1 is evaluated in each walk but the last, "
            "which is for its own backward and needs none.",
            cases=("one slot",),
        ),
        Property(
            "one_sweep",
            "Every layer is evaluated once at most, so what backward needs must be in a slot, or in hand at the end of "
            "the walk. Without any evaluation there is x_0 alone, and one layer can go backward.",
            cases=("one sweep or none",),
        ),
        Property(
            "few",
            "Look at the first checkpoint that you put down after x_0. The layers behind it have one slot less, and "
            "all their sweeps. When they are done its slot is free again; the layers before it have used one sweep.",
            points=3,
            cases=("few slots and sweeps",),
        ),
        Property(
            "in_time",
            "Both go up to 200, which is included. With 4 slots and 200 sweeps, a recursion that works out the same "
            "pair again and again does not end in time: keep what you have found.",
            cases=("few of one, many of the other",),
        ),
        Property(
            "many",
            "The numbers are whole and have many digits: a float does not hold them, so do not divide with `/`. Return "
            "an int of Python's, and not a number of NumPy's or torch's.",
            cases=("many",),
        ),
    ),
    hints=(
        "Let the next checkpoint be x_k. How long may the part behind it be, and how long the part before it, given "
        "what each of them has left?",
        "Call the longest chain m(slots, sweeps). It is a sum of two others. What are m(1, sweeps) and m(slots, 0)?",
        "Fill a table, row by row, beginning with a row of ones (no slot besides the hand: one layer). Each number is "
        "the sum of the one before it and of the one above it. You know this triangle.",
    ),
    promises={
        "at least 1": ("one_slot",),
        "at least 0": ("one_slot", "one_sweep"),
        "up to 200": ("many",),
        "an int": ("many",),
        "exact": ("many",),
        "at most one second": ("in_time",),
    },
    seconds=1.0,
)
