"""`attention_tiled_backward(...)`: the gradients of q, k and v, from out and the log-sum-exps, one tile at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

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
    PIECE,
    PLAIN,
    RAGGED,
    REFUSALS,
    SHAPES,
    VIEWS,
    WHOLE,
    WIDTH,
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
    scaled_scores,
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
from course.performing.forms import alone, at_once, between_calls, in_dtype, put, strided, times
from course.performing.refusals import refused

GIVEN = (*NAMES, "out", "lse", "dout")
IN_HALF = tuple(name for name in GIVEN if name != "lse")
GRADS = ("dq", "dk", "dv")


def cases(rng: torch.Generator) -> list[Case]:
    """Tiles that fit and that do not, with a mask and without, and masked scores whose exponentials are infinite."""

    def drawn(
        name: str,
        lead: tuple[int, ...],
        sizes: tuple[int, int, int],
        widths: tuple[int, int] = (4, 3),
        causal: bool = False,
    ) -> dict[str, Any]:
        (queries, keys, block), (d, e) = sizes, widths
        q, k = (whole_numbers(rng, *lead, length, d) for length in (queries, keys))
        if name == HALF:
            q, k = many_digits(rng, queries, d), many_digits(rng, keys, d)
        if name == LATER:
            q[..., 0], k[..., 0] = 64.0, 64.0 * torch.arange(keys)
        if name in (*PLAIN, MASKED, BEYOND):
            q /= 4  # scores that are far apart make small gradients, which are differences
        if name == BEYOND:
            q[..., 0], k[..., 0] = 60000.0, 1.25  # k is small: in dq it multiplies what out lost in float16
        if name == FAR:
            far_below(q, k)
        draw = whole_numbers if name in (LATER, FAR) else normal  # whole: the gradients are 0, or sums of dout
        v, dout = draw(rng, *lead, keys, e), draw(rng, *lead, queries, e)
        if name == BEYOND:  # dk, which q multiplies, must be within float16
            dout /= 4
        if name == SHAPES:  # of few and like keys the gradient would be a difference of roundings
            k[:], v[:] = (torch.arange(keys)[:, None] - shift for shift in (1.0, 0.0))
            q.fill_(1), dout.abs_()
        given = {"q": q, "k": k, "v": v, **_forward(q, k, v, causal), "dout": dout}
        return {**given, "block": block, "causal": causal, "refusals": False}

    def case(name: str, lead: tuple[int, ...], sizes: tuple[int, int, int], *, causal: bool = False) -> Case:
        return Case(name=name, inputs=drawn(name, lead, sizes, causal=causal))

    beyond, half = case(BEYOND, (2,), (5, 7, 3)), Case(name=HALF, inputs=drawn(HALF, (), (8, 16, 4), (8, 8)), hard=True)
    for coarse, dtype in ((beyond, torch.float16), (half, torch.bfloat16)):
        for name in (*NAMES, "out", "dout"):
            coarse.inputs[name] = coarse.inputs[name].to(dtype)  # type: ignore[union-attr]
    shapes = [
        drawn(SHAPES, (2, 1, 2), (1, 3, 1), (1, 1)),
        drawn(SHAPES, (), (3, 3, 8), (1, 2), causal=True),
        drawn(SHAPES, (), (1, 1, 1), (4, 1), causal=True),
    ]
    refusing = case(REFUSALS, (2,), (2, 2, 1))
    refusing.inputs["refusals"] = True
    return [
        case(EVEN, (2,), (6, 6, 3)),  # as many queries as keys, and no mask
        case(RAGGED, (2, 2), (5, 7, 3)),
        case(MASKED, (2, 2), (8, 8, 3), causal=True),
        Case(name=ONE_TILE, inputs=drawn(ONE_TILE, (), (5, 7, 8), (3, 5))),  # a scale that cannot be taken back
        case(LATER, (2,), (7, 7, 3), causal=True),
        case(FAR, (), (5, 5, 3), causal=True),
        beyond,
        half,
        Case(name=SHAPES, inputs={"rows": list(shapes)}, hard=True),
        refusing,
        *long_cases(rng),
    ]


def _forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> dict[str, Tensor]:
    """What forward left, in float32."""
    scores = scaled_scores(q, k, causal)
    return {"out": (scores.softmax(-1) @ v.double()).float(), "lse": scores.logsumexp(-1).float()}


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call; on a long sequence what is made is measured."""
    if "seed" in inputs:
        return _long(answer, inputs, ask)
    if "rows" in inputs:
        return observe({"rows": [called(answer, row, GIVEN, GRADS) for row in inputs["rows"]]})
    given = [inputs[name] for name in GIVEN]
    values = called(answer, inputs, GIVEN, GRADS)
    values["dtypes"] = [str(getattr(values[name], "dtype", None)) for name in GRADS]
    if inputs["refusals"]:
        q, k, v, *rest = given
        values["refused"] = refused(
            {
                "a block of 0": partial(answer, *given, 0),
                "a block below 0": partial(answer, *given, -2),
                "causal with fewer keys than queries": partial(
                    answer, q, k[..., :1, :], v[..., :1, :], *rest, 1, causal=True
                ),
                "causal with more keys than queries": partial(
                    answer, q, k.repeat(1, 2, 1), v.repeat(1, 2, 1), *rest, 1, causal=True
                ),
            }
        )
    return observe(values)


