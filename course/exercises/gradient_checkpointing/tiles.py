"""What both halves of tiled attention share: names of cases, drawn tensors, digits, and memory on a long sequence.

The long sequence holds documents whose queries leave the keys of all others a share of 0. So one of them is what it is
alone: in a notebook, where tensors are measured, and in grading, where a call has them all, the process is measured
from outside, and which document is looked at is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from course.meter import Run, metered
from course.performing.blocks import draw, over_peak
from course.performing.compare import EPS
from course.performing.draws import integer
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Inputs,
    Observation,
    Property,
    Values,
    call_once,
    observe,
    outputs,
)
from course.performing.oracle import is_here
from course.performing.pledges import Look, Sample, Stage, number, pieces, pledged, shown
from course.performing.refusals import all_refused

EVEN, RAGGED, ONE_TILE = "tiles that fit", "ragged tiles", "a block longer than both"
VIEWS = "views, between two other calls"
MASKED, LATER, FAR = "causal, ragged tiles", "causal, later scores far above", "causal, scores below -10**32"
HALF, BEYOND = "sums in bfloat16", "scores beyond float16, in float16"
BELOW = "causal, scores below float16's, in float16"
IN_ONE_TILE = ("one tile in bfloat16", "one tile in float64")
SHAPES, REFUSALS = "other shapes", "what is refused"
PLAIN = (EVEN, RAGGED, ONE_TILE)

LONG, WHOLE = "a long sequence", "a long sequence, all keys seen"
DOCUMENTS, PIECE, BLOCK, WIDTH = 5, 1536, 256, 4  # all probabilities of one document are 9 MiB
FEW = 2  # documents where all keys are seen, which takes longer
APART = 160.0  # an unscaled score between documents: its exponential is under a rounding, and a normal number
RAISED, ROOM = 6400.0, 16  # unscaled scores in a document, at most, where they are high, and numbers of a query then
PEAK = 12 * 2**20  # bytes in grading: right answers take 4 to 8 MiB, two rows of tiles 15, two of one document 18
PEAK_OF_FEW = 6 * 2**20  # right answers take 2 to 4 MiB there, and rows of tiles 10
NAMES = ("q", "k", "v")
NOISE = 64  # roundings of the dtype computed in: far below one of half precision, where it is float32


def long_cases(rng: torch.Generator) -> list[Case]:
    """With a mask and without. Tensors are drawn by the probe; which row is looked at is hidden, and no first or last
    one of a document, which are sums of few terms: they may be near 0; nor an even one, whose own score may be high, or
    one before the highest scores.
    """
    return [_long_case(rng, name, causal=name == LONG) for name in (LONG, WHOLE)]


def _long_case(rng: torch.Generator, name: str, *, causal: bool) -> Case:
    documents = DOCUMENTS if causal else FEW
    seed, document, highest = (integer(rng, *between) for between in ((0, 2**31), (0, documents), (1, 4)))
    row = integer(rng, BLOCK * (highest + 1) + 32, PIECE - 32)
    inputs: Inputs = {"seed": seed, "causal": causal, "documents": documents, "highest": highest}
    return Case(name=name, inputs=inputs, hidden={"row": PIECE * document + (row | 1)})


def long_tensors(inputs: Inputs, ask: Ask, *, high: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of all documents, or where the oracle is here of the one that is looked at, in float32. The last
    numbers of q and k tell documents apart; v goes with k and has a mean, so that no sum over many keys is near 0.

    high  whether scores are so high that no exponential of them is finite
    """
    first = number(ask, "row") // PIECE if is_here(ask) else 0
    documents = range(first, first + 1 if is_here(ask) else inputs["documents"])
    q, k, v = (
        (4 * draw(inputs["seed"] + DOCUMENTS * at, documents, PIECE * WIDTH).view(-1, WIDTH) - 2).float()
        for at in range(3)
    )
    own = torch.eye(DOCUMENTS)[documents].repeat_interleave(PIECE, 0)
    if high:
        return _high(q, k, v, own, inputs["highest"])
    return torch.cat([q, own], -1), torch.cat([k, APART * (own - 1)], -1), v + k + 2


