"""`choose_bits(layers, budget)`: bits and group of each layer's weight, under a budget of bits.

Any plan is judged by what it leaves where the answer has not looked, so that all that are good enough are right. Layers
that are drawn have more tokens than the answer is given, and only what each plan leaves on those is kept. They differ
in what a bit is worth to them, and questions are drawn until one plan for all loses in each, and each rule of thumb in
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from course.lessons.experiments.bits_by_matrix import Plan, lost, price
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

Question: TypeAlias = dict[str, Any]  # "layers": [{"w", "x", "g", "errors"}], "budget"
BITS, SHORT = (2, 3, 4, 6, 8), 8
PLANS: tuple[Plan, ...] = tuple(product(BITS, (SHORT, 0)))
WORTHS, OUTLIERS, TAILS = "layers of all worths", "inputs that are always large", "weights with heavy tails"
ENDS, EXACT, ONE = "the cheapest and the dearest", "exactly the budget", "one layer"
GOOD, BEST = 1.25, 1.05  # times the error of the best plan for the calibration tokens
SEEN, UNSEEN = 192, 512  # tokens
LOSES = 1.15  # times the error of the best plan, where a rule of thumb or one plan for all is to lose
RIGHT, UNWEIGHTED, ABSOLUTE, ROOTS, RELATIVE, MEANS, CANCELLED, APART, OUTPUTS, DIAGONAL, NORMS, WIDE = (
    "squared changes of the loss",
    "squared errors of the outputs",
    "absolute changes",
    "roots of the means",
    "changes over what the outputs would change",
    "means over outputs",
    "means of the changes",
    "squares of each output's part",
    "mean squares of each output, and of its gradient",
    "squares of each weight's part",
    "products of norms",
    "a code more than there is",
)


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions."""
    mixed = _question(rng, 5, 4.0, worths=True, outliers=True, tails=True)
    prices = [_prices(each["w"]) for each in mixed["layers"]]
    least, most = (sum(pick(each.values()) for each in prices) for pick in (min, max))
    one, even = {"layers": mixed["layers"][:1]}, _question(rng, 1, 4.0, whole=True)
    dearest = {**even, "budget": _prices(even["layers"][0]["w"])[8, SHORT]}
    exact = sum(each[plan] for each, plan in zip(prices, [(3, SHORT), (4, 0), (6, 0), (4, SHORT), (8, 0)], strict=True))
    drawn = {
        WORTHS: _telling(rng, 2, UNWEIGHTED, ABSOLUTE, ROOTS, RELATIVE, MEANS, CANCELLED, WIDE, worths=True),
        OUTLIERS: _telling(rng, 3, APART, OUTPUTS, DIAGONAL, NORMS, outliers=True),
        TAILS: _telling(rng, 3, worths=True, tails=True),
        ENDS: [{**mixed, "budget": least}, {**mixed, "budget": most}, {**mixed, "budget": 2 * most}],
        EXACT: [{**mixed, "budget": exact}, {**mixed, "budget": exact - 1}, {**mixed, "budget": least + 1}],
        ONE: [
            *({**one, "budget": price} for price in (*sorted(prices[0].values()), max(prices[0].values()) - 1)),
            dearest,
        ],
    }
    return [Case(name=name, inputs={"questions": cast(Any, found)}) for name, found in drawn.items()]


