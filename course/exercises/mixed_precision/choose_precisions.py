"""`choose_precisions(operators, budget, loss)`: a format for each operator of a transformer block.

The loss is an oracle's, which alone knows the block and counts how often it is asked. A plan is judged by its loss: any
plan that is good enough is right. Each case is drawn until a rule of thumb loses in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.mixed_precision.small_block import BYTES, DTYPES, ORDER, Block, block, error
from course.performing.draws import integer
from course.performing.exercise import Answer, Ask, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.oracle import UnknownQuestion
from course.performing.refusals import all_refused, refused
from course.tree import Leaf, Tree

Operators = dict[str, dict[str, int]]
Plan = dict[str, str]
CALLS = 500  # that are allowed
GOOD = 3.0  # times the reference's loss is near enough
LOSES_BY_BYTES = 3.3  # as much, where moves of little loss, and not of few bytes, come first
AGREE = 1.5  # times that is what every good rule reaches: what roundings cost does not always add up
LOSES = 5.0  # times that is what a rule of thumb reaches in its case
REFUSED_CASE = "what is refused"
ONE_FORMAT = ("out bfloat16", "out float16", "out e4m3")  # missing, so that it has float32 alone
CODES = {form: number for number, form in enumerate(DTYPES, 1)}  # zeros are no plan
RULES: dict[str, tuple[str, ...]] = {  # formats to which somebody who has learnt only half keeps
    "float16": ("float32", "float16", "e4m3"),
    "bfloat16": ("float32", "bfloat16", "e4m3"),
    "8 bits or 32": ("float32", "e4m3"),
}


def cases(rng: torch.Generator) -> list[Case]:
    """Blocks with something large, something tiny, scores that need many bits; and budgets at both ends."""
    usual = block(rng, 9)  # sizes that, rounded to thousandths of the budget, hide the byte that is missing
    operators = _sizes(usual, ("up e4m3", *ONE_FORMAT))
    least, most = (sum(end(sizes.values()) for sizes in operators.values()) for end in (min, max))
    missing = ("softmax e4m3", "norm float16", "up e4m3", *ONE_FORMAT)
    kind = {"sharp": 4.0, "value": 2.0**-24, "hidden": 2.0**15}
    return [
        _where_a_rule_loses(rng, "sharp scores", 2.2, "bfloat16", sharp=8.0),
        _where_a_rule_loses(rng, "tiny values", 2.2, "float16", value=2.0**-24),
        _where_a_rule_loses(rng, "large numbers inside", 1.7, "8 bits or 32", hidden=2.0**15),
        _where_a_rule_loses(rng, "formats that are missing", 2.2, "float16", missing, **kind),
        _where_bytes_count(rng, "large and small operators"),
        _case("only the smallest fit", usual, operators, least),
        _case("all fit in float32", usual, operators, most),
        _case("a byte less than that", usual, operators, most - 1),
        _case(REFUSED_CASE, usual, operators, least, budgets={"a byte too few": least - 1, "nothing": 0}),
    ]


def _case(name: str, drawn: Block, operators: Operators, budget: int, **more: Any) -> Case:
    inputs: dict[str, Any] = {"operators": operators, "budget": budget, "single": 0.0, **more}
    return Case(name=name, inputs=inputs, hidden={"x": drawn.x, "weights": dict(drawn.weights)})


def _where_a_rule_loses(
    rng: torch.Generator, name: str, share: float, rule: str, missing: tuple[str, ...] = (), **kind: float
) -> Case:
    """A budget of `share` bytes a number, in which one format for all loses too, and no good rule does."""
    while True:
        drawn = _drawn(rng, **kind)
        operators = _sizes(drawn, missing)
        budget = _budget(share, drawn)
        alone, loss = _alone(drawn, operators)
        good = loss(_at_one_price(operators, budget, alone))
        lost = loss(_at_one_price(operators, budget, alone, RULES[rule]))
        fitting = [form for form, size in BYTES.items() if size <= share and not missing]
        single = min((loss(dict.fromkeys(operators, form)) for form in fitting), default=math.inf)
        if (
            good > 0
            and min(lost, single) >= LOSES * good
            and _good_rules(operators, budget, alone, loss) <= AGREE * good
        ):
            return _case(name, drawn, operators, budget, single=float(f"{min(single, 1e30):.6g}"))


def _where_bytes_count(rng: torch.Generator, name: str) -> Case:
    """A block and a budget in which the least loss first, whatever it saves, loses."""
    while True:
        drawn = _drawn(rng)
        operators = _sizes(drawn)
        alone, loss = _alone(drawn, operators)
        known = partial(_known, alone)
        measured = partial(_measured, loss)
        for share in (3.0, 3.1, 3.2, 3.3):
            budget = _budget(share, drawn)
            good = loss(_at_one_price(operators, budget, alone))
            lost = max(LOSES_BY_BYTES * good, 1e-300)
            if all(loss(_least_first(operators, budget, each)) >= lost for each in (known, measured)):
                return _case(name, drawn, operators, budget)


def _drawn(rng: torch.Generator, **kind: float) -> Block:
    """A block of 10, 12 or 14 tokens."""
    return block(rng, 2 * integer(rng, 5, 8), **kind)


def _budget(share: float, drawn: Block) -> int:
    """So many bytes a number, and an odd number of them, as no plan has."""
    return int(share * sum(drawn.numbers().values())) | 1


def _sizes(drawn: Block, missing: tuple[str, ...] = ()) -> Operators:
    """The bytes of each operator in each of its formats."""
    return {
        each: {form: size * count for form, size in BYTES.items() if f"{each} {form}" not in missing}
        for each, count in drawn.numbers().items()
    }


def _alone(drawn: Block, operators: Operators) -> tuple[dict[tuple[str, str], float], Callable[[Plan], float]]:
    """The loss of each operator in each format with all others in float32; and that of any plan."""
    whole = dict.fromkeys(operators, "float32")
    loss = partial(_loss, drawn, drawn(whole))
    return {(each, form): loss(whole | {each: form}) for each, of in operators.items() for form in of}, loss


def _loss(drawn: Block, exact: Tensor, plan: Plan) -> float:
    return error(exact, drawn(plan))


def _known(alone: dict[tuple[str, str], float], plan: Plan, name: str, form: str) -> float:
    return alone[name, form]


def _measured(loss: Callable[[Plan], float], plan: Plan, name: str, form: str) -> float:
    return loss(plan | {name: form})


def _least_first(operators: Operators, budget: int, cost: Callable[[Plan, str, str], float]) -> Plan:
    """The move of least cost, whatever it saves, again and again until all fits."""
    chosen = dict.fromkeys(operators, "float32")
    left = sum(sizes["float32"] for sizes in operators.values()) - budget
    while left > 0:
        smaller = [(each, form) for each, of in operators.items() for form in of if of[form] < of[chosen[each]]]
        each, form = min(smaller, key=lambda move: cost(chosen, *move))
        left -= operators[each][chosen[each]] - operators[each][form]
        chosen[each] = form
    return chosen


def _at_one_price(
    operators: Operators, budget: int, alone: dict[tuple[str, str], float], formats: tuple[str, ...] = tuple(BYTES)
) -> Plan:
    """Each operator takes the format that costs least if a byte has a price: the lowest price at which all fit."""

    def plan_at(power: float) -> Plan:
        def cost(name: str, form: str) -> float:
            return min(alone[name, form], 1e30) + math.exp2(power) * operators[name][form]

        allowed = {name: [form for form in of if form in formats] for name, of in operators.items()}
        return {name: min(forms, key=partial(cost, name)) for name, forms in allowed.items()}

    low, high = -80.0, 120.0
    for _ in range(24):
        middle = (low + high) / 2
        spent = sum(operators[name][form] for name, form in plan_at(middle).items())
        low, high = (middle, high) if spent > budget else (low, middle)
    return plan_at(high)


def _good_rules(
    operators: Operators, budget: int, alone: dict[tuple[str, str], float], loss: Callable[[Plan], float]
) -> float:
    """The larger loss of two plans: that of the least sum, and that of the cheapest byte, measured before each move."""

    @cache
    def at(*plan: tuple[str, str]) -> float:
        return min(loss(dict(plan)), 1e30)

    def rise(plan: Plan, name: str, form: str) -> float:
        more = at(*(plan | {name: form}).items()) - at(*plan.items())
        return more / (operators[name][plan[name]] - operators[name][form])

    plans = _least_sum(operators, budget, alone), _least_first(operators, budget, rise)
    return max(map(loss, plans))


def _least_sum(operators: Operators, budget: int, alone: dict[tuple[str, str], float]) -> Plan:
    """Operator by operator; only what costs less than all that has no more bytes is kept."""
    kept: list[tuple[int, float, Plan]] = [(0, 0.0, {})]
    for name, of in operators.items():
        more = [
            (bytes_ + size, cost + alone[name, form], plan | {name: form})
            for bytes_, cost, plan in kept
            for form, size in of.items()
            if bytes_ + size <= budget
        ]
        kept, least = [], math.inf
        for each in sorted(more, key=lambda one: one[:2]):
            if each[1] < least:
                kept.append(each)
                least = each[1]
    return kept[-1][2]


def _codes(plan: Plan) -> Tensor:
    """A number for each operator's format."""
    return torch.tensor([float(CODES[plan[name]]) for name in ORDER], dtype=torch.float64)


