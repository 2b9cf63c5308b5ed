"""`attention_tiled(q, k, v, block, causal)`: attention that makes one tile of scores at a time.

Scores of the cases are exact in float32, and in float16 where they fit: q and k are whole numbers, and sqrt(d) is 2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from course.exercises.gradient_checkpointing.long_sequence import (
    LONG,
    NAMES,
    largest,
    long_case,
    long_tensors,
    one_tile,
    whole_numbers,
)
from course.meter import metered
from course.performing.blocks import Sample, number
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    arguments_unchanged,
    every_form,
    observe,
    outputs,
)
from course.performing.forms import at_once, cut, in_dtype, strided, times
from course.performing.oracle import is_here
from course.performing.refusals import all_refused, refused

EVEN, RAGGED, MASKED = "tiles that fit", "ragged tiles", "causal, ragged tiles"
HIGH, LOW, LATER = "scores of hundreds", "scores of about -200", "causal, later scores far above"
REFUSALS, BEYOND = "what is refused", "scores beyond float16, in float16"


def cases(rng: torch.Generator) -> list[Case]:
    """Tiles that fit and that do not, with a mask and without, and scores whose exponentials are 0 or infinite."""

    def case(name: str, lead: tuple[int, ...], sizes: tuple[int, int, int], *, causal: bool = False) -> Case:
        queries, keys, block = sizes
        shapes = (*lead, queries, 4), (*lead, keys, 4)
        tensors = {key: whole_numbers(rng, *shape) for key, shape in zip("qk", shapes, strict=True)}
        tensors["v"] = normal(rng, *lead, keys, 3)
        return Case(name=name, inputs={**tensors, "block": block, "causal": causal, "refusals": False})

    high, low = case(HIGH, (2,), (5, 7, 3)), case(LOW, (2,), (5, 7, 3))
    later = case(LATER, (2,), (7, 7, 3), causal=True)
    for key in "qk":
        high.inputs[key] = 6 * high.inputs[key]  # type: ignore[operator]
        high.inputs[key][..., 0] = 12.0  # type: ignore[call-overload, index]
    for key, sign in (("q", 1.0), ("k", -1.0)):
        low.inputs[key][..., 0] = 20.0 * sign  # type: ignore[call-overload, index]
    later.inputs["q"][..., 0] = 16.0  # type: ignore[call-overload, index]
    later.inputs["k"][..., 0] = 16.0 * torch.arange(7)  # type: ignore[call-overload, index]
    refusals = case(REFUSALS, (), (2, 2, 1))
    refusals.inputs["refusals"] = True
    return [
        case(EVEN, (2,), (6, 9, 3)),
        case(RAGGED, (2, 2), (5, 7, 3)),
        case(MASKED, (2, 1), (8, 8, 3), causal=True),
        case("a block longer than both", (), (3, 5, 8)),
        case("blocks of 1", (2,), (2, 3, 1)),
        case("causal, one block", (2,), (5, 5, 5), causal=True),
        high,
        low,
        later,
        refusals,
        long_case(rng),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call; on a long sequence what is made is measured."""
    if "seed" in inputs:
        return _long(answer, inputs, ask)
    q, k, v = (inputs[name] for name in NAMES)
    more = {"causal": True} if inputs["causal"] else {}
    values: dict[str, Any] = outputs(answer(q, k, v, inputs["block"], **more), "out", "lse")
    values["dtypes"] = [str(getattr(values[name], "dtype", None)) for name in ("out", "lse")]
    if inputs["refusals"]:
        values["refused"] = refused(
            {
                "a block of 0": partial(answer, q, k, v, 0),
                "a block below 0": partial(answer, q, k, v, -2),
                "causal with fewer queries than keys": partial(answer, q[:1], k, v, 1, causal=True),
                "causal with more queries than keys": partial(answer, q, k[:1], v[:1], 1, causal=True),
            }
        )
    return observe(values)


