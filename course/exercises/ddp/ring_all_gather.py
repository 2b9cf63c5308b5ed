"""`ring_all_gather(comm, chunk)`: every rank gets all chunks, by messages to the next rank alone.

Chunks are small, because sheets hold them: messages take their latency, so `all_at_once` speaks of the order of calls
and `bytes` of how much is sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.cluster import Comm
from course.exercises.ddp.begun import Begun, left_alone
from course.exercises.ddp.tensors import (
    BEYOND_FLOAT16,
    BEYOND_FLOAT64,
    apart,
    in_the_dtype_of_each,
    laid,
    last_digits,
    one_tensor,
)
from course.exercises.ddp.traffic import at_most, one_message, to_the_next_alone, within
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe
from course.tree import Tree

ONE, VIEWS = "one rank", "chunks that are views"
HALF, FINE, TRUTHS, WHOLE = "bfloat16", "float64", "booleans", "whole numbers"
PLAIN = ("4 ranks", "2 ranks, matrices", "5 ranks, one row each", ONE)


def cases(rng: torch.Generator) -> list[Case]:
    """One to five ranks, rows of any shape, any dtype."""

    def drawn(ranks: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [normal(rng, *shape, dtype=dtype) for _ in range(ranks)]

    chunks = {
        "4 ranks": drawn(4, 3),
        "2 ranks, matrices": drawn(2, 2, 3),
        "5 ranks, one row each": drawn(5, 1, 1, 2),
        ONE: drawn(1, 3, 2),
        VIEWS: drawn(3, 2, 4),
        HALF: [BEYOND_FLOAT16 * each for each in drawn(3, 4, dtype=torch.bfloat16)],
        TRUTHS: [torch.tensor([rank == 1, rank != 1]) for rank in range(3)],
        WHOLE: [torch.randint(-9, 9, (2, 2), generator=rng) for _ in range(3)],
        FINE: drawn(2, 3, dtype=torch.float64),
    }
    chunks[WHOLE][0][0, 0] = BEYOND_FLOAT64
    lies = {VIEWS: "strided"}
    return [Case(name=name, inputs={"chunks": list(each), "lies": lies.get(name, "")}) for name, each in chunks.items()]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its chunk."""
    return [{"chunk": chunk, "lies": inputs["lies"]} for chunk in inputs["chunks"]]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The whole at once, and after the caller has written into its chunk; how many messages it changed on their way."""
    chunk, begun = laid(inputs, "chunk"), Begun(comm)
    whole = one_tensor(answer(begun, chunk))
    seen: dict[str, Tree] = {"whole": whole.clone(), "changed": begun.changed(), "later": apart(whole, chunk)}
    return observe({**seen, **last_digits(whole, chunk)})


def others(inputs: Inputs) -> int:
    """How many ranks there are besides one: P - 1."""
    return len(inputs["chunks"]) - 1


def chunk_bytes(inputs: Inputs) -> int:
    """Of one chunk."""
    return int(inputs["chunks"][0].nbytes)


EXERCISE = Exercise(
    id="ddp.ring_all_gather",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("send", "recv"),
    properties=(
        Property(
            "gathered",
            "The chunks of all ranks, one behind the other along dim 0: rank 0's first, whichever rank returns them.",
            points=3,
            keys=("*/whole",),
            roundings=0,
            cases=PLAIN,
        ),
        Property(
            "views_and_dtypes",
            "Numbers of any dtype travel as they are, and a chunk may be a view. What you receive into has the dtype "
            "of chunk.",
            keys=("*/whole", "*/digits"),
            roundings=0,
            cases=(VIEWS, HALF, TRUTHS, WHOLE, FINE),
        ),
        Property(
            "dtype",
            "The result has the dtype of chunk. A new tensor gets it from `torch.empty_like` or `chunk.new_empty`.",
            holds=in_the_dtype_of_each("chunks", "whole"),
            needs=("gathered",),
        ),
        Property(
            "neighbours_only",
            "Every message goes from rank r to rank r + 1, the last rank's to rank 0.",
            evidence="ledger",
            holds=to_the_next_alone,
            beside=("*/whole",),
            cases=(*PLAIN, VIEWS, HALF, TRUTHS, WHOLE),
            needs=("gathered",),
        ),
        Property(
            "bytes",
            "P - 1 times the bytes of a chunk, in its own dtype: pass on what came last, and only that.",
            evidence="ledger",
            holds=at_most(lambda inputs: others(inputs) * chunk_bytes(inputs)),
            beside=("*/whole",),
            cases=(*PLAIN, HALF, TRUTHS),
            shows="bytes_sent",
            needs=("gathered",),
        ),
        Property(
            "messages",
            "A chunk is one message. Every message takes a latency, however small it is.",
            evidence="ledger",
            holds=at_most(others, "messages"),
            beside=("*/whole",),
            cases=PLAIN,
            needs=("gathered",),
        ),
        Property(
            "all_at_once",
            "All ranks send in every step, so that P - 1 steps take the time of P - 1 messages. Where one rank waits "
            "for the rank before it to begin, they take turns.",
            evidence="ledger",
            holds=within(lambda inputs: others(inputs) * one_message(chunk_bytes(inputs))),
            beside=("*/whole",),
            cases=PLAIN,
            needs=("gathered",),
        ),
        Property(
            "own_memory",
            "The caller writes its next numbers into chunk, and they stand in your result too: return a new tensor, "
            "also where there is one rank.",
            keys=("*/later",),
            cases=PLAIN,
            needs=("gathered",),
        ),
        left_alone(needs=("gathered",)),
    ),
    hints=(
        "In the first step every rank has one chunk to send. Which one can it send in the second step that the next "
        "rank does not have yet?",
        "In step s (from 0) rank r sends chunk r - s modulo P, and receives the chunk before that.",
        "Make a tensor for all chunks, and copy your own to its place. For each of P - 1 steps: send the chunk that "
        "came last (first your own) to the next rank, and receive another from the previous one, into its place.",
    ),
    keeps=("chunk",),
    promises={
        "rank `comm.rank` of P = `comm.size`": ("4 ranks", "5 ranks, one row each", ONE),
        "m at least 1 and any further dims": ("5 ranks, one row each", "2 ranks, matrices"),
        "any dtype": ("views_and_dtypes", HALF, FINE, TRUTHS, WHOLE),
        "may be a view": ("views_and_dtypes", VIEWS),
        "(P * m, ...), the chunks of all ranks in the order of ranks": ("gathered",),
        "in the dtype of chunk": ("dtype",),
        "P - 1 messages of one chunk": ("messages", "bytes", HALF),
        "to rank + 1 (modulo P)": ("neighbours_only",),
        "in P - 1 steps": ("all_at_once",),
        "stays as it is until": ("left_alone_until_waited",),
        "chunk is not changed": ("arguments_unchanged",),
        "shares no memory with it": ("own_memory",),
    },
)