def _high(q: Tensor, k: Tensor, v: Tensor, own: Tensor, highest: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same with scores of every second key from RAISED / 8 to RAISED / 4, by the document, and twice that in one of
    its tiles, so that no exponential of them is finite in float64. In float32 no score has a rounding, in whichever
    order it is summed.

    Two columns more add nothing to any score, and as much as the scores are to every bound that is made of columns.
    """
    q, k, own = (16 * q).round() / 16, (32 * k).round() / 32, F.pad(own, (0, ROOM - WIDTH - DOCUMENTS))
    level = ((6 + q[::PIECE, :1]) / 8).repeat_interleave(PIECE, 0)
    rows = torch.arange(len(k))[:, None]
    raised = RAISED * own * (rows % 2 == 0) * (1 + (rows % PIECE // BLOCK == highest))
    raised[:, -2:] = RAISED * torch.where(rows % 4 < 2, 1.0, -1.0) * torch.tensor([1.0, -1.0])
    return torch.cat([q, level * (2 * own - 1)], -1), torch.cat([k, raised], -1), v + k + 2


def called(answer: Answer, inputs: Inputs, given: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    """The results by name of one call with the inputs that are `given`; causal is left out where it is False."""
    more = {"causal": True} if inputs["causal"] else {}
    result = call_once(partial(answer, **more), inputs, *(inputs[name] for name in given), inputs["block"])
    return outputs(result, *results)


def long_observed(call: Callable[[], object], results: Sequence[str], ask: Ask) -> Observation:
    """Of a call on a long sequence one row of each result, and, where the oracle is here, the largest tensor."""
    if not is_here(ask):
        found = {name: pieces(each, PIECE) for name, each in outputs(call(), *results).items()}
        at = pledged(ask, found)["row"] // PIECE
        return shown(ask, {name: each[at] for name, each in found.items()})
    with metered() as run:
        result = call()
    row = number(ask, "row")
    return observe(
        {name: _looked_at(each, row) for name, each in outputs(result, *results).items()},
        {"largest_tensor": _largest(run)},
    )


def look_at(results: Sequence[str], case: Case) -> Sample:
    """One row of each result, which are pledged in pieces of PIECE rows: a document each."""
    documents = cast(int, case.inputs.get("documents", 0))
    look = Look(
        stages=(Stage(pieces=dict.fromkeys(results, documents), tells=("row",)),),
        at=lambda numbers: dict.fromkeys(results, numbers["row"] // PIECE),
        cut=lambda piece, numbers: _looked_at(piece, numbers["row"]),
    )
    return Sample(case, look)


def _looked_at(document: Tensor, row: int) -> Tensor:
    """Of the row what does not tell documents apart: there dq is a difference of large numbers."""
    return document.reshape(PIECE, -1)[row % PIECE, :WIDTH].clone()


def _largest(run: Run) -> int:
    """How many numbers the largest tensor has that was made: answers may compute in float64."""
    return run.largest.bytes // run.largest.dtype.itemsize if run.largest else 0


def one_tile(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: nothing is larger than a tile or an argument."""
    if "peak_bytes" in got:
        sentence = "{peak:,} bytes at the highest, where {most:,} are more than enough for tiles and results"
        return over_peak(got["peak_bytes"], PEAK if inputs["causal"] else PEAK_OF_FEW, sentence)
    found = got["largest_tensor"]
    if isinstance(found, int) and found <= BLOCK * BLOCK:
        return None
    return f"a tensor of {found:,} numbers, where a tile has {BLOCK * BLOCK:,}, and q, k, v and results fewer"


def refusals(*needs: str) -> Property:
    """The property of REFUSALS."""
    return Property(
        "refusals",
        "A block below 1, and causal with another number of keys than of queries, is a ValueError.",
        holds=all_refused,
        cases=(REFUSALS,),
        needs=needs,
    )


def whole_numbers(rng: torch.Generator, *shape: int, spread: int = 2) -> Tensor:
    """In float32, from -spread to spread: their products and sums are exact."""
    return torch.randint(-spread, spread + 1, shape, generator=rng).float()


def many_digits(rng: torch.Generator, *shape: int) -> Tensor:
    """In float32, and exact in bfloat16, in which their products are not."""
    return whole_numbers(rng, *shape, spread=127) / 64


def scaled_scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """All of them, in float64, -inf where a query may not see a key; the queries are the last ones."""
    scores: Tensor = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1 + k.shape[-2] - q.shape[-2]) & causal
    return scores.masked_fill(hidden, -torch.inf)


def rounded_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: all is computed in float32 or in q's finer dtype, and rounded once."""
    noise = NOISE * EPS[torch.promote_types(inputs["q"].dtype, torch.float32)]
    for key, right in expected.items():
        seen = got[key]
        if not isinstance(right, Tensor) or not right.is_floating_point() or key.startswith("after/"):
            continue
        assert isinstance(seen, Tensor)
        once = EPS[seen.dtype] / 2 * right.abs().frexp().exponent.sub(1).double().exp2()
        if not bool(((seen.double() - right).abs() <= once + noise * right.abs().max()).all()):
            return f"{key} differs from the exact one by more than one rounding of {seen.dtype}"
    return None


def far_below(q: Tensor, k: Tensor) -> None:
    """Makes the scores of all queries -2**107 for key 0, and lower ones for each key after it: no softmax is closer to
    its limit, and a number such as -1e9 or -1e30 is far above them.
    """
    q.zero_()[..., 0] = -(2.0**54)
    k.zero_()[..., 0] = 2.0**54 * torch.arange(1, k.shape[-2] + 1)
