"""`attention_tiled(q, k, v, block, causal)`: attention that makes one tile of scores at a time.

Scores of the cases are exact in float32, and in float16 where they fit: q and k are whole numbers, and sqrt(d) is 2;
not where products in half precision must show, or a q that was scaled in place and back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from course.exercises.gradient_checkpointing.tiles import (
    BELOW,
    BEYOND,
    BLOCK,
    EVEN,
    FAR,
    HALF,
    IN_ONE_TILE,
    LATER,
    LONG,
    MASKED,
    NAMES,
    ONE_TILE,
    PLAIN,
    RAGGED,
    REFUSALS,
    SHAPES,
    VIEWS,
    WHOLE,
    called,
    far_below,
    long_cases,
    long_observed,
    long_tensors,
    look_at,
    many_digits,
    one_tile,
    refusals,
    rounded_once,
    whole_numbers,
)
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
)
from course.performing.forms import at_once, between_calls, cut, in_dtype, put, strided, times
from course.performing.refusals import refused

HIGH = "scores of hundreds"
BOTH = ("out", "lse")


def cases(rng: torch.Generator) -> list[Case]:
    """Tiles that fit and that do not, with a mask and without, and scores whose exponentials are 0 or infinite."""

    def drawn(
        lead: tuple[int, ...], sizes: tuple[int, int, int], widths: tuple[int, int] = (4, 3), causal: bool = False
    ) -> dict[str, Any]:
        (queries, keys, block), (d, e) = sizes, widths
        q, k = (whole_numbers(rng, *lead, length, d) for length in (queries, keys))
        return {"q": q, "k": k, "v": normal(rng, *lead, keys, e), "block": block, "causal": causal}

    def case(name: str, lead: tuple[int, ...], sizes: tuple[int, int, int], *, causal: bool = False) -> Case:
        return Case(name=name, inputs={**drawn(lead, sizes, causal=causal), "refusals": False})

    high, far = case(HIGH, (2,), (5, 7, 3)), case(FAR, (), (5, 5, 3), causal=True)
    later = case(LATER, (2,), (7, 7, 3), causal=True)
    for key in "qk":
        high.inputs[key] = 6 * high.inputs[key]  # type: ignore[operator]
        high.inputs[key][..., 0] = 12.0  # type: ignore[call-overload, index]
    far_below(far.inputs["q"], far.inputs["k"])  # type: ignore[arg-type]
    far.inputs["out_alone"] = True  # whichever number stands for -inf, a wrong out is the same
    fine = {"q": many_digits(rng, 8, 8), "k": many_digits(rng, 16, 8), "v": many_digits(rng, 16, 16).abs() + 1}
    half: dict[str, Any] = {key: each.bfloat16() for key, each in fine.items()}
    later.inputs["q"][..., 0] = 16.0  # type: ignore[call-overload, index]
    later.inputs["k"][..., 0] = 16.0 * torch.arange(7)  # type: ignore[call-overload, index]
    refusing = case(REFUSALS, (2,), (2, 2, 1))
    refusing.inputs["refusals"] = True
    return [
        case(EVEN, (2,), (6, 6, 3)),  # as many queries as keys, and no mask
        case(RAGGED, (2, 2), (5, 7, 3)),
        case(MASKED, (2, 2), (8, 8, 3), causal=True),
        Case(name=ONE_TILE, inputs={**drawn((), (3, 5, 8), (3, 2)), "refusals": False}),
        high,
        far,
        later,
        Case(name=HALF, inputs={**half, "block": 4, "causal": False, "refusals": False}, hard=True),
        Case(
            name=SHAPES,
            inputs={
                "rows": [
                    drawn((2, 1, 2), (1, 3, 1), (1, 1)),
                    drawn((), (3, 3, 8), (1, 5), causal=True),
                    drawn((), (1, 1, 1), (4, 1), causal=True),
                ]
            },
            hard=True,
        ),
        refusing,
        *long_cases(rng),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call; on a long sequence what is made is measured."""
    if "seed" in inputs:
        return _long(answer, inputs, ask)
    if "rows" in inputs:
        return observe({"rows": [called(answer, row, NAMES, BOTH) for row in inputs["rows"]]})
    q, k, v = (inputs[name] for name in NAMES)
    values = called(answer, inputs, NAMES, BOTH)
    if inputs.get("out_alone"):
        return observe({"out": values["out"]})
    values["dtypes"] = [str(getattr(values[name], "dtype", None)) for name in BOTH]
    if inputs["refusals"]:
        values["refused"] = refused(
            {
                "a block of 0": partial(answer, q, k, v, 0),
                "a block below 0": partial(answer, q, k, v, -2),
                "causal with fewer queries than keys": partial(answer, q[..., :1, :], k, v, 1, causal=True),
                "causal with more queries than keys": partial(answer, q, k[..., :1, :], v[..., :1, :], 1, causal=True),
            }
        )
    return observe(values)