def _long(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    given, block = long_tensors(inputs, whole=not is_here(ask))
    if not is_here(ask):
        return observe(_one_query(answer(*given, block, causal=True), number(ask, "row")))
    with metered() as run:
        result = answer(*given, block, causal=True)
    return observe(_one_query(result, number(ask, "row")), {"largest_tensor": largest(run)})


def _one_query(result: object, row: int) -> dict[str, Any]:
    both = outputs(result, "out", "lse")
    return {"out": both["out"][row].clone(), "lse": both["lse"][row].clone()}


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: out in q's dtype, lse in float32 or finer."""
    wanted = inputs["q"].dtype
    right = [str(wanted), str(torch.promote_types(wanted, torch.float32))]
    found = [got["dtypes/0"], got["dtypes/1"]]
    return None if found == right else f"out and lse are in {found[0]} and {found[1]}, where q is in {wanted}"


FORMS = (
    in_dtype(torch.float64, *NAMES, of=RAGGED),
    in_dtype(torch.float16, *NAMES, of=RAGGED),
    in_dtype(torch.bfloat16, *NAMES, of=MASKED),
    at_once(BEYOND, in_dtype(torch.float16, *NAMES), times("large", 32.0, "q", "k"), of=HIGH),
    strided(*NAMES, of=MASKED),
    cut("one query", q=(2, 1), of=RAGGED),
    cut("one key", k=(2, 1), v=(2, 1), of=RAGGED),
)
BOTH = ("out", "lse")

EXERCISE = Exercise(
    id="gradient_checkpointing.attention_tiled",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "out is the softmax of the scaled scores times v. Where a later tile raises the largest score of a row, "
            "everything that was summed relative to the old one is too large by one factor.",
            points=3,
            keys=("out",),
            cases=(EVEN, RAGGED, "a block longer than both", "blocks of 1"),
        ),
        Property(
            "log_sum_exp",
            "lse is the logarithm of the sum of exp over a row of scaled scores: the largest score belongs to it.",
            keys=("lse",),
            cases=(EVEN, RAGGED, "a block longer than both", "blocks of 1"),
        ),
        Property(
            "causal",
            "Query i sees the keys 0 to i. Inside a tile the numbers count from the tile's own first row and column: "
            "add where the tile begins.",
            points=2,
            keys=BOTH,
            cases=(MASKED, "causal, one block"),
            needs=("value",),
        ),
        Property(
            "any_size_of_scores",
            "exp of a large score is inf, of a low one 0. Subtract the largest score so far, of those that the query "
            "sees; before the first tile there is none, and -inf stands for that.",
            points=2,
            keys=BOTH,
            roundings=1024,  # exp(score - lse) is right too, and lse has its digits before the point
            cases=(HIGH, LOW, LATER),
            needs=("value",),
        ),
        every_form(needs=("value",), keys=BOTH),
        replace(arguments_unchanged(needs=("value",)), cases=(RAGGED, MASKED, "views that are not contiguous")),
        Property(
            "dtypes",
            "Sums are kept in float32 where q is in half precision, and so is lse. Only out is rounded to q's dtype.",
            holds=_dtypes,
            cases=(RAGGED, "in float64", "in float16", "in bfloat16"),
            needs=("value",),
        ),
        Property(
            "refusals",
            "A block below 1, and causal with another number of keys than of queries, is a ValueError.",
            holds=all_refused,
            cases=(REFUSALS,),
            needs=("value",),
        ),
        Property(
            "one_tile_at_a_time",
            "No tensor may be larger than a tile, q, k, v or out: a row of tiles grows with the sequence. Two loops, "
            "and of each tile nothing stays but what went into the sums.",
            points=3,
            evidence="ledger",
            holds=one_tile,
            beside=BOTH,
            shows="largest_tensor",
            cases=(LONG,),
            needs=("value", "causal"),
        ),
    ),
    hints=(
        "Two keys have the scores 1 and 3. What do you keep of the first, so that you need not see it again?",
        "For each query three things go from tile to tile: the largest score so far, the sum of exp(score - largest), "
        "and the same sum with each exp times its row of v.",
        "For each tile: the new largest score is the larger of the old one and the tile's. Multiply both sums by "
        "exp(old - new), then add the tile's. At the end divide one sum by the other; lse is the largest plus log sum.",
    ),
    keeps=NAMES,
    forms=FORMS,
    promises={
        "any number of the same leading dimensions": (RAGGED, MASKED, "a block longer than both"),
        "any floating dtype": ("in float16", "in bfloat16", "in float64"),
        "views too": ("views that are not contiguous",),
        "They are not changed": ("arguments_unchanged",),
        "any size of scores": ("any_size_of_scores", BEYOND),
        "T and S need be no multiples of it, and may be smaller": (RAGGED, "a block longer than both"),
        "query i sees keys 0 to i": ("causal",),
        "in q's dtype": ("dtypes",),
        "in float32, or in float64 where q is": ("dtypes",),
        "no tensor has more numbers than": ("one_tile_at_a_time",),
        "in the dtype of q": ("in float16", "in bfloat16", "in float64"),
        "All sums are kept in that dtype": ("in float16", BEYOND),
        "a block below 1, causal where T differs from S": ("refusals",),
    },
    removes=("torch.nn.functional.scaled_dot_product_attention",),
    oracle=Sample,
    measured=(LONG,),
    seconds=5.0,
)
