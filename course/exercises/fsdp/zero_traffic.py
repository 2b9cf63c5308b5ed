"""`zero_traffic(n, size, stage, micro_batches, keeps_full)`: numbers that a rank sends in a step, by stage.

tests/test_zero_traffic.py makes these collectives on simulated ranks: the numbers are those that are counted there.
"""

from __future__ import annotations

import torch

from course.exercises.fsdp.asked import Asked, by_name
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

ONE, MANY, KEPT, UNEVEN, ONE_RANK = "one micro-batch", "several", "kept full", "sizes that do not divide", "one rank"


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks about several stages."""

    def asked(stage: int, ranks: int, n: int, often: int = 1, *, kept: bool = False) -> Asked:
        return {"n": n, "size": ranks, "stage": stage, "micro_batches": often, "keeps_full": kept}

    ranks, often = integer(rng, 5, 40), integer(rng, 3, 7)
    n = ranks * integer(rng, 1_000, 50_000)
    others = (n + 1, n - 1, ranks - 3, 0)
    two = 2 * integer(rng, 1_000, 50_000)
    drawn = {
        ONE: [asked(stage, count, size) for stage in range(4) for count, size in ((2, two), (ranks, n))],
        MANY: [asked(stage, ranks, n, count) for stage in range(4) for count in (2, often)],
        KEPT: [asked(stage, ranks, n, count, kept=True) for stage in range(4) for count in (1, often)],
        UNEVEN: [asked(stage, ranks, other, 2) for stage in range(4) for other in others],
        ONE_RANK: [asked(stage, 1, n, 2) for stage in range(4)],
    }
    return [Case(name=name, inputs={**by_name(questions)}) for name, questions in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question."""
    names = ("n", "size", "stage", "micro_batches", "keeps_full")
    return observe({label: answer(*(each[name] for name in names)) for label, each in inputs.items()})


EXERCISE = Exercise(
    id="fsdp.zero_traffic",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "one_micro_batch",
            "Count the collectives of one step: a reduce-scatter and an all-gather are P - 1 chunks each, an "
            "all-reduce is both. When must parameters be gathered, and when must gradients be added up?",
            points=3,
            cases=(ONE,),
        ),
        Property(
            "micro_batches",
            "Whoever can hold full gradients adds them up first, and sends once. Which stages can, and how often are "
            "parameters gathered?",
            points=2,
            cases=(MANY,),
            needs=("one_micro_batch",),
        ),
        Property(
            "kept_full",
            "What has not been freed after forward need not be gathered for backward of the same micro-batch; the next "
            "one gathers again. Stages 0 to 2 never free a parameter.",
            cases=(KEPT,),
        ),
        Property(
            "padding",
            "A chunk has n / P elements, rounded up, and one rank sends nothing.",
            points=2,
            cases=(UNEVEN, ONE_RANK),
            needs=("micro_batches",),
        ),
    ),
    hints=(
        "For each stage: what does a rank hold when the step begins, and what must it hold for a forward pass, for a "
        "backward pass, and for its part of the update?",
        "Everything that is sent is a multiple of (P - 1) chunks. How often, with m micro-batches: all-reduce counts "
        "2, the other two 1 each.",
        "Stages 0 and 1: 2, whatever m is. Stage 2: m reduce-scatters and an all-gather. Stage 3: for each micro-batch "
        "a reduce-scatter, and as many all-gathers as it has passes that find nothing there.",
    ),
    promises={
        "elements, at least 0": ("padding",),
        "at least 1": (ONE_RANK, "padding"),
        "0 to 3": ("one_micro_batch",),
        "at least 1, whose gradients are added up before the step": ("micro_batches",),
        "whether stage 3 keeps": ("kept_full",),
        "ceil(n / P) elements": ("padding",),
        "elements that one rank sends in a step": ("one_micro_batch", "micro_batches"),
    },
)
