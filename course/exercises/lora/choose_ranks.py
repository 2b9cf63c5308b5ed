"""`choose_ranks(changes, budget)`: an adapter's rank for each matrix, under a budget of numbers.

Any ranks are judged by the loss that they leave, so all that are good enough are right. Questions are drawn until a
rule of thumb loses in them; which ranks are the best is the reference's to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

Question: TypeAlias = dict[str, Any]  # "changes": [{"shape", "values", "h"}], "budget"
Rule: TypeAlias = Callable[[dict[str, Any], int], float]  # how much the next direction of a matrix is wanted
ALIKE, SIZES, SENSITIVITIES = "equal shapes", "shapes that differ", "sensitivities that differ"
TIGHT, ENDS, SHORT = "a tight budget", "nothing fits, all fits", "a few numbers too few"
GOOD, BEST = 1.1, 1.01  # times the least loss
CLOSE = (
    1.04  # times the least loss: greedy ranks leave at most this in usual questions, and this at least in tight ones
)
LOSES = 1.15  # what a rule of thumb leaves where it is to lose


def gain(change: dict[str, Any], r: int) -> float:
    """How much less loss one more direction leaves."""
    return float(change["h"] * change["values"][r] ** 2)


RULES: dict[str, Rule] = {
    "by the number": lambda change, r: gain(change, r) / sum(change["shape"]),
    "sizes ignored": gain,
    "sensitivity ignored": lambda change, r: gain(change, r) / change["h"] / sum(change["shape"]),
    "not squared": lambda change, r: gain(change, r) / change["values"][r] / sum(change["shape"]),
    "sensitivity squared": lambda change, r: gain(change, r) * change["h"] / sum(change["shape"]),
    "by the product": lambda change, r: gain(change, r) / change["shape"][0] / change["shape"][1],
}


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions."""
    usual = _question(rng, 4, shapes=True, sensitivities=True)
    most = sum(len(each["values"]) * sum(each["shape"]) for each in usual["changes"])
    least = min(sum(each["shape"]) for each in usual["changes"])
    cheapest = next(each for each in usual["changes"] if sum(each["shape"]) == least)
    one = {"changes": [cheapest], "budget": 2 * least}
    tall, wide = (
        {"changes": [{"shape": shape, "values": [2.0, 1.0], "h": 1.0}], "budget": numbers}
        for shape, numbers in (([8, 2], 10), ([2, 8], 9))
    )
    drawn = {
        ALIKE: [*_misleading(rng)],
        SIZES: [
            each
            for rule in ("sizes ignored", "by the product", "not squared")
            for each in _misleading(rng, rule, shapes=True)
        ],
        SENSITIVITIES: [
            each
            for rule in ("sensitivity ignored", "sensitivity squared")
            for each in _misleading(rng, rule, sensitivities=True)
        ],
        TIGHT: [_where_greedy_loses(rng) for _ in range(3)],
        ENDS: [*({**usual, "budget": each} for each in (0, least - 1, most, most + least)), one, tall, wide],
        SHORT: [{**usual, "budget": most - 1}, {**one, "budget": 2 * least - 1}, {**usual, "budget": least}],
    }
    return [Case(name=name, inputs={"questions": cast(Any, found)}) for name, found in drawn.items()]