def _question(
    rng: torch.Generator,
    count: int,
    bits: float,
    *,
    worths: bool = False,
    outliers: bool = False,
    tails: bool = False,
    whole: bool = False,
) -> Question:
    """Layers of all shapes; the budget is so many bits for each weight.

    worths    sizes of inputs, and of gradients, differ from layer to layer
    outliers  some inputs of half of the layers are ten times larger, where weights are small; all have means, as do
              gradients, so that what the outputs change adds up or cancels
    tails     half of the weights have a few entries that are far above the others, and a run of zeros
    whole     short groups divide each row; else none does
    """
    layers: list[dict[str, Any]] = []
    sizes, steepness = (
        [10 ** (1.6 * (at + 0.5) / count - 0.8) if worths else 1.0 for at in torch.randperm(count, generator=rng)]
        for _ in range(2)
    )
    for at in range(count):
        m, n = 4 * 2 ** ((integer(rng, 0, 2) + 2 * at) % 4) + integer(rng, 0, 4), integer(rng, 18, 40)
        n = SHORT * (n // SHORT) if whole else n + (n % SHORT == 0)
        w, x, g = normal(rng, m, n), normal(rng, SEEN + UNSEEN, n), normal(rng, SEEN + UNSEEN, m)
        if tails and at % 2:
            w *= 1 + 9 * (torch.rand(m, n, generator=rng) < 0.02)
            w[m // 2, :SHORT] = 0
        if outliers and at % 2:
            large = torch.randperm(n, generator=rng)[: n // 8]
            w[:, large] /= 4
            x += normal(rng, 1, n)
            g += normal(rng, 1, m)
            x[:, large] *= 10
        x *= sizes[at]
        g *= steepness[at]
        errors = [float(f"{_change(w, x[SEEN:], g[SEEN:], plan).square().mean():.6g}") for plan in PLANS]
        layers.append({"w": w, "x": x[:SEEN].clone(), "g": g[:SEEN].clone(), "errors": errors})
    return {"layers": layers, "budget": int(bits * sum(each["w"].numel() for each in layers))}


def _telling(rng: torch.Generator, count: int, *rules: str, **kind: bool) -> list[Question]:
    """So many questions, or more, in each of which one plan for all loses, and in one of which each of these rules."""
    found: list[Question] = []
    waiting = {*rules}
    while waiting or len(found) < count:
        question = _question(rng, 5, integer(rng, 36, 48) / 10, **kind)
        scores = [_scores(each["w"], each["x"], each["g"]) for each in question["layers"]]
        least = left(question, _least(question, scores, RIGHT))
        fooled = {rule for rule in waiting if left(question, _least(question, scores, rule)) >= LOSES * least}
        if alike(question) >= LOSES * least and (fooled or len(found) < count):
            found.append(question)
            waiting -= fooled
    return found


def _scores(w: Tensor, x: Tensor, g: Tensor) -> dict[str, list[float]]:
    """What each plan leaves of this layer, as it is judged and as rules of thumb have it."""
    right, wide = ([_change(w, x, g, plan, more) for plan in PLANS] for more in (0, 1))
    squared = [float(each.square().mean()) for each in right]
    moved = [x.double() @ lost(w, plan).T for plan in PLANS]
    fisher = g.double().square().T @ x.double().square() / len(x)
    outputs = float(((x.double() @ w.double().T) * g.double()).sum(1).square().mean())
    return {
        RIGHT: squared,
        UNWEIGHTED: [float(each.square().sum(1).mean()) for each in moved],
        ABSOLUTE: [float(each.abs().mean()) for each in right],
        ROOTS: [math.sqrt(each) for each in squared],
        RELATIVE: [each / outputs for each in squared],
        MEANS: [each / len(w) ** 2 for each in squared],
        CANCELLED: [abs(float(each.mean())) for each in right],
        APART: [float((g.double() * each).square().sum(1).mean()) for each in moved],
        OUTPUTS: [float(each.square().mean(0) @ g.double().square().mean(0)) for each in moved],
        DIAGONAL: [float((fisher * lost(w, plan).square()).sum()) for plan in PLANS],
        NORMS: [float((g.double().square().sum(1) * each.square().sum(1)).mean()) for each in moved],
        WIDE: [float(each.square().mean()) for each in wide],
    }


def _change(w: Tensor, x: Tensor, g: Tensor, plan: Plan, more: int = 0) -> Tensor:
    """g' (W - Q) x of each token, float64."""
    return ((x.double() @ lost(w, plan, more).T) * g.double()).sum(1)


def _least(question: Question, scores: list[dict[str, list[float]]], rule: str) -> list[Plan]:
    """The plans within the budget whose scores by this rule have the least sum: all are tried."""
    total, size = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    for layer, score in zip(question["layers"], scores, strict=True):
        total = total[..., None] + torch.tensor(score[rule], dtype=torch.float64)
        size = size[..., None] + torch.tensor([*_prices(layer["w"]).values()])
    at = torch.where(size <= question["budget"], total, math.inf).argmin()
    return [PLANS[int(each)] for each in torch.unravel_index(at, total.shape)]


def _prices(w: Tensor) -> dict[Plan, int]:
    """Bits that a weight takes."""
    return {plan: price(w, plan) for plan in PLANS}


def spent(question: Question, plans: list[Plan]) -> int:
    """Bits of all weights."""
    return sum(_prices(each["w"])[plan] for each, plan in zip(question["layers"], plans, strict=True))


def left(question: Question, plans: list[Plan]) -> float:
    """The error on unseen tokens, summed over layers."""
    pairs = zip(question["layers"], plans, strict=True)
    return math.fsum(each["errors"][PLANS.index(plan)] for each, plan in pairs)


def alike(question: Question) -> float:
    """The least error of those that give all layers the same bits, and either short groups or none."""
    ways = [[plan] * len(question["layers"]) for plan in PLANS]
    return min(left(question, plans) for plans in ways if spent(question, plans) <= question["budget"])


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The plans for each question, and whether all layers are what they were."""
    found, unchanged = [], True
    for asked in inputs["questions"]:
        layers = [tuple(each[key].clone() for key in "wxg") for each in asked["layers"]]
        found.append([[*plan] for plan in answer(layers, asked["budget"])])
        for each, layer in zip(asked["layers"], layers, strict=True):
            unchanged &= all(torch.equal(each[key], mine) for key, mine in zip("wxg", layer, strict=True))
            unchanged &= not any(mine.requires_grad for mine in layer)
    return observe({"plans": cast(Any, found), "unchanged": unchanged})


def _of_each(
    says: Callable[[Question, list[Plan], list[Plan]], str | None],
) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: all are plans within the budget, and `says` nothing about any question."""

    def held(inputs: Inputs, got: Values, expected: Values) -> str | None:
        for number, question in enumerate(inputs["questions"]):
            plans, ours = (_plans(question, values, number) for values in (got, expected))
            if isinstance(plans, str):
                return plans
            assert not isinstance(ours, str)
            size, budget = spent(question, plans), question["budget"]
            if sentence := f"plans take {size:,} bits of {budget:,}" if size > budget else says(question, plans, ours):
                return sentence
        return None

    return held


def _plans(question: Question, values: Values, number: int) -> list[Plan] | str:
    """A group of n becomes 0; or what is wrong."""
    found = []
    for at, layer in enumerate(question["layers"]):
        plan = values.get(f"plans/{number}/{at}")
        numbers = plan.tolist() if isinstance(plan, Tensor) else []
        n = layer["w"].shape[1]
        if len(numbers) != 2 or numbers[0] not in BITS or numbers[1] not in (SHORT, n):
            return f"a layer with n = {n} must have bits of {BITS} and a group of {SHORT} or {n}, got {numbers}"
        found.append((int(numbers[0]), 0 if numbers[1] == n else SHORT))
    return "more plans than layers" if f"plans/{number}/{len(found)}" in values else found


def _better(question: Question, plans: list[Plan], ours: list[Plan]) -> str | None:
    error, same = left(question, plans), alike(question)
    return None if error < same else f"these plans leave an error of {error:.4g}, and one plan for all {same:.4g}"


def _within(slack: float) -> Callable[[Question, list[Plan], list[Plan]], str | None]:
    def says(question: Question, plans: list[Plan], ours: list[Plan]) -> str | None:
        error, least = left(question, plans), left(question, ours)
        worse = f"these plans leave an error of {error:.4g}, and {_words(question, ours)} one of {least:.4g}"
        return None if error <= slack * least else worse

    return says


def _words(question: Question, plans: list[Plan]) -> str:
    pairs = zip(question["layers"], plans, strict=True)
    return str([(bits, group or each["w"].shape[1]) for each, (bits, group) in pairs])


MIXED = (WORTHS, OUTLIERS, TAILS)

EXERCISE = Exercise(
    id="quantization.choose_bits",
    cases=cases,
    probe=probe,
    withheld=("errors",),
    properties=(
        Property(
            "better_than_one_plan",
            "One plan for all layers leaves less than yours, or yours take more bits than the budget: codes, and 16 "
            "bits for each step, of a ragged last group too.",
            points=3,
            holds=_of_each(_better),
            cases=(WORTHS, TAILS),
        ),
        Property(
            "good",
            "Other plans of the same size leave an error that is a fifth smaller on unseen tokens. Measure for each "
            "layer and each plan how it changes the loss, by the inputs and gradients that you have.",
            points=2,
            holds=_of_each(_within(GOOD)),
            cases=MIXED,
            needs=("better_than_one_plan",),
        ),
        Property(
            "the_best",
            "Other plans of the same size leave an error that is a twentieth smaller. What is best for its price may "
            "leave room that nothing fills: compare sums over all layers.",
            points=2,
            holds=_of_each(_within(BEST)),
            cases=MIXED,
            needs=("better_than_one_plan",),
        ),
        Property(
            "ends",
            "Where only the cheapest plans fit, take those; where all fit, the dearest with short groups. A budget "
            "may be used up to its last bit, and no further.",
            points=2,
            holds=_of_each(_within(BEST)),
            cases=(ENDS, EXACT, ONE),
            needs=("better_than_one_plan",),
        ),
        Property(
            "layers_unchanged",
            "A weight, an input or a gradient was changed in place, or requires a gradient now: round a copy.",
            keys=("unchanged",),
            cases=(TAILS,),
            needs=("better_than_one_plan",),
        ),
    ),
    hints=(
        "Which layer's coarse weight does the loss suffer from most? That depends on more than the weight.",
        "For each layer there are ten plans. Round the weight by each; (W - Q) x is by how much a token's outputs "
        "change, and its product with g by how much its loss does. Count the bits of codes and steps.",
        "Go from layer to layer, and keep for each number of bits spent the least error so far, with the plans that "
        "gave it.",
    ),
    seconds=20.0,
    promises={
        "one or more": (ONE,),
        "the cheapest plan fits": ("ends",),
        "bits 2, 3, 4, 6 or 8, group 8 or n": ("ends",),
        "16 m ceil(n / group)": ("better_than_one_plan", "ends"),
        "the step 1 where it is all 0": (TAILS,),
        "Nothing that was handed in is changed": ("layers_unchanged",),
        "A plan above the budget earns nothing": ("better_than_one_plan", "ends"),
        "at most 1.05 times what the best plan for yours leaves": ("the_best",),
        "less than the best plan which is the same for all layers": ("better_than_one_plan",),
        "within a quarter of ours": ("good",),
    },
)
