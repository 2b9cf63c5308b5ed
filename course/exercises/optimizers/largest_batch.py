"""`largest_batch(memory, wanted, clock)`: what fits, and which split of a global batch takes the least time.

A choice is judged by its time: of equals any is right. Each case is drawn until a rule of thumb loses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from course.performing.compare import as_numbers
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs
from course.performing.refusals import all_refused, refused

Numbers = dict[str, int]
Rule = Callable[[int, int, Numbers], float]
REFUSED_CASE = "what is refused"
ON_A_LARGE_DEVICE, LARGE = "a large device", 40  # times as much room, as large a wave and a global batch
FEW, NEAR = 256, 0.9  # there the fastest sizes are larger than a few, and not near to the largest
SMALL = ("a small global batch", "a global batch between two multiples")  # both fastest in one micro-batch


def cases(rng: torch.Generator) -> list[Case]:
    """One for each rule of thumb; small global batches; the last byte; too little memory; a device with room for
    thousands of examples, where neither a few small sizes nor the largest ones have the fastest.
    """
    draw = partial(integer, rng)

    def job(examples: int = 0, spare: int = 0, times: int = 1) -> dict[str, Any]:
        """Room for so many multiples and `spare` bytes; or for examples that are no multiple, and a part of one.

        times  of the usual room, wave and global batch
        """
        multiple, numbers, example = 4 * draw(1, 3), draw(10**6, 10**7), draw(10**5, 10**6)
        each = {"param": 2 * draw(1, 3), "grad": 2 * draw(1, 3), "state": 4 * draw(1, 4)}
        room = example * multiple * (examples or times * draw(9, 16)) + (spare if examples else -1)
        memory = {"numbers": numbers, **each, "example": example, "multiple": multiple}
        clock = {"start": draw(20, 200), "wave": times * draw(12, 40), "seconds": draw(50, 300)}
        memory["budget"], largest = numbers * sum(each.values()) + room, room // example // multiple * multiple
        return {"memory": memory, "wanted": times * draw(150, 500), "clock": clock, "largest": largest}

    def where_slower(rule: Rule) -> dict[str, Any]:
        while True:
            drawn = job()
            multiple = drawn["memory"]["multiple"]
            rest = drawn["wanted"], {**drawn["clock"], "multiple": multiple}
            sizes = range(multiple, drawn["largest"] + 1, multiple)
            least = min(rule(size, *rest) for size in sizes)
            chosen = [step_time(size, *rest) for size in sizes if rule(size, *rest) == least]
            if min(chosen) > min(step_time(size, *rest) for size in sizes):
                return drawn

    def on_a_large_device() -> dict[str, Any]:
        while True:
            drawn = job(times=LARGE)
            multiple, largest = drawn["memory"]["multiple"], drawn["largest"]
            sizes = range(multiple, largest + 1, multiple)
            took = [step_time(size, drawn["wanted"], drawn["clock"]) for size in sizes]
            least = min(took)
            fastest = [size for size, time in zip(sizes, took, strict=True) if time == least]
            if fastest[0] > FEW and fastest[-1] < NEAR * largest:
                return drawn

    few, several = job(1, -1), job()
    drawn = {
        **{f"not {words}": where_slower(rule) for words, rule in RULES.items()},
        SMALL[0]: {**job(), "wanted": 3},
        ON_A_LARGE_DEVICE: on_a_large_device(),
        SMALL[1]: {**several, "wanted": 5 * several["memory"]["multiple"] - 1},
        "full to the last byte": job(12),
        "one byte too few": job(2, -1),
        REFUSED_CASE: {**few, "budgets": {"a byte too few": few["memory"]["budget"], "less than the model": 9}},
    }
    return [Case(name=name, inputs=inputs) for name, inputs in drawn.items()]


def step_time(size: int, wanted: int, clock: Numbers) -> int:
    """Time for `wanted` examples in micro-batches of `size`, one after the other; the last may be smaller."""
    time = 0
    for first in range(0, wanted, size):
        waves = range(first, min(first + size, wanted), clock["wave"])
        time += clock["start"] + len(waves) * clock["seconds"]
    return time


RULES: dict[str, Rule] = {  # what is made least by somebody who overlooks something
    "the largest": lambda size, wanted, clock: -size,
    "the fewest waves": lambda size, wanted, clock: step_time(size, wanted, {**clock, "start": 0}),
    "the fastest for an example": lambda size, wanted, clock: step_time(size, size, clock) / size,
    "as if all were full": lambda size, wanted, clock: -(-wanted // size) * step_time(size, size, clock),
    "the full ones": lambda size, wanted, clock: wanted // size * step_time(size, size, clock),
    "as if the last had no start": lambda size, wanted, clock: (
        step_time(size, wanted, clock) - bool(wanted % size) * clock["start"]
    ),
    "as if the last were a multiple": lambda size, wanted, clock: step_time(
        size, wanted + -wanted % clock["multiple"], clock
    ),
    "the fewest that take the least": lambda size, wanted, clock: (
        -(-wanted // size) * 10**9 + step_time(size, wanted, clock)
    ),
    "without a smaller last one": lambda size, wanted, clock: (
        math.inf if wanted % size else step_time(size, wanted, clock)
    ),
    "in full waves": lambda size, wanted, clock: math.inf if size % clock["wave"] else step_time(size, wanted, clock),
}
CHOICES = (*(f"not {words}" for words in RULES), ON_A_LARGE_DEVICE, *SMALL)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, or one for each budget that is to be refused."""
    memory, rest = inputs["memory"], (inputs["wanted"], inputs["clock"])
    if "budgets" in inputs:
        calls = {words: partial(answer, memory | {"budget": each}, *rest) for words, each in inputs["budgets"].items()}
        return observe({"refused": {**refused(calls)}})
    return observe(outputs(answer(memory, *rest), "largest", "size", "count"))