def _long(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    given = long_tensors(inputs, ask, high=True)
    return long_observed(partial(answer, *given, BLOCK, causal=inputs["causal"]), BOTH, ask)


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
    at_once(BELOW, times("smaller", 2.0**-44, "q", "k"), in_dtype(torch.float16, *NAMES), of=FAR),
    at_once(VIEWS, strided(*NAMES), between_calls("v"), of=MASKED),
    cut("one query", q=(2, 1), of=RAGGED),
    cut("one key", k=(2, 1), v=(2, 1), of=RAGGED),
    put(IN_ONE_TILE[0], block=16, of=HALF),
    in_dtype(torch.float64, *NAMES, of=ONE_TILE, name=IN_ONE_TILE[1]),
)

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
            cases=PLAIN,
        ),
        Property(
            "log_sum_exp",
            "lse is the logarithm of the sum of exp over a row of scaled scores: the largest score belongs to it.",
            keys=("lse",),
            cases=PLAIN,
        ),
        Property(
            "causal",
            "Query i sees the keys 0 to i. Inside a tile the numbers count from the tile's own first row and column: "
            "add where the tile begins.",
            points=2,
            keys=BOTH,
            cases=(MASKED,),
            needs=("value",),
        ),
        Property(
            "any_size_of_scores",
            "exp of a large score is inf, of a low one 0. Subtract the largest score so far, of those that the query "
            "sees; before the first tile there is none, and -inf stands for that.",
            points=2,
            keys=BOTH,
            roundings=1024,  # exp(score - lse) is right too, and lse has its digits before the point
            cases=(HIGH, FAR, LATER),
            needs=("value",),
        ),
        replace(
            every_form(needs=("value",), keys=("*out", "*lse")),
            cases=(SHAPES, *(form.name for form in FORMS[1:-1])),
            in_half=16,  # of scores of thousands float32 has few digits behind the point
        ),
        Property(
            "precision",
            "Where q is in half precision its numbers are exact, and what is computed from them is not: convert to "
            "float32 before the first product, and round only out. A q in float64 needs float64 all the way.",
            holds=rounded_once,
            cases=(HALF, "in float64", *IN_ONE_TILE),
            needs=("value",),
        ),
        replace(arguments_unchanged(needs=("value",)), cases=(RAGGED, MASKED, ONE_TILE, VIEWS, "in float64")),
        Property(
            "dtypes",
            "Sums are kept in float32 where q is in half precision, and so is lse. Only out is rounded to q's dtype.",
            holds=_dtypes,
            cases=(RAGGED, "in float64", "in float16", "in bfloat16", *IN_ONE_TILE),
            needs=("value",),
        ),
        refusals("value"),
        Property(
            "one_tile_at_a_time",
            "No tensor may be larger than a tile, q, k, v or out: a row of tiles grows with the sequence. Two loops, "
            "and of each tile nothing stays but what went into the sums.",
            points=3,
            evidence="ledger",
            holds=one_tile,
            beside=BOTH,
            roundings=4096,  # exp(score - lse) is right too, and lse is up to 3,200
            shows="largest_tensor",
            cases=(LONG, WHOLE),
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
        "any number of the same leading dimensions": (RAGGED, MASKED, ONE_TILE, SHAPES),
        "are at least 1": (SHAPES, "one query", "one key"),
        "any floating dtype": ("in float16", "in bfloat16", "in float64"),
        "views too": (VIEWS,),
        "They are not changed": ("arguments_unchanged",),
        "any size of scores": ("any_size_of_scores", BEYOND, BELOW),
        "T and S need be no multiples of it, and may be smaller": (RAGGED, ONE_TILE, SHAPES, *IN_ONE_TILE),
        "query i sees keys 0 to i": ("causal",),
        "in q's dtype": ("dtypes",),
        "in float32, or in float64 where q is": ("dtypes",),
        "no tensor has more numbers than": ("one_tile_at_a_time",),
        "in the dtype of q": ("in float16", "in bfloat16", "in float64"),
        "All arithmetic is in that dtype": ("precision", BEYOND),
        "a block below 1, causal where T differs from S": ("refusals",),
    },
    removes=("torch.nn.functional.scaled_dot_product_attention",),
    oracle=partial(look_at, BOTH),
    measured=(LONG, WHOLE),
    seconds=20.0,
)
