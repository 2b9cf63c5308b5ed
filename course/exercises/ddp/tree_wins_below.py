"""`tree_wins_below(ranks, latency, bandwidth)`: the size at which a ring and two trees take the same time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe
from course.performing.refusals import all_refused, refused

BETWEEN, JUMPS, NEVER, REFUSED_CASE = "between powers of two", "at powers of two", "never", "what is refused"
NONSENSE: dict[str, dict[str, float]] = {
    "no rank": {"ranks": 0},
    "fewer than no rank": {"ranks": -4},
    "a latency below 0": {"latency": -1e-9},
    "a bandwidth of 0": {"bandwidth": 0.0},
    "a bandwidth below 0": {"bandwidth": -1e9},
    "a bandwidth below 0, for 2 ranks": {"ranks": 2, "bandwidth": -1e9},
    "a latency below 0, for 1 rank": {"ranks": 1, "latency": -1e-9},
    "a bandwidth of 0, for 1 rank": {"ranks": 1, "bandwidth": 0.0},
    "a bandwidth of 0, for 3 ranks": {"ranks": 3, "bandwidth": 0.0},
    "a bandwidth below 0, without latency": {"latency": 0.0, "bandwidth": -1e9},
}


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks about several clusters: of so many ranks, on links that are drawn."""
    draw = partial(integer, rng)

    def cluster(ranks: int, changed: Mapping[str, float] | None = None) -> dict[str, Any]:
        drawn = {"ranks": ranks, "latency": draw(1, 100) / 1e6, "bandwidth": draw(1, 500) * 1e8}
        return {**drawn, **(changed or {})}

    counts: dict[str, list[int]] = {
        BETWEEN: [6, 7, 12, draw(20, 31), draw(70, 120), draw(600, 1_000), 50_000],
        JUMPS: [4, 5, 8, 9, 16, 17, 1_024, 1_025],
        NEVER: [1, 2, 3],
    }
    asked: dict[str, dict[str, Any]] = {
        name: {f"{count} ranks": cluster(count) for count in each} for name, each in counts.items()
    }
    asked[BETWEEN]["a slow link"] = cluster(draw(40, 60), {"latency": 2.0, "bandwidth": 0.5})
    asked[NEVER]["no latency"] = cluster(64, {"latency": 0.0})
    asked[REFUSED_CASE] = {words: cluster(8, each) for words, each in NONSENSE.items()}
    return [Case(name=name, inputs=each) for name, each in asked.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each cluster, by position or, where they are to be refused, by name."""
    if set(inputs) == set(NONSENSE):
        return observe({"refused": {**refused({words: partial(answer, **each) for words, each in inputs.items()})}})
    return observe({words: answer(each["ranks"], each["latency"], each["bandwidth"]) for words, each in inputs.items()})


EXERCISE = Exercise(
    id="ddp.tree_wins_below",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "where_they_cross",
            "Both times are straight lines in n. Write each as so many latencies and so many times n / bandwidth, and "
            "find the n at which they are equal. It is in bytes of the whole x.",
            points=3,
            cases=(BETWEEN,),
        ),
        Property(
            "at_powers_of_two",
            "The rounds of a tree jump behind a power of two: 2 for 4 ranks, 3 for 5 to 8, 4 for 9.",
            points=2,
            cases=(JUMPS,),
        ),
        Property(
            "never",
            "Where the trees save no latency, no x is small enough: the answer is 0. That is so for up to 3 ranks, and "
            "where there is no latency.",
            cases=(NEVER,),
            needs=("where_they_cross",),
        ),
        Property(
            "refusals",
            "Raise a ValueError where there is no rank, where the latency is negative, and where the bandwidth is not "
            "above 0, also where the answer would be 0 whatever they are.",
            holds=all_refused,
            cases=(REFUSED_CASE,),
            needs=("where_they_cross",),
        ),
    ),
    hints=(
        "An x of 0 bytes costs latencies only: how many on each way? What does one byte more cost on each?",
        "Of the ring's time, 2 (P - 1) parts are latencies and 2 (P - 1) / P are n / bandwidth. Do the same for the "
        "trees, with c = ceil(log2 P), and compare.",
        "The trees save P - 1 - c latencies in each direction, and take c - (P - 1) / P times n / bandwidth more. At "
        "which n is the one as much as the other? For one rank both are 0: return 0.0.",
    ),
    promises={
        "latency + m / bandwidth seconds": ("where_they_cross",),
        "2 ceil(log2 P) messages of n bytes": ("where_they_cross", "at_powers_of_two"),
        "2 (P - 1) messages of n / P bytes": ("where_they_cross",),
        "P, a whole number, at least 1": (BETWEEN, JUMPS, NEVER),
        "seconds, at least 0": ("never",),
        "bytes a second, above 0": (BETWEEN,),
        "every x of fewer bytes": ("where_they_cross", "at_powers_of_two"),
        "0.0 where they take less time for none": ("never",),
        "to a few roundings of float64": ("where_they_cross",),
        "fewer than 1 rank": ("refusals",),
        "a negative latency": ("refusals",),
        "a bandwidth of 0 or below": ("refusals",),
    },
)