def _as_fast_as_the_best(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: a size that is allowed, and a step that takes no longer than the reference's."""
    size, multiple, job = _chosen(got), inputs["memory"]["multiple"], (inputs["wanted"], inputs["clock"])
    if size not in range(multiple, inputs["largest"] + 1, multiple):
        return f"a size of {got['size']} is no multiple of {multiple} that fits"
    ours, least = step_time(size, *job), step_time(cast(int, expected["size"]), *job)
    return f"a size of {size} takes {ours}, where {least} is possible" if ours > least else None


def _chosen(got: Values) -> int:
    """The size as a number of Python's, whoever's it is; 0 where it is no whole number."""
    found = as_numbers(got["size"])
    size = found.item() if found is not None and found.numel() == 1 else 0
    return int(size) if isinstance(size, float) and size.is_integer() else 0


def _counted(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the number of micro-batches of the size that was chosen, whichever that is."""
    count = math.ceil(inputs["wanted"] / _chosen(got))
    return None if got["count"] == count else f"{got['count']} micro-batches of {got['size']} for {inputs['wanted']}"


EXERCISE = Exercise(
    id="optimizers.largest_batch",
    cases=cases,
    probe=probe,
    withheld=("largest",),
    properties=(
        Property(
            "largest_that_fits",
            "Take parameters, gradients and state off the budget first: they are there once, whatever the batch. The "
            "rest holds so many examples, and of these so many multiples.",
            points=2,
            keys=("largest",),
            cases=CHOICES,
        ),
        Property(
            "the_last_byte",
            "What needs exactly the budget fits, and what needs one byte more does not. One multiple is enough.",
            keys=("largest",),
            cases=("full to the last byte", "one byte too few"),
        ),
        Property(
            "as_fast_as_the_best",
            "Another size takes less time for the whole step. Work out the time of every allowed size, with its last, "
            "smaller micro-batch, and take the least.",
            points=3,
            holds=_as_fast_as_the_best,
            cases=CHOICES,
        ),
        Property(
            "number_of_micro_batches",
            "The last micro-batch, which may be smaller, counts too.",
            holds=_counted,
            cases=CHOICES,
            needs=("as_fast_as_the_best",),
        ),
        Property(
            "refusals",
            "Where not even one multiple fits beside the model there is no batch: raise a ValueError.",
            holds=all_refused,
            cases=(REFUSED_CASE,),
            needs=("largest_that_fits",),
        ),
    ),
    hints=(
        "Which of the bytes are there once, and which once for every example of a micro-batch?",
        "The time of a step is a sum over its micro-batches, the last one apart. Which sizes are allowed?",
        "A function from a size to the time of the whole step; // and % give the full micro-batches and the rest. Then "
        "the least of it over all multiples up to the largest: min has a key.",
    ),
    promises={
        "beside the other three": ("largest_that_fits",),
        "It may be filled to the last byte": ("the_last_byte",),
        "every begun wave": ("as_fast_as_the_best",),
        'It may be less than "multiple"': (SMALL[0],),
        "the largest size that fits": ("largest_that_fits", "one byte too few"),
        "one with which the step takes the least time": ("as_fast_as_the_best", SMALL[1]),
        "the number of its micro-batches": ("number_of_micro_batches",),
        "a budget in which no multiple fits": ("refusals",),
    },
)
