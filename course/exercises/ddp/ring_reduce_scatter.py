"""`ring_reduce_scatter(comm, x)`: each rank gets the sum of one chunk, by messages to the next rank alone."""

from __future__ import annotations

import torch

from course.cluster import Comm
from course.exercises.ddp.begun import Begun, left_alone
from course.exercises.ddp.tensors import (
    BEYOND_FLOAT32,
    BEYOND_FLOAT64,
    between_bfloat16,
    in_the_dtype_of_each,
    last_digits,
    one_tensor,
)
from course.exercises.ddp.traffic import at_most, one_message, to_the_next_alone, within
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

ONE, HALF, CUBES, ROWS = "one rank", "2 ranks, float16", "3 ranks, two further dims", "6 ranks, one row each"


def cases(rng: torch.Generator) -> list[Case]:
    """One to six ranks, rows of any shape (a single one too, of a single number too), five dtypes."""

    def case(name: str, ranks: int, *shape: int, dtype: torch.dtype = torch.float32) -> Case:
        """shape: of one chunk."""
        rows, *rest = shape
        xs = [(1 + 3 * normal(rng, ranks * rows, *rest).abs()).to(dtype) for _ in range(ranks)]  # no sum cancels
        return Case(name=name, inputs={"xs": list(xs)})

    def whole(name: str, ranks: int, first: int, dtype: torch.dtype) -> Case:
        """first: what the first numbers of all ranks add up to."""
        xs = [torch.randint(-9, 9, (6, 2), generator=rng, dtype=dtype) for _ in range(ranks)]
        for rank, x in enumerate(xs):
            x[0, 0] = 0 if rank else first
        return Case(name=name, inputs={"xs": list(xs)})

    return [
        case("4 ranks", 4, 3),
        Case(name=HALF, inputs={"xs": [between_bfloat16(rng, 10) for _ in range(2)]}),
        case(CUBES, 3, 2, 2, 2),
        whole(ROWS, 6, BEYOND_FLOAT32, torch.int32),
        case(ONE, 1, 3),
        case("float64", 3, 1, dtype=torch.float64),
        whole("whole numbers", 3, BEYOND_FLOAT64, torch.int64),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its tensor."""
    return [{"x": x} for x in inputs["xs"]]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The chunk that this rank has at the end, and how many of its messages it changed on their way."""
    begun = Begun(comm)
    chunk = one_tensor(answer(begun, inputs["x"]))
    return observe({"chunk": chunk, "changed": begun.changed(), **last_digits(chunk, inputs["x"])})


def chunk_bytes(inputs: Inputs) -> int:
    """Of one chunk."""
    xs = inputs["xs"]
    return int(xs[0].nbytes) // len(xs)


EXERCISE = Exercise(
    id="ddp.ring_reduce_scatter",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("send", "recv"),
    properties=(
        Property(
            "sums",
            "Rank r returns chunk r of the sum over all ranks. A chunk that travels is added to at every stop, and "
            "begins its way at the rank after the one where it must end. Whole numbers are added as whole numbers.",
            points=3,
            keys=("*/chunk", "*/digits"),
            in_half=2,
        ),
        Property(
            "dtype",
            "The chunk has the dtype of x. Sums of several tensors at once may have a wider one (int64 for int32).",
            holds=in_the_dtype_of_each("xs", "chunk"),
            needs=("sums",),
        ),
        Property(
            "neighbours_only",
            "Every message goes from rank r to rank r + 1, the last rank's to rank 0.",
            evidence="ledger",
            holds=to_the_next_alone,
            beside=("*/chunk",),
            needs=("sums",),
        ),
        Property(
            "bytes",
            "P - 1 messages of one chunk each: (P - 1) / P of the bytes of x. Do not send whole tensors.",
            points=2,
            evidence="ledger",
            holds=at_most(lambda inputs: (len(inputs["xs"]) - 1) * chunk_bytes(inputs)),
            beside=("*/chunk",),
            shows="bytes_sent",
            needs=("sums",),
        ),
        Property(
            "messages",
            "A chunk is one message, and P - 1 of them are enough. Every message takes a latency, however small it is.",
            evidence="ledger",
            holds=at_most(lambda inputs: len(inputs["xs"]) - 1, "messages"),
            beside=("*/chunk",),
            needs=("sums",),
        ),
        Property(
            "all_at_once",
            "All ranks send in every step, each another chunk, so that P - 1 steps take the time of P - 1 messages. "
            "Where one rank waits for the rank before it to begin, they take turns.",
            evidence="ledger",
            holds=within(lambda inputs: (len(inputs["xs"]) - 1) * one_message(chunk_bytes(inputs))),
            beside=("*/chunk",),
            needs=("sums",),
        ),
        left_alone(needs=("sums",)),
    ),
    hints=(
        "Follow chunk 0 with four ranks. It must end at rank 0, and every rank must have added its own part once. "
        "Where does it begin, and who adds last?",
        "In step s (from 0) rank r sends chunk (r - 1 - s) modulo P, and receives the chunk before that.",
        "Copy x into P chunks. For each of P - 1 steps: send one chunk to the next rank, receive from the previous one "
        "into an empty tensor, and add it to the own chunk of that number. Return the chunk that was added to last.",
    ),
    keeps=("x",),
    promises={
        "rank `comm.rank` of P = `comm.size`": ("4 ranks", ROWS, ONE),
        "x.shape[0] = P * m": ("sums", ROWS, ONE),
        "any further dims": (CUBES, ROWS),
        "any dtype that can be added": (HALF, "float64", "whole numbers"),
        "(m, ...), chunk comm.rank of the sum over all ranks": ("sums", CUBES, ROWS),
        "in the dtype of x": ("dtype",),
        "P - 1 messages of one chunk": ("messages", "bytes"),
        "to rank + 1 (modulo P)": ("neighbours_only",),
        "in P - 1 steps": ("all_at_once",),
        "stays as it is until": ("left_alone_until_waited",),
        "x is not changed": ("arguments_unchanged",),
    },
)
