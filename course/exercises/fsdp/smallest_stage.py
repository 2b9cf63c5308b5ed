"""`smallest_stage(n, size, recipe, limit)`: the first stage of ZeRO that fits."""

from __future__ import annotations

from typing import Any

import torch

from course.exercises.fsdp.asked import STATES_FIRST, USUAL, Asked, by_name, laid_in
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

FITS, EXACTLY, NONE = "a stage fits", "it fits exactly", "none fits"


def cases(rng: torch.Generator) -> list[Case]:
    """Limits between the bytes of two stages, at those of one, and below those of stage 3."""
    ranks = integer(rng, 3, 9)
    shard = integer(rng, 1_000, 100_000)
    recipe = {"parameters": integer(rng, 2, 5), "gradients": integer(rng, 2, 5), "states": integer(rng, 8, 13)}
    n = ranks * (shard - 1) + 1  # so that the last shard is nearly all padding
    order = [recipe[each] for each in ("states", "gradients", "parameters")]
    needed = [shard * sum(order[:stage]) + n * sum(order[stage:]) for stage in range(4)]

    def asked(limit: int, ranks: int = ranks, n: int = n, **other: int) -> Asked:
        return {"n": n, "size": ranks, "recipe": {**recipe, **other}, "limit": limit, "order": USUAL}

    one = n * sum(order)
    between = [asked(each + shard // 2) for each in needed]
    exactly = [asked(each) for each in needed]
    just = [asked(each - 1) for each in needed[:3]]
    even = asked(shard * sum(order), n=ranks * shard)
    freed = asked(needed[1] - n * recipe["gradients"], gradients=0)
    boundaries = [*exactly, *just, even, freed, asked(one, 1), asked(0, n=0)]
    drawn = {
        FITS: [*between, asked(10 * needed[0]), asked(one + 1, 1)],
        EXACTLY: [each | {"order": STATES_FIRST} for each in boundaries],
        NONE: [asked(needed[3] - 1), asked(0), asked(one - 1, 1)],
    }
    return [Case(name=name, inputs={**by_name(questions)}) for name, questions in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question."""

    def ask(n: int, size: int, recipe: dict[str, int], limit: int, order: list[str]) -> Any:
        return answer(n, size, laid_in(order, recipe), limit)

    return observe({label: ask(**each) for label, each in inputs.items()})


EXERCISE = Exercise(
    id="fsdp.smallest_stage",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "the_first_that_fits",
            "Go through the stages from 0, and take the first whose bytes are at most the limit: what is not needed "
            "is not sharded.",
            points=2,
            cases=(FITS,),
        ),
        Property(
            "exactly",
            "As many bytes as the limit fit. One byte more does not. So the bytes must be exact, of shards of whole "
            "elements, and of a recipe in any order.",
            cases=(EXACTLY,),
        ),
        Property(
            "none_fits",
            "Where not even stage 3 fits, return None.",
            cases=(NONE,),
            needs=("the_first_that_fits",),
        ),
    ),
    hints=(
        "In which order do you look at the stages?",
        "The bytes of a stage are the exercise before. Where do you stop, and what is left if you never do?",
        "A loop over range(4) that returns the first stage whose bytes are <= limit; after it, None.",
    ),
    promises={
        "as in `zero_bytes`": (EXACTLY,),
        "at least 0": (EXACTLY,),
        "at least 1": (FITS, EXACTLY, NONE),
        "at most `limit`": ("exactly",),
        "0 to 3": ("the_first_that_fits",),
        "None if not even stage 3 fits": ("none_fits",),
    },
)