class LossOracle:
    """Knows the block, answers with the loss of a plan, and counts. The plan that is chosen is not counted."""

    def __init__(self, case: Case) -> None:
        hidden: Any = case.hidden
        self._block = Block(hidden["x"].float(), {name: each.float() for name, each in hidden["weights"].items()})
        self._operators = cast(Operators, case.inputs["operators"])
        self._exact = self._block(dict.fromkeys(self._operators, "float32"))
        self._calls = 0
        self._refuses = "budgets" in case.inputs
        self._plan: Plan = {}
        self._chosen: dict[str, Leaf] = {}

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """`loss` or `chosen`, of a plan; nothing after one is chosen. Raises UnknownQuestion."""
        plan: Any = arguments
        known = isinstance(plan, dict) and plan.keys() == self._operators.keys()
        if verb not in ("loss", "chosen") or not known or self._calls > 6 * CALLS:
            raise UnknownQuestion("a plan must be a dict with one format for each operator, and no other key")
        if self._chosen:
            raise UnknownQuestion("a plan must be chosen once, when no loss is asked for any more: return that one")
        wrong = [name for name, form in plan.items() if not isinstance(form, str) or form not in self._operators[name]]
        if wrong:
            raise UnknownQuestion(f"{wrong[0]} must get one of its formats, {', '.join(self._operators[wrong[0]])}")
        found = error(self._exact, self._block(plan))
        if verb == "loss":
            self._calls += 1
            return found
        self._plan = plan
        self._chosen = {"loss": found, "bytes": sum(self._operators[name][form] for name, form in plan.items())}
        return None

    def ledger(self) -> dict[str, Leaf]:
        """How often the loss was asked for; loss and bytes of the plan that was chosen."""
        return {"calls_of_loss": self._calls, **self._chosen}

    def values(self) -> dict[str, Leaf] | None:
        """The plan that was chosen; None where budgets are to be refused."""
        return None if self._refuses else {"plan": _codes(self._plan)} if self._plan else {}


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call, whose plan the oracle looks at; or one for each budget that is to be refused."""

    def named(plan: dict[str, torch.dtype]) -> Tree:
        return {name: names.get(dtype, str(dtype)) for name, dtype in plan.items()}

    def loss(plan: dict[str, torch.dtype]) -> float:
        return cast(float, ask("loss", named(plan)))

    def operators() -> dict[str, dict[torch.dtype, int]]:
        given = inputs["operators"]
        return {name: {DTYPES[form]: given[name][form] for form in BYTES if form in given[name]} for name in ORDER}

    names = {dtype: form for form, dtype in DTYPES.items()}

    if "budgets" in inputs:
        calls = {words: partial(answer, operators(), each, loss) for words, each in inputs["budgets"].items()}
        return observe({"refused": {**refused(calls)}})
    plan = answer(operators(), inputs["budget"], loss)
    ask("chosen", named(plan))
    return observe({})  # the oracle observes the plan: its loss and its formats must be of one


def _plan(inputs: Inputs, got: Values) -> dict[str, str | None]:
    """The format of every operator; None where it is none."""
    codes, forms = cast(Tensor, got["plan"]), dict(enumerate(BYTES, 1))
    return {name: forms.get(code) for name, code in zip(ORDER, codes.tolist(), strict=True)}


def _a_plan(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each operator has one of its formats."""
    wrong = [name for name, form in _plan(inputs, got).items() if form not in inputs["operators"][name]]
    return f"{wrong[0]} has none of its formats" if wrong else None


