"""`choose_reduction(layers, cluster, caps)`: a size of buckets and an algorithm for a cluster and a network.

Any choice is judged by the time of its step, so every one that is good enough is right. Questions are drawn until a
rule of thumb loses in each: always one algorithm, always the largest or the smallest buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs

ALGORITHMS = ("ring", "tree", "two levels")
TREE, RING, LEVELS = (f"the {name} is best" for name in ("tree", "ring", "hierarchy"))
SMALL, LARGE, MIDDLE = "small buckets are best", "one bucket is best", "a size in between is best"
NODE, SINGLE = "one node", "one rank in each node"
QUESTIONS = 4  # in each case
LOSES = 1.25  # times the best: what a rule of thumb takes
GOOD, BEST = 1.2, 1.02
Question = dict[str, Any]
Times = dict[tuple[int, str], float]  # of a step, by cap and algorithm


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks about several clusters, in all of which another answer would lose."""

    def case(name: str, kind: Callable[[torch.Generator], Question], fits: Callable[[Question, Times], bool]) -> Case:
        found: list[Any] = []
        while len(found) < QUESTIONS:
            question = kind(rng)
            if fits(question, times(question)):
                found.append(question)
        return Case(name=name, inputs={"questions": found})

    def algorithm(name: str) -> Callable[[Question, Times], bool]:
        def fits(question: Question, took: Times) -> bool:
            best = {each: min(took[cap, each] for cap in question["caps"]) for each in ALGORITHMS}
            return all(best[each] > LOSES * best[name] for each in ALGORITHMS if each != name)

        return fits

    def size(*places: int) -> Callable[[Question, Times], bool]:
        """The best cap is at one of these places in rising order, and the first and last, if they are others, lose."""

        def fits(question: Question, took: Times) -> bool:
            best = [min(took[cap, each] for each in ALGORITHMS) for cap in sorted(question["caps"])]
            ends = {0, len(best) - 1} - {*places}
            return best.index(min(best)) in places and all(best[end] > LOSES * min(best) for end in ends)

        return fits

    return [
        case(TREE, _far_apart, algorithm("tree")),
        case(RING, _even, algorithm("ring")),
        case(LEVELS, _faster_nodes, algorithm("two levels")),
        case(SMALL, _slow_links, size(0)),
        case(LARGE, _far_apart, size(4)),
        case(MIDDLE, _fast_nodes, size(1, 2, 3)),
        case(NODE, lambda rng: _question(rng, (1, 2), (2, 9), (8, 20), 10.0, 1e-5, 1e6), size(0, 1, 2, 3)),
        case(SINGLE, lambda rng: _question(rng, (3, 40), (1, 2), (8, 20), 0.1, 2e-5, 2e6), size(0, 1, 2, 3)),
    ]


def _far_apart(rng: torch.Generator) -> Question:
    """Many nodes and small gradients: latencies take the time."""
    return _question(rng, (20, 70), (2, 9), (10, 40), 10.0, 5e-5, 2e4)


def _even(rng: torch.Generator) -> Question:
    """Links inside a node are hardly faster than those between nodes."""
    return _question(rng, (3, 9), (2, 9), (10, 14), 1.5, 1e-6, 2e7)


def _fast_nodes(rng: torch.Generator) -> Question:
    """Links inside a node are much faster."""
    return _question(rng, (3, 9), (4, 9), (10, 30), 30.0, 2e-5, 1e6)


def _faster_nodes(rng: torch.Generator) -> Question:
    """Links inside a node are faster, and not for nothing: whole gradients over them would lose."""
    return _question(rng, (3, 9), (7, 10), (10, 30), 4.0, 2e-5, 1e6)


def _slow_links(rng: torch.Generator) -> Question:
    """Few ranks and large gradients: bytes take the time."""
    return _question(rng, (2, 4), (2, 5), (8, 14), 10.0, 1e-6, 5e6)


def _question(
    rng: torch.Generator,
    nodes: tuple[int, int],
    per_node: tuple[int, int],
    share: tuple[int, int],
    faster: float,
    latency: float,
    size: float,
) -> Question:
    """share: tenths of the best reduction's time that backward takes; faster: the links inside; size: of a layer."""

    def about(number: float) -> float:
        return number * integer(rng, 600, 1400) / 1000

    layers = integer(rng, 12, 25)
    sizes = [int(about(size)) for _ in range(layers)]
    bandwidth = about(1e10)
    question: Question = {
        "cluster": {
            "nodes": integer(rng, *nodes),
            "per_node": integer(rng, *per_node),
            "inside": [about(latency) / faster, about(faster * bandwidth)],
            "between": [about(latency), bandwidth],
        },
        "caps": [max(*sizes, sum(sizes) // part) for part in (8, 1, 4, 16, 2)],
    }
    whole = min(_reduction(question["cluster"], each, sum(sizes)) for each in ALGORITHMS)
    backward = whole * integer(rng, *share) / 10 / layers
    return {**question, "layers": [[about(backward), each] for each in sizes]}


def times(question: Question) -> Times:
    """Seconds of the step for every choice."""
    return {(cap, each): _step(question, cap, each) for cap in question["caps"] for each in ALGORITHMS}


def _step(question: Question, cap: int, algorithm: str) -> float:
    """Backward from layer to layer; at each that closes a bucket the reduction begins, or queues."""
    now = free = 0.0
    waiting = 0
    for (seconds, size), (_, following) in pairwise([*reversed(question["layers"]), [0.0, cap + 1]]):
        now, waiting = now + seconds, waiting + size
        if waiting + following > cap:
            free = max(now, free) + _reduction(question["cluster"], algorithm, waiting)
            waiting = 0
    return free


def _reduction(cluster: dict[str, Any], algorithm: str, size: int) -> float:
    """Seconds of one all-reduce: rounds of equal messages, each round as often as it says."""
    nodes, per_node = (cluster[name] for name in ("nodes", "per_node"))
    inside, between = cluster["inside"], cluster["between"]
    everybody = nodes * per_node
    rounds = {
        "ring": [(everybody - 1, size / everybody, between if nodes > 1 else inside)],
        "tree": [((nodes - 1).bit_length(), size, between), ((per_node - 1).bit_length(), size, inside)],
        "two levels": [(per_node - 1, size / per_node, inside), (nodes - 1, size / nodes, between)],
    }[algorithm]
    return float(sum(2 * count * (link[0] + part / link[1]) for count, part, link in rounds))


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
            cases=(TREE, RING, LEVELS, SMALL, LARGE, MIDDLE),
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
        "in no order, each at least as large as any layer": ("the_best",),
        "the pair whose step is shortest": ("the_best",),
        "less than 2% longer": ("the_best",),
        "at most `cap` bytes": ("a_good_size",),
        "one after another": ("the_best",),
        "each message is as slow as one between nodes; with a single node all are inside": ("a_good_algorithm", NODE),
        "one after another on each way": (TREE,),
        "share its link": (LEVELS,),
    },
)