def _long(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """Forward is computed in pieces that leave the memory of a right answer free. dout has a mean, and goes with q."""
    q, k, v = long_tensors(inputs, ask)
    out, lse, causal = torch.empty_like(v), torch.empty(len(v)), inputs["causal"]
    for at in range(0, len(q), 32):
        begins, few = at // PIECE * PIECE, slice(at, at + 32)
        seen = slice(begins, few.stop if causal else begins + PIECE)
        p = scaled_scores(q[few], k[seen], causal).exp()
        lse[few] = p.sum(-1).log()
        out[few] = p @ v[seen].double() / p.sum(-1, keepdim=True)
    return long_observed(partial(answer, q, k, v, out, lse, q[:, :WIDTH] + 2, BLOCK, causal=causal), GRADS, ask)


def _rounded_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: as in forward, where the mean of dp may also come from p, as out was rounded."""
    told = rounded_once(inputs, got, expected)
    return told and rounded_once(inputs, got, {**expected, **_by_the_mean(inputs)})


def _by_the_mean(inputs: Inputs) -> dict[str, Tensor]:
    """dq and dk in float64, from p and dp alone."""
    q, k, v, lse, dout = (inputs[name].double() for name in (*NAMES, "lse", "dout"))
    p = (scaled_scores(q, k, inputs["causal"]) - lse[..., None]).exp()
    dp = dout @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
    return {"dq": ds @ k, "dk": ds.mT @ q}


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each gradient in the dtype of its tensor."""
    wanted = str(inputs["q"].dtype)
    others = [f"{name} in {got[f'dtypes/{at}']}" for at, name in enumerate(GRADS) if got[f"dtypes/{at}"] != wanted]
    return f"{', '.join(others)}, where q, k and v are in {wanted}" if others else None


EXERCISE = Exercise(
    id="gradient_checkpointing.attention_tiled_backward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "dv",
            "out is p v, so that dv is p transposed times dout, summed over all queries. p are probabilities: "
            "exp(score - lse).",
            keys=("dv",),
            cases=PLAIN,
        ),
        Property(
            "dq",
            "Through the softmax, a score's gradient is p times (its own dp - the mean of its row's dp, weighted by "
            "p). dq adds those of all keys, each with its key; the scale counts here too.",
            points=2,
            keys=("dq",),
            cases=PLAIN,
        ),
        Property(
            "dk",
            "A key meets all queries: dk adds up over the blocks of queries what dq adds up over those of keys.",
            points=2,
            keys=("dk",),
            cases=PLAIN,
        ),
        Property(
            "causal",
            "What forward hid has the probability 0, whatever its score: its exp(score - lse) may be inf, and inf "
            "times 0 is nan. Set such scores to -inf, counting from the beginning of the sequence.",
            points=2,
            keys=GRADS,
            cases=(MASKED, LATER, FAR),
            needs=("dv",),
        ),
        replace(
            every_form(needs=("dq", "dk"), keys=tuple(f"*{name}" for name in GRADS)),
            cases=(BEYOND, BELOW, SHAPES, "in float16", "in bfloat16", VIEWS),
            in_half=16,  # of scores of thousands float32 has few digits behind the point
        ),
        Property(
            "precision",
            "Where q is in half precision its numbers are exact, and what is computed from them is not: convert to "
            "the dtype of lse before the first product, and round only the three gradients.",
            holds=_rounded_once,
            cases=(HALF, "in float64", *IN_ONE_TILE),
            needs=("dq", "dk"),
        ),
        replace(arguments_unchanged(needs=("dq",)), cases=(RAGGED, MASKED, ONE_TILE, VIEWS, "in float64")),
        Property(
            "dtypes",
            "A gradient has the dtype of its tensor: round at the end.",
            holds=_dtypes,
            cases=(RAGGED, BEYOND, HALF, "in float64", "in float16", "in bfloat16", *IN_ONE_TILE),
            needs=("dq",),
        ),
        refusals("dq"),
        Property(
            "one_tile_at_a_time",
            "No tensor may be larger than a tile or an argument: nothing of a tile stays but what it adds to the three "
            "gradients.",
            points=3,
            evidence="ledger",
            holds=one_tile,
            beside=GRADS,
            roundings=128,  # where the mean comes from p, it is a sum over as many keys as a document has
            shows="largest_tensor",
            cases=(LONG, WHOLE),
            needs=("dq", "dk", "dv", "causal"),
        ),
    ),
    hints=(
        "Which of the six tensors tells a probability from its score, without the other scores of its row?",
        "The mean of dp over a row, weighted by p, is a number for each query. Swap two sums: it is the dot product of "
        "two rows that you were given.",
        "For each tile: p from the scores and lse; dp from dout and v; ds = p (dp - mean), times the scale. Then dq, "
        "dk and dv each get a product of two of the tile's matrices added, in float32.",
    ),
    keeps=GIVEN,
    forms=(
        alone(in_dtype(torch.float64, *GIVEN, of=RAGGED)),  # lse may not be wider than what is computed in
        in_dtype(torch.float16, *IN_HALF, of=RAGGED),
        in_dtype(torch.bfloat16, *IN_HALF, of=MASKED),
        at_once(
            BELOW,
            times("smaller", 2.0**-44, "q", "k"),
            times("lse", 2.0**-88, "lse"),
            in_dtype(torch.float16, *IN_HALF),
            of=FAR,
        ),
        at_once(VIEWS, strided(*GIVEN), between_calls("dout"), of=MASKED),
        put(IN_ONE_TILE[0], block=16, of=HALF),
        alone(in_dtype(torch.float64, *GIVEN, of=ONE_TILE, name=IN_ONE_TILE[1])),
    ),
    promises={
        "any number of leading dimensions": (RAGGED, MASKED, ONE_TILE, SHAPES),
        "any floating dtype": ("in float16", "in bfloat16", "in float64"),
        "views too": (VIEWS,),
        "None of them is changed": ("arguments_unchanged",),
        "T and S need be no multiples of it, and may be smaller": (RAGGED, ONE_TILE, SHAPES, *IN_ONE_TILE),
        "hides the same scores as forward did": ("causal", BELOW),
        "each in its tensor's dtype": ("dtypes",),
        "no tensor has more numbers than": ("one_tile_at_a_time",),
        "what attention_tiled returned for them": ("dq", "dk", "dv"),
        "all arithmetic is in the dtype of lse": ("precision", BEYOND),
        "a block below 1, causal where T differs from S": ("refusals",),
    },
    removes=("torch.nn.functional.scaled_dot_product_attention",),
    oracle=partial(look_at, GRADS),
    measured=(LONG, WHOLE),
    seconds=20.0,
)
