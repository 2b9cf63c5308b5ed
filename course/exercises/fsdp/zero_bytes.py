"""`zero_bytes(n, size, stage, recipe)`: bytes of the states on one rank, in the stages of ZeRO."""

from __future__ import annotations

from typing import Any

import torch

from course.exercises.fsdp.asked import STATES_FIRST, USUAL, Asked, by_name, laid_in
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

ADAM = {"parameters": 2, "gradients": 2, "states": 12}
STAGES = ("nothing sharded", "states sharded", "states and gradients sharded", "all three sharded")
PAPER, RECIPES, UNEVEN, ONE_RANK = "7.5 billion parameters", "other recipes", "sizes that do not divide", "one rank"


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions; other recipes than Adam's have their names in another order, too."""

    def asked(stage: int, ranks: int, n: int, recipe: dict[str, int] | None = None) -> Asked:
        order = STATES_FIRST if recipe else USUAL
        return {"n": n, "size": ranks, "stage": stage, "recipe": dict(recipe or ADAM), "order": order}

    def even(stage: int) -> list[Asked]:
        counts = (2, integer(rng, 3, 9), integer(rng, 20, 500))
        return [asked(stage, ranks, ranks * integer(rng, 1_000, 100_000)) for ranks in counts]

    def recipe() -> dict[str, int]:
        """Three different numbers, the states' neither the most nor the least, nor all of them 16."""
        least = integer(rng, 1, 4)
        return {"parameters": least + 7, "gradients": least, "states": least + integer(rng, 1, 6)}

    ranks = integer(rng, 5, 50)
    n = ranks * integer(rng, 500, 5_000)
    counts = (n + 1, n - 1, ranks - 2, 1, 0)
    in_float32 = {"parameters": 4, "gradients": 4, "states": 8}
    recipes = (in_float32, {**ADAM, "gradients": 0}, {**ADAM, "states": 0}, recipe())
    drawn: dict[str, list[Asked]] = {
        **{name: even(stage) for stage, name in enumerate(STAGES)},
        PAPER: [asked(stage, 64, 7_500_000_000) for stage in range(4)],
        RECIPES: [asked(stage, ranks, n, each) for stage in range(4) for each in recipes],
        UNEVEN: [asked(stage, ranks, count) for stage in range(4) for count in counts],
        ONE_RANK: [asked(stage, 1, n + 1) for stage in range(4)],
    }
    return [Case(name=name, inputs={**by_name(questions)}) for name, questions in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question."""

    def ask(n: int, size: int, stage: int, recipe: dict[str, int], order: list[str]) -> Any:
        return answer(n, size, stage, laid_in(order, recipe))

    return observe({label: ask(**each) for label, each in inputs.items()})


EXERCISE = Exercise(
    id="fsdp.zero_bytes",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "stages_0_and_1",
            "In stage 0 every rank holds all three; in stage 1 all parameters and gradients, and of the states its "
            "own shard only.",
            points=2,
            cases=(STAGES[0], STAGES[1]),
        ),
        Property(
            "stage_2",
            "Stage 2 shards the gradients, too, and the parameters not yet.",
            cases=(STAGES[2],),
        ),
        Property("stage_3", "Stage 3 shards all three.", cases=(STAGES[3],)),
        Property(
            "recipes",
            "Bytes per parameter stand in the recipe, one number for each of the three. None of them is always 2 or "
            "12, and 0 is allowed. Look them up by name: a dict may have its names in any order.",
            points=2,
            cases=(RECIPES,),
            needs=("stages_0_and_1", "stage_2", "stage_3"),
        ),
        Property(
            "padding",
            "A shard has as many parameters as n / size, rounded up: all shards are equally long, also where there are "
            "fewer parameters than ranks. What is not sharded is not padded.",
            points=2,
            cases=(UNEVEN, ONE_RANK),
            needs=("stages_0_and_1", "stage_2", "stage_3"),
        ),
        Property("the_papers_row", "120, 31.4, 16.6 and 1.9 GB, as whole numbers of bytes.", cases=(PAPER,)),
    ),
    hints=(
        "Of which of the three does a rank hold everything in this stage, and of which a shard?",
        "Two numbers of elements occur, n and that of a shard. Each of the three is one of them times its bytes.",
        "States take a shard from stage 1 on, gradients from 2, parameters from 3. Rounded up, n / size is "
        "-(-n // size).",
    ),
    promises={
        "at least 0": (UNEVEN,),
        "at least 1": (ONE_RANK,),
        "stage 1 shards the states, stage 2 the gradients too, stage 3 the parameters too": (
            "stages_0_and_1",
            "stage_2",
            "stage_3",
        ),
        '"parameters", "gradients" and "states"': ("recipes",),
        "whole numbers, which may be 0": ("recipes",),
        "ceil(n / size) elements": ("padding",),
        "bytes of all three on one rank": ("stages_0_and_1", "the_papers_row"),
    },
)
