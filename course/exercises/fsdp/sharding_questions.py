"""Questions of `choose_sharding`: clusters, layers and sizes of units, drawn until each slip has chosen badly.

one stage is best by far    each of `SHOWN` loses much, and those of `HIDDEN` little
close calls                 each slip loses a little, and no two of different kinds have always chosen alike
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from course.errors import DeclarationError
from course.exercises.fsdp.sharding_slips import KINDS, SLIPS, UNFIT, UNIT
from course.exercises.fsdp.shardings import Choice, Question, Times, alike, best, holds, misled, times
from course.performing.draws import integer

STAGES = {stage: f"stage {stage} is best" for stage in (1, 2, 3)}
LOSES = 1.25  # times the best: what the other stages take
GOOD = 1.2
CLOSELY = 1.025  # times the best: what every slip takes in one of the close calls
TRIES = 5000  # questions; most draws need a few hundred
HIDDEN = {  # where one stage is best by far, these lose less than GOOD
    *UNIT,
    *KINDS["latencies_of_a_turn"],
    *KINDS["bytes_of_a_turn"],
    *KINDS["gathers_too_early"],
    *KINDS["gathers_left_out"],
    *KINDS["backward_as_forward"],
    *KINDS["too_little_hidden"],
    *KINDS["too_much_hidden"],
    *KINDS["micro_batches_that_reduce"],
    *KINDS["gathers_after_the_step"],
    *KINDS["rest_left_out"],
    "the lowest stage",
    "always prefetch",
    "without the first size",
    "without the last size",
    "without the largest size",
} - {
    "no latency",
    "latencies alone",
    "a part of each",
    "prefetch for all",
    "nothing hidden",
    "stage 2 gathers for each",
    "all gather for each",
}
SHOWN = {*SLIPS} - HIDDEN
KIND = {name: kind for kind, slips in KINDS.items() for name in slips}


def stages(rng: torch.Generator) -> dict[str, list[Question]]:
    """Questions in which one stage is best by far, until each slip that is not hidden has lost as much."""
    left, drawn = {*SHOWN}, {name: list[Question]() for name in STAGES.values()}
    for question, took in _questions(rng, left):
        stage = best(took)[0]
        others = min((seconds for each, seconds in took.items() if each[0] != stage), default=math.inf)
        if others < LOSES * min(took.values()):
            continue
        caught = {name for name in left if misled(question, took, SLIPS[name])[1] > GOOD}
        if caught and all(misled(question, took, SLIPS[name])[1] <= GOOD for name in HIDDEN):
            drawn[STAGES[stage]].append(question)
            left -= caught
    return drawn


def close_calls(rng: torch.Generator) -> list[Question]:
    """Those are kept that mislead by a slip that none before has, and then those that tell kinds of slips apart."""
    left, found = {*SLIPS}, list[Question]()
    for question, took in _questions(rng, left):
        if caught := {name for name in left if _loses(question, took, name)}:
            found.append(question)
            left -= caught
    groups = [[*SLIPS]]
    for question in found:
        groups = _apart(question, groups)
    for question, _ in _questions(rng, groups):
        if (finer := _apart(question, groups)) != groups:
            found.append(question)
            groups[:] = finer
    return found


def _questions(rng: torch.Generator, left: set[str] | list[list[str]]) -> Iterator[tuple[Question, Times]]:
    """Drawn while something is left. Raises DeclarationError where too many have been."""
    for _ in range(TRIES):
        if not left:
            return
        question = _question(rng)
        yield question, times(question)
    if left:
        raise DeclarationError(f"{TRIES} questions of choose_sharding must show each slip, but not {left}: draw others")


def _apart(question: Question, groups: list[list[str]]) -> list[list[str]]:
    """Names of slips that have chosen the same so far, and do so here, where they are of several kinds."""
    found: dict[tuple[int, Choice], list[str]] = {}
    for number, group in enumerate(groups):
        for name in group:
            found.setdefault((number, alike(question, SLIPS[name])[0]), []).append(name)
    return [group for group in found.values() if len({KIND[name] for name in group}) > 1]


def _loses(question: Question, took: Times, name: str) -> bool:
    lost, _ = misled(question, took, SLIPS[name])
    return lost == math.inf if name in UNFIT else lost > CLOSELY


def _between(rng: torch.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(low * (high / low) ** (integer(rng, 0, 1001) / 1000))


def _question(rng: torch.Generator) -> Question:
    """Bytes, latencies and computing take about as long; the limit is a little above what some choice holds,
    and who counts too much finds one as well.
    """

    def about(number: float) -> float:
        return number * integer(rng, 300, 1700) / 1000

    ranks, seconds = integer(rng, 2, 13), about(1e-3)
    layers = [[about(seconds), int(about(1e7))] for _ in range(integer(rng, 8, 13))]
    link = [
        _between(rng, 1e-3, 10) * seconds / (ranks - 1),
        2e7 * (1 - 1 / ranks) / (_between(rng, 0.1, 10) * seconds),
    ]
    question: Question = {
        "layers": layers,
        "cluster": {"ranks": ranks, "link": link, "micro_batches": integer(rng, 1, 6), "limit": 0},
        "sizes": _sizes(rng, len(layers)),
    }
    held = [*holds(question).values()]
    some = held[integer(rng, 0, len(held))]
    over = [SLIPS[name] for name in (*KINDS["full_units_too_many"], "gradients of stage 2 whole")]
    for_all = max(min(holds(question, reading).values()) for reading in over)
    question["cluster"]["limit"] = math.ceil(max(1.01 * for_all, _between(rng, 1.01, 1.5) * some))
    return question


def _sizes(rng: torch.Generator, layers: int) -> list[int]:
    """Four that differ in how many units there are: equal numbers would take equally long, but for rounding, where
    somebody counts no more than messages and bytes. The smallest is neither the first nor the last: without it nothing
    may fit.
    """
    by_number: dict[int, list[int]] = {}
    for size in range(1, 9):
        by_number.setdefault(math.ceil(layers / size), []).append(size)
    numbers = [*by_number.values()]
    some = [numbers[place] for place in torch.randperm(len(numbers), generator=rng).tolist()[:4]]
    smallest, *others = sorted(sizes[integer(rng, 0, len(sizes))] for sizes in some)
    first, *last = (others[place] for place in torch.randperm(3, generator=rng).tolist())
    return [first, smallest, *last] if integer(rng, 0, 2) else [first, last[0], smallest, last[1]]
