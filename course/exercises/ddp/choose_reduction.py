"""`choose_reduction(layers, cluster, caps)`: a size of buckets and an algorithm for a cluster and a network.

Any choice is judged by the time of its step, so every one that is good enough is right. Questions are drawn until a
rule of thumb loses in each: always one algorithm, always the largest or the smallest buckets. The last case has, for
each slip of `reductions.py`, a question in which whoever makes it loses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from course.exercises.ddp import clusters
from course.exercises.ddp.reductions import ALGORITHMS, SLIPS, Question, Times, choices, misled, times
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs

TREE, RING, LEVELS = (f"the {name} is best" for name in ("tree", "ring", "hierarchy"))
SMALL, LARGE, MIDDLE = "small buckets are best", "one bucket is best", "a size in between is best"
NODE, SINGLE, CLOSE = "one node", "one rank in each node", "close calls"
QUESTIONS = 4  # in each case
LOSES = 1.25  # times the best: what a rule of thumb takes
GOOD, BEST = 1.2, 1.02
CLOSELY = 1.03  # times the best: what every slip takes in one of the close calls
Fits: TypeAlias = Callable[[Question, Times], bool]
Kind: TypeAlias = tuple[Callable[[torch.Generator], Question], Fits]


class Group(NamedTuple):
    """Cases of one property. hidden: slips that stay within `slack` there, and shown: that do not; the others always
    do, or never.
    """

    slack: float
    kinds: dict[str, Kind]
    hidden: tuple[str, ...]
    shown: tuple[str, ...]


def _algorithm(name: str) -> Fits:
    def fits(question: Question, took: Times) -> bool:
        best = {each: min(took[cap, each] for cap in question["caps"]) for each in ALGORITHMS}
        return all(best[each] > LOSES * best[name] for each in ALGORITHMS if each != name)

    return fits


def _size(*places: int) -> Fits:
    """The best cap is at one of these places in rising order, and the first and last, if they are others, lose."""

    def fits(question: Question, took: Times) -> bool:
        best = [min(took[cap, each] for each in ALGORITHMS) for cap in sorted(question["caps"])]
        ends = {0, len(best) - 1} - {*places}
        return best.index(min(best)) in places and all(best[end] > LOSES * min(best) for end in ends)

    return fits


def _but_the_first(fits: Fits) -> Fits:
    """And the first cap of the list loses, which is taken by whoever finds all alike."""

    def both(question: Question, took: Times) -> bool:
        first = min(took[question["caps"][0], each] for each in ALGORITHMS)
        return first > BEST * min(took.values()) and fits(question, took)

    return both


APART = {  # slips that take nearly as long as those of another kind
    "one way inside": ("inside what is left of all", *(name for name in SLIPS if name.startswith("a tree"))),
    **{
        f"the size for the {name}": ("the algorithm for all bytes", "the algorithm for the smallest")
        for name in ALGORITHMS
    },
}
CAPS = tuple(f"the {which} cap left out" for which in ("first", "last", "smallest", "largest"))
GROUPS = (
    Group(
        GOOD,
        {
            TREE: (clusters.far_apart, _algorithm("tree")),
            RING: (clusters.even, _algorithm("ring")),
            LEVELS: (clusters.faster_nodes, _algorithm("two levels")),
        },
        hidden=(
            *CAPS,
            "more than the cap",
            "less than the cap",
            "one turn of the ring",
            "whole parts between",
            "the tree ends in the nodes",
            "the algorithm for all bytes",
            "the algorithm for the smallest",
            "a tree too low",
            "the size for the tree",
        ),
        shown=(
            "the tree one way",
            "whole buckets inside",
            "one turn between",
            "latencies for each rank",
            "no queue",
            "the longer of both",
            "the last waits for all",
            "the size for the ring",
            "a link for each rank",
        ),
    ),
    Group(
        GOOD,
        {
            SMALL: (clusters.slow_links, _size(0)),
            LARGE: (clusters.far_apart, _size(4)),
            MIDDLE: (clusters.fast_nodes, _size(1, 2, 3)),
        },
        hidden=(
            *CAPS,
            "more than the cap",
            "less than the cap",
            "a link for each rank",
            "whole buckets inside",
            "whole parts between",
        ),
        shown=(
            "one turn of the ring",
            "the tree one way",
            "one turn between",
            "latencies for each rank",
            "the last waits for all",
            "the size for the ring",
        ),
    ),
    Group(
        BEST,
        {
            NODE: (clusters.one_node, _but_the_first(_size(0, 1, 2, 3))),
            SINGLE: (clusters.one_rank_each, _size(0, 1, 2, 3)),
        },
        hidden=(*CAPS, "layer 0 first", "a layer late", "the tree one way"),
        shown=(
            "one turn of the ring",
            "no gather inside",
            "one turn between",
            "the longer of both",
            "the size for the tree",
            "more than the cap",
            "the last waits for all",
        ),
    ),
)


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks about several clusters, in all of which another answer would lose."""
    drawn = {name: found for group in GROUPS for name, found in _group(rng, group).items()}
    drawn[CLOSE] = _close_calls(rng)
    return [Case(name=name, inputs={"questions": cast(Any, found)}) for name, found in drawn.items()]


