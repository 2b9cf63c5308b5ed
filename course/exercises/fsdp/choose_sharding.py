"""`choose_sharding(layers, cluster, sizes)`: a stage, the size of units, and whether to prefetch.

Any choice is judged by the time of its step and by whether it fits, so every one that is good enough is right. In three
cases one stage is best by far. The last case has, for each slip of `sharding_slips.py`, a question in which whoever
makes it loses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.fsdp.sharding_questions import GOOD, STAGES, close_calls, stages
from course.exercises.fsdp.shardings import Choice, Question, best, choices, holds, times
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs

CLOSE = "close calls"
BEST = 1.02  # times the best


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks about several clusters."""
    drawn = {**stages(rng), CLOSE: close_calls(rng)}
    return [Case(name=name, inputs={"questions": cast(Any, found)}) for name, found in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The choice for each question; prefetch where it changes something."""
    found: dict[str, list[Any]] = {"stage": [], "size": [], "prefetch": []}
    for asked in inputs["questions"]:
        cluster = {**asked["cluster"], "link": tuple(asked["cluster"]["link"])}
        chosen = outputs(answer([*map(tuple, asked["layers"])], cluster, [*asked["sizes"]]), *found)
        for name, each in chosen.items():
            found[name].append(each)
        if chosen["stage"] in (1, 2):
            found["prefetch"][-1] = False
    return observe({**found})


def _all(says: Callable[[Question, Choice], str | None]) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: every choice is one, and `says` nothing."""

    def held(inputs: Inputs, got: Values, expected: Values) -> str | None:
        columns = (cast(Tensor, got[name]).tolist() for name in ("stage", "size", "prefetch"))
        for asked, stage, size, ahead in zip(inputs["questions"], *columns, strict=True):
            if (stage, size, bool(ahead)) not in choices(asked):
                return f"stage {stage} with {size} layers in a unit is no choice, where sizes are {asked['sizes']}"
            if sentence := says(asked, (stage, size, bool(ahead))):
                return sentence
        return None

    return held


def _words(choice: Choice) -> str:
    stage, size, ahead = choice
    return f"stage {stage}, {size} layer{'s' * (size > 1)} in a unit" + (
        f", {'with' if ahead else 'without'} prefetch" * (stage == 3)
    )


def _fits(question: Question, choice: Choice) -> str | None:
    held, limit = holds(question)[choice], question["cluster"]["limit"]
    return None if held <= limit else f"{_words(choice)}: {held:,.0f} bytes of {limit:,}"


def _within(slack: float) -> Callable[[Question, Choice], str | None]:
    def says(question: Question, choice: Choice) -> str | None:
        if sentence := _fits(question, choice):
            return sentence
        took = times(question)
        more = took[choice] / min(took.values()) - 1
        slow = f"{_words(choice)}: {more:.0%} more time than {_words(best(took))}"
        return slow if more > slack - 1 else None

    return says


EXERCISE = Exercise(
    id="fsdp.choose_sharding",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "a_good_choice",
            "A choice does not fit, or another one takes less time by a sixth and more. What does each stage hold, how "
            "often does it send, and what waits for it?",
            points=3,
            holds=_all(_within(GOOD)),
            cases=tuple(STAGES.values()),
        ),
        Property(
            "fits",
            "A choice needs more bytes than the limit. Count what is there from step to step, and the full gradients "
            "and parameters of the largest unit beside it.",
            points=2,
            holds=_all(_fits),
            needs=("a_good_choice",),
        ),
        Property(
            "the_best",
            "A choice takes 2% more time than the best one that fits. There are few: work out the time of the step for "
            "each.",
            points=4,
            holds=_all(_within(BEST)),
        ),
    ),
    hints=(
        "How many choices are there, and which two numbers do you need of each?",
        "Write one function for the bytes of a choice and one for the seconds of a micro-batch. A loop over the units, "
        "forward and back, needs three times: when the unit begins, when it ends, and when the last reduce-scatter is "
        "over.",
        "In stage 3 a unit begins at the later of two times: the one before has ended, and its gather is over. That "
        "began when the one before began (prefetch) or ended. Take the minimum of the seconds over all that fit.",
    ),
    promises={
        "(seconds, parameters) for each layer, layer 0 first": ("the_best",),
        "ranks P, at least 2": ("the_best",),
        "micro-batches of a step, at least 1": ("a_good_choice",),
        "bytes that a rank may hold, enough for some choice": ("fits",),
        "in no order": ("the_best",),
        "the last may have fewer": ("a_good_choice",),
        "the triple whose step is shortest among those that fit": ("the_best", "fits"),
        "less than 2% longer": ("the_best",),
        "Per parameter 2 bytes": ("fits",),
        "Besides, of the largest unit": ("fits",),
        "P - 1 messages, one after another": (CLOSE,),
        "begins when the unit before begins": (CLOSE,),
        "and the reduce-scatter before it": (CLOSE,),
        "in the last micro-batch alone": (CLOSE,),
        "when all is over": (CLOSE,),
    },
)
