"""`most_sent(ranks)`: how many times the bytes of x the busiest rank sends, around a ring and by two trees."""

from __future__ import annotations

from functools import partial

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs
from course.performing.refusals import all_refused, refused

BETWEEN, JUMPS, ONE, REFUSED_CASE = "between powers of two", "at powers of two", "one rank", "what is refused"
NONSENSE = {"no rank": 0, "fewer than no rank": -3}


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks about several numbers of ranks."""
    draw = partial(integer, rng)
    asked = {
        BETWEEN: [3, 6, 7, draw(10, 16), draw(20, 31), draw(70, 120), draw(600, 1_000), 50_000],
        JUMPS: [2, 4, 5, 8, 9, 16, 17, 1_024, 1_025],
        ONE: [1],
    }
    plain = [Case(name=name, inputs={f"{count} ranks": count for count in each}) for name, each in asked.items()]
    return [*plain, Case(name=REFUSED_CASE, inputs={**NONSENSE})]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each number of ranks."""
    if set(inputs) == set(NONSENSE):
        return observe({"refused": {**refused({words: partial(answer, each) for words, each in inputs.items()})}})
    return observe({words: outputs(answer(each), "ring", "trees") for words, each in inputs.items()})


EXERCISE = Exercise(
    id="ddp.most_sent",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "ring",
            "Every rank sends as much as every other. Count the messages of one rank in both turns, and which part of "
            "x is in each.",
            points=2,
            keys=("*/ring",),
            cases=(BETWEEN, JUMPS),
        ),
        Property(
            "trees",
            "Look for the rank that sends most, on both ways together: in the tree of 8 ranks, how many does the root "
            "tell? Does it send anything on the other way?",
            points=2,
            keys=("*/trees",),
            cases=(BETWEEN, JUMPS),
        ),
        Property("one_rank", "A single rank sends nothing, either way.", cases=(ONE,), needs=("ring", "trees")),
        Property(
            "refusals",
            "Raise a ValueError where there is no rank.",
            holds=all_refused,
            cases=(REFUSED_CASE,),
            needs=("ring",),
        ),
    ),
    hints=(
        "Four ranks: write down what rank 2 sends in each step of your ring, in quarters of x.",
        "Each turn of the ring has P - 1 steps. In the tree a rank that is told in an early round tells others in all "
        "that follow; the root tells in every round.",
        "Multiply the messages of one rank in both turns by the size of a chunk, 1 / P of x. Of the trees it is the "
        "root: it sends nothing on the way up, and one x in each of ceil(log2 P) rounds on the way down.",
    ),
    promises={
        "P, a whole number, at least 1": (BETWEEN, JUMPS, ONE),
        "a reduce-scatter and an all-gather": ("ring",),
        "to rank 0 and back": ("trees",),
        "(ring, trees)": ("ring", "trees"),
        "fewer than 1 rank": ("refusals",),
    },
)