def _group(rng: torch.Generator, group: Group) -> dict[str, list[Question]]:
    """Drawn until it shows what it must."""
    while True:
        drawn: dict[str, list[Question]] = {name: [] for name in group.kinds}
        left = {*group.shown}
        for name, (kind, fits) in group.kinds.items():
            while len(drawn[name]) < QUESTIONS:
                question = kind(rng)
                took = times(question)
                if not fits(question, took):
                    continue
                if all(misled(question, took, SLIPS[slip])[1] <= group.slack for slip in group.hidden):
                    drawn[name].append(question)
                    left -= {slip for slip in left if misled(question, took, SLIPS[slip])[0] > group.slack}
        if not left:
            return drawn


def _close_calls(rng: torch.Generator) -> list[Question]:
    """Questions of four kinds in turns. Those are kept that mislead by a slip that none before has, and those in which
    two slips of `APART` choose differently for the first time.
    """
    kinds = itertools.cycle((clusters.any_at_all, clusters.small, clusters.powers_of_two, clusters.few))
    left, found = {*SLIPS}, list[Question]()
    alike = {(name, other) for name, others in APART.items() for other in others}
    while left or alike:
        question = next(kinds)(rng)
        took = times(question)
        caught = {name for name in left if misled(question, took, SLIPS[name])[0] > CLOSELY}
        told = {pair for pair in alike if set.isdisjoint(*(choices(question, took, SLIPS[each]) for each in pair))}
        if caught or told:
            found.append(question)
            left -= caught
            alike -= told
    return found


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The choice for each question: a cap, and the number of an algorithm (-1: of none)."""
    caps: list[Any] = []
    chosen: list[Any] = []
    for asked in inputs["questions"]:
        links = {name: tuple(asked["cluster"][name]) for name in ("inside", "between")}
        layers = [(seconds, size) for seconds, size in asked["layers"]]
        found = outputs(answer(layers, {**asked["cluster"], **links}, [*asked["caps"]]), "cap", "algorithm")
        caps.append(found["cap"])
        chosen.append(ALGORITHMS.index(found["algorithm"]) if found["algorithm"] in ALGORITHMS else -1)
    return observe({"caps": caps, "algorithms": chosen})


def _within(slack: float) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: no step takes longer than the best by more than this."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        caps, chosen = (cast(Tensor, got[name]).tolist() for name in ("caps", "algorithms"))
        for asked, cap, number in zip(inputs["questions"], caps, chosen, strict=True):
            took = times(asked)
            name = ALGORITHMS[number] if number in range(len(ALGORITHMS)) else "an algorithm that there is not"
            if (cap, name) not in took:
                return f"{cap} and {name}, where caps are {asked['caps']}"
            best = min(took, key=lambda choice: took[choice])
            if took[cap, name] > slack * took[best]:
                more = took[cap, name] / took[best] - 1
                return f"{cap} bytes and {name} take {more:.0%} more time than {best[0]} bytes and {best[1]}"
        return None

    return holds


EXERCISE = Exercise(
    id="ddp.choose_reduction",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "a_good_algorithm",
            "Another choice takes less time by a sixth and more. What does each algorithm send, how often, and over "
            "which links? Latencies decide for small buckets and many ranks, bytes for large ones.",
            points=3,
            holds=_within(GOOD),
            cases=(TREE, RING, LEVELS),
        ),
        Property(
            "a_good_size",
            "Another choice takes less time by a sixth and more. Small buckets pay many latencies, large ones begin "
            "late; how much that matters depends on how long backward takes.",
            points=2,
            holds=_within(GOOD),
            cases=(SMALL, LARGE, MIDDLE),
        ),
        Property(
            "the_best",
            "A choice takes 2% more time than the best one. There are few: work out the time of the step for each.",
            points=3,
            holds=_within(BEST),
            cases=(TREE, RING, LEVELS, SMALL, LARGE, MIDDLE, CLOSE),
        ),
        Property(
            "ends",
            "With one node nothing goes between nodes, and with one rank in each nothing goes inside: no message, and "
            "no latency.",
            points=2,
            holds=_within(BEST),
            cases=(NODE, SINGLE),
        ),
    ),
    hints=(
        "For one bucket of n bytes: how many messages does each algorithm send one after another, of how many bytes, "
        "and over which links?",
        "There are a handful of caps and three algorithms. Which numbers do you need to compare two choices?",
        "Write a function for the seconds of one reduction, one for the sizes of the buckets and when they are "
        "complete, and queue the reductions as in the exercise before. Take the minimum over all pairs.",
    ),
    promises={
        "(seconds, bytes) for each layer, layer 0 first": ("a_good_size", "the_best"),
        "nodes of `per_node` ranks": (NODE, SINGLE, "a_good_algorithm"),
        "at least 1 each, and not both 1": (NODE, SINGLE),
        "in no order, each at least as large as any layer": (CLOSE,),
        "the pair whose step is shortest": ("the_best",),
        "less than 2% longer": ("the_best",),
        "at most `cap` bytes": ("a_good_size",),
        "one after another": ("the_best",),
        "each message is as slow as one between nodes; with a single node all are inside": ("a_good_algorithm", NODE),
        "one after another on each way": (TREE,),
        "share its link": (LEVELS,),
    },
)