def _within(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the plan needs no more bytes than there are."""
    size = sum(inputs["operators"][name][form] for name, form in _plan(inputs, got).items())
    return f"the plan has {size:,} bytes of {inputs['budget']:,}" if size > inputs["budget"] else None


def _better(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: half the loss of the best single format at most."""
    loss, single = cast(float, got["loss"]), inputs["single"]
    return f"a loss of {loss:.2e}, where one format for all reaches {single:.2e}" if not loss <= single / 2 else None


def _near(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: not more than three times the loss of the reference's plan."""
    loss, ours = cast(float, got["loss"]), cast(float, expected["loss"])
    return None if loss <= GOOD * ours else f"a loss of {loss:.2e}, where {ours:.2e} is possible"


def _fits_and_near(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no more bytes than there are, and a loss near the reference's."""
    size = cast(int, got["bytes"])
    if size > inputs["budget"]:
        return f"the plan has {size:,} bytes of {inputs['budget']:,}"
    return _near(inputs, got, expected)


def _few(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the loss was asked for often enough to know something, and not too often."""
    calls = got["calls_of_loss"]
    return None if isinstance(calls, int) and calls <= CALLS else f"loss was called {calls} times"


MEASURED = (
    "sharp scores",
    "tiny values",
    "large numbers inside",
    "formats that are missing",
)
ENDS = ("only the smallest fit", "all fit in float32", "a byte less than that")

EXERCISE = Exercise(
    id="mixed_precision.choose_precisions",
    cases=cases,
    probe=probe,
    withheld=("single",),
    oracle=LossOracle,
    properties=(
        Property(
            "one_of_its_formats",
            "Return a dict that has every operator, each with one of the formats in its own dict. Not every operator "
            "has every format.",
            holds=_a_plan,
            cases=MEASURED,
        ),
        Property(
            "within_the_budget",
            "Add up the bytes of all operators, each in the format that the plan gives it. They are known: "
            "operators[name][format].",
            holds=_within,
            cases=MEASURED,
            needs=("one_of_its_formats",),
        ),
        Property(
            "better_than_one_format",
            "One format for all operators does as well as your plan. Where many bits are needed, and where few are "
            "enough, differs from operator to operator: ask the loss.",
            points=2,
            evidence="ledger",
            holds=_better,
            cases=MEASURED[:3],
            needs=("within_the_budget",),
        ),
        Property(
            "near_the_best",
            "Another plan of as many bytes has less than a third of your loss. float16 and bfloat16 have equal bytes "
            "and differ in range and bits, so measure both for each operator.",
            points=2,
            evidence="ledger",
            holds=_near,
            shows="loss",
            cases=MEASURED,
            needs=("within_the_budget",),
        ),
        Property(
            "by_the_byte",
            "Another plan of as many bytes has less than a third of your loss: one large operator was to shrink in the "
            "place of several small ones. What a move costs counts by the byte that it saves.",
            evidence="ledger",
            holds=_fits_and_near,
            cases=("large and small operators",),
            needs=("within_the_budget",),
        ),
        Property(
            "the_last_byte",
            "What needs exactly the budget fits, and what needs a byte more does not. Where all fits in float32 "
            "nothing is dropped.",
            evidence="ledger",
            holds=_fits_and_near,
            cases=ENDS,
            needs=("within_the_budget",),
        ),
        Property(
            "few_calls",
            f"At most {CALLS} calls of loss. One for each operator in each format, with all others in float32, tells "
            "nearly everything: what roundings cost adds up.",
            evidence="ledger",
            holds=_few,
            shows="calls_of_loss",
            cases=(*MEASURED, "large and small operators"),
            needs=("near_the_best",),
        ),
        Property(
            "refusals",
            "Where even the smallest formats need more bytes than there are, raise a ValueError.",
            holds=all_refused,
            cases=(REFUSED_CASE,),
            needs=("one_of_its_formats",),
        ),
    ),
    hints=(
        "What would you measure to learn how many bits one operator needs?",
        "Start with all in float32. A move gives one operator a smaller format: it costs loss and saves bytes. Which "
        "move comes first?",
        "Measure the loss of each operator in each format alone. While the plan is too large, make the move with the "
        "smallest rise of loss for each byte saved; measure before each move again if you like.",
    ),
    promises={
        "not every operator has every format": ("one_of_its_formats", "formats that are missing"),
        "The plan may need all of it": ("the_last_byte",),
        "at most 500 times": ("few_calls",),
        "one of its formats for every operator": ("one_of_its_formats",),
        "at most `budget` bytes together": ("within_the_budget",),
        "at most three times that of our plan": ("near_the_best", "by_the_byte"),
        "at most half that of the best single format": ("better_than_one_format",),
        "a budget that is too small for any plan": ("refusals",),
    },
    seconds=5.0,
)