def _question(
    rng: torch.Generator, count: int, most: int = 8, *, shapes: bool = False, sensitivities: bool = False
) -> Question:
    """Singular values that fall by a power, each matrix's by its own."""

    def about(low: float, high: float) -> float:
        return round(float(low * (high / low) ** (integer(rng, 0, 1_001) / 1_000)), 4)

    changes: list[dict[str, Any]] = []
    for _ in range(count):
        short = integer(rng, 3, most) if shapes else most - 2
        long = integer(rng, short, 8 * short) if shapes else 2 * most + 1
        size, power = about(1.0, 8.0), about(0.2, 3.0)
        values = [round(size * k**-power * about(0.95, 1.05), 6) for k in range(1, short + 1)]
        long += -(short + long) % 3 if shapes else 0
        shape = [short, long] if integer(rng, 0, 2) else [long, short]
        h = about(0.2, 5.0) if sensitivities else 1.0
        changes.append({"shape": shape, "values": sorted(values, reverse=True), "h": h})
    total = sum(len(each["values"]) * sum(each["shape"]) for each in changes)
    unit = 3 if shapes else sum(changes[0]["shape"])  # of all prices: no sum of them is the budget, or one more
    return {"changes": changes, "budget": total * integer(rng, 20, 45) // 100 // unit * unit + 1}


def left(question: Question, ranks: list[int]) -> float:
    """The loss that these ranks leave."""
    parts = zip(question["changes"], ranks, strict=True)
    return math.fsum(each["h"] * sum(value**2 for value in each["values"][r:]) for each, r in parts)


def spent(question: Question, ranks: list[int]) -> int:
    """Numbers of all adapters."""
    return sum(r * sum(each["shape"]) for each, r in zip(question["changes"], ranks, strict=True))


def uniform(question: Question) -> list[int]:
    """The same r everywhere, as large as fits; no more than a matrix has directions."""
    changes, found = question["changes"], [0]
    for r in range(1, 1 + max(len(each["values"]) for each in changes)):
        ranks = [min(r, len(each["values"])) for each in changes]
        found = ranks if spent(question, ranks) <= question["budget"] else found
    return found if len(found) == len(changes) else found * len(changes)


def greedy(question: Question, rule: Rule, *, stops: bool = False) -> tuple[list[int], float]:
    """What is wanted most first; and a loss below which no ranks come, if the rule is by the number.

    stops  at the first direction that does not fit, and not only leaves it out
    """
    changes, ranks = question["changes"], [0] * len(question["changes"])
    bound, room, closed = 0.0, question["budget"], set[int]()
    while wanted := [(rule(each, ranks[at]), at) for at, each in enumerate(changes) if _open(at, each, ranks, closed)]:
        at = max(wanted)[1]
        if (price := sum(changes[at]["shape"])) > room:
            bound = bound or left(question, ranks) - gain(changes[at], ranks[at]) * room / price
            closed |= {*range(len(changes))} if stops else {at}
            continue
        ranks[at] += 1
        room -= price
    return ranks, bound or left(question, ranks)


def _open(at: int, change: dict[str, Any], ranks: list[int], closed: set[int]) -> bool:
    return at not in closed and ranks[at] < len(change["values"])


def _misleading(rng: torch.Generator, rule: str = "", **kind: bool) -> Iterator[Question]:
    """Two questions in which one r for all and this rule lose, and who goes by the number does not, even if he stops.

    Without sensitivities all rules are better than one r for all, which is judged there. Without a rule that loses.
    """
    found = 0
    while found < 2:
        question = _question(rng, 6, **kind)
        bound = greedy(question, RULES["by the number"])[1]
        leave = {name: left(question, greedy(question, each)[0]) for name, each in RULES.items()}
        stopped = left(question, greedy(question, RULES["by the number"], stops=True)[0])
        alike = left(question, uniform(question)) / 1.01
        better = kind.get("sensitivities") or max(leave.values()) <= alike
        if better and stopped <= CLOSE * bound and leave.get(rule, alike) >= LOSES * bound:
            found += 1
            yield question


def _where_greedy_loses(rng: torch.Generator) -> Question:
    """Few matrices, so that all ranks can be tried; the best need exactly the budget, and lose with a number less."""
    while True:
        question = _question(rng, 3, 6, shapes=True, sensitivities=True)
        tried = product(*(range(len(each["values"]) + 1) for each in question["changes"]))
        every = sorted((left(question, [*ranks]), spent(question, [*ranks])) for ranks in tried)
        least, question["budget"] = next(pair for pair in every if pair[1] <= question["budget"])
        next_best = next(loss for loss, size in every if size < question["budget"])
        by_number = RULES["by the number"]
        lost, stopped = (left(question, greedy(question, by_number, stops=stops)[0]) for stops in (False, True))
        if min(lost, next_best) >= CLOSE * least and stopped >= LOSES * lost:
            return question


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The ranks for each question."""
    found = []
    for asked in inputs["questions"]:
        changes = [(tuple(each["shape"]), [*each["values"]], each["h"]) for each in asked["changes"]]
        found.append([*answer(changes, asked["budget"])])
    return observe({"ranks": cast(Any, found)})


def _of_each(
    says: Callable[[Question, list[int], list[int]], str | None],
) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: all are ranks, and `says` nothing about any question; it gets the reference's."""

    def held(inputs: Inputs, got: Values, expected: Values) -> str | None:
        for number, question in enumerate(inputs["questions"]):
            ranks, ours = (_numbers(values.get(f"ranks/{number}")) for values in (got, expected))
            if sentence := _no_ranks(question, ranks) or says(question, ranks, ours):
                return sentence
        return None

    return held


def _numbers(found: object) -> list[Any]:
    return found.tolist() if isinstance(found, Tensor) and found.dim() == 1 else []


def _no_ranks(question: Question, ranks: list[Any]) -> str | None:
    lengths = [len(each["values"]) for each in question["changes"]]
    if len(ranks) != len(lengths):
        return f"{len(ranks)} ranks for {len(lengths)} matrices"
    for r, most in zip(ranks, lengths, strict=True):
        if r != int(r) or not 0 <= r <= most:
            return f"r = {r} for a matrix that has {most} directions"
    return None


def _fits(question: Question, ranks: list[int], ours: list[int]) -> str | None:
    size, budget = spent(question, ranks), question["budget"]
    return f"ranks {ranks} have {size} numbers of {budget}" if size > budget else None


def _better(question: Question, ranks: list[int], ours: list[int]) -> str | None:
    loss, alike = left(question, ranks), left(question, uniform(question))
    worse = f"ranks {ranks} leave a loss of {loss:.4g}, and one r for all {alike:.4g}"
    return _fits(question, ranks, ours) or (None if loss < alike else worse)


def _within(slack: float) -> Callable[[Question, list[int], list[int]], str | None]:
    def says(question: Question, ranks: list[int], ours: list[int]) -> str | None:
        loss, least = left(question, ranks), left(question, ours)
        worse = f"ranks {ranks} leave a loss of {loss:.4g}, and {ours} one of {least:.4g}"
        return _fits(question, ranks, ours) or (None if loss <= slack * least else worse)

    return says


SHOWN = (ALIKE, SIZES, SENSITIVITIES)

EXERCISE = Exercise(
    id="lora.choose_ranks",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "better_than_one_r",
            "One r for all matrices leaves less than your ranks, or yours do not fit. Some changes lie in a few "
            "directions, others in many: look at the singular values.",
            points=3,
            holds=_of_each(_better),
            cases=(ALIKE, SIZES),
        ),
        Property(
            "good",
            "Other ranks with as few numbers leave a loss that is a tenth smaller. What does one direction more take "
            "off the loss, and what does it cost in this matrix?",
            points=2,
            holds=_of_each(_within(GOOD)),
            cases=SHOWN,
            needs=("better_than_one_r",),
        ),
        Property(
            "the_best",
            "Other ranks with as few numbers leave a loss that is 1% smaller. The best direction for its price may "
            "leave room that nothing fills: compare sums of whole matrices.",
            points=2,
            holds=_of_each(_within(BEST)),
            cases=(*SHOWN, TIGHT),
            needs=("better_than_one_r",),
        ),
        Property(
            "ends",
            "With a budget below the cheapest direction all ranks are 0. Where all directions fit, exactly or with "
            "room to spare, take all of them, and no r above the shorter length.",
            holds=_of_each(_within(BEST)),
            cases=(ENDS,),
        ),
        Property(
            "within_the_budget",
            "Your adapters have more numbers than the budget, perhaps a single one. Each costs r (m + n).",
            holds=_of_each(_fits),
            needs=("better_than_one_r",),
        ),
    ),
    hints=(
        "Which matrix gains most by one direction more? Which pays most for it?",
        "Start with 0 everywhere. Give a direction to the matrix whose h sigma^2 is largest for each of its m + n "
        "numbers, again and again, and pass over what does not fit. That is good, and not always the best.",
        "For the best: go from matrix to matrix, and keep for each number of numbers spent the least loss so far, with "
        "the ranks that gave it. Each r of the next matrix leads from one such sum to another.",
    ),
    promises={
        "largest first": ("good",),
        "a number above 0": (SENSITIVITIES,),
        "which may be 0": ("ends",),
        "at most `budget` numbers together": ("within_the_budget",),
        "from 0 to the smaller of m and n": ("ends",),
        "at most 1% more than the least possible": ("the_best",),
        "less than the best single r": ("better_than_one_r",),
        "within a tenth": ("good",),
    },
)
