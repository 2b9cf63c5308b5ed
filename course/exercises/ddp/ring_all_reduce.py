"""`ring_all_reduce(comm, x)`: the sum on every rank, bit for bit the same, by messages to the next rank alone.

Sums may be formed in any order, so long as all ranks have the same one: values are compared with a tolerance, and the
ranks with each other without. Where they have one or two numbers, these are drawn until ranks that begin with their
own would disagree: one number may travel whole round the ring. For two ranks the bytes in all allow it, too: there the
length of a message tells, and `bytes_in_half` what travels in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from course.cluster import Comm
from course.exercises.ddp.begun import Begun, left_alone
from course.exercises.ddp.tensors import (
    BEYOND_FLOAT64,
    apart,
    between_bfloat16,
    in_the_dtype_of_each,
    laid,
    last_digits,
    one_tensor,
)
from course.exercises.ddp.traffic import all_of, at_most, no_message_over, one_message, to_the_next_alone, within
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import Tree

ONE, EMPTY, VIEWS = "one rank", "no number at all, in float64", "views"
HALF, FINE, WHOLE, SHORT = "float16", "float64", "whole numbers", "int8"
SCALARS, FEWER = "5 ranks, one number each", "4 ranks, two numbers each"
EVEN, UNEVEN = ("4 ranks", "3 ranks", ONE), ("3 ranks, 2 x 4", "4 ranks, 5 numbers", SCALARS, FEWER)


def cases(rng: torch.Generator) -> list[Case]:
    """One to five ranks; lengths that P divides and that it does not, fewer than P, and none."""

    def drawn(ranks: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [normal(rng, *shape, dtype=dtype) for _ in range(ranks)]

    xs = {
        "4 ranks": drawn(4, 2, 1, 4),
        "3 ranks": drawn(3, 2, 3),
        "3 ranks, 2 x 4": drawn(3, 2, 4),
        "4 ranks, 5 numbers": drawn(4, 5),
        SCALARS: _ordered(lambda: [1 + each.abs() for each in drawn(5)]),
        FEWER: _ordered(lambda: [1 + each.abs() for each in drawn(4, 2)]),
        EMPTY: drawn(3, 0, 2, dtype=torch.float64),
        ONE: drawn(1, 3, 1, 2),
        VIEWS: drawn(2, 3, 3),
        FINE: drawn(3, 3, dtype=torch.float64),
        HALF: [between_bfloat16(rng, 6) for _ in range(2)],
        WHOLE: [torch.randint(-9, 9, (2, 2), generator=rng) for _ in range(3)],
        SHORT: [torch.randint(-9, 9, (4,), generator=rng, dtype=torch.int8) for _ in range(2)],
    }
    for x, first in zip(xs[WHOLE], [BEYOND_FLOAT64, 0, 0], strict=True):
        x[0, 0] = first
    lies = {VIEWS: "strided"}
    return [Case(name=name, inputs={"xs": list(each), "lies": lies.get(name, "")}) for name, each in xs.items()]


def _ordered(draw: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Tensors, drawn until a sum that begins at one rank and goes round, either way, is not that of every other."""
    while True:
        xs = draw()
        if all(_sums(order) > 1 for order in (xs, xs[::-1])):
            return xs


def _sums(xs: list[Tensor]) -> int:
    """How many different sums there are, by where one begins."""
    rounds = [torch.stack(xs[start:] + xs[:start]) for start in range(len(xs))]
    return len({tuple(functools.reduce(torch.add, each).flatten().tolist()) for each in rounds})


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its tensor."""
    return [{"x": x, "lies": inputs["lies"]} for x in inputs["xs"]]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The sum at once, and after the caller has written into x; how many messages it changed on their way."""
    x, begun = laid(inputs, "x"), Begun(comm)
    total = one_tensor(answer(begun, x))
    seen: dict[str, Tree] = {"sum": total.clone(), "changed": begun.changed(), "later": apart(total, x)}
    return observe({**seen, **last_digits(total, x)})


def messages(inputs: Inputs) -> int:
    """That a rank needs to send: 2 (P - 1)."""
    return 2 * (len(inputs["xs"]) - 1)


def chunk_bytes(inputs: Inputs) -> int:
    """Of the largest of P chunks that are as equal as can be."""
    xs = inputs["xs"]
    return int(-(-xs[0].numel() // len(xs)) * xs[0].element_size())


few = all_of(at_most(lambda inputs: messages(inputs) * chunk_bytes(inputs)), at_most(messages, "messages"))
small = all_of(few, no_message_over(chunk_bytes))


def _bit_for_bit(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every rank's sum is rank 0's."""
    first, *others = (got[f"{rank}/sum"] for rank in range(len(inputs["xs"])))
    assert isinstance(first, Tensor)
    strange = [rank for rank, each in enumerate(others, 1) if not first.equal(each)]  # type: ignore[arg-type]
    return f"the sum of rank {strange[0]} is not that of rank 0 in every bit" if strange else None


EXERCISE = Exercise(
    id="ddp.ring_all_reduce",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("send", "recv"),
    properties=(
        Property(
            "sums",
            "Every rank returns the sum over all ranks, in the shape of x. Here P divides the number of elements.",
            points=2,
            keys=("*/sum",),
            cases=EVEN,
        ),
        Property(
            "every_length",
            "P need not divide the number of elements, and may be larger than it: pad, or let chunks differ in length "
            "by one.",
            points=2,
            keys=("*/sum",),
            cases=UNEVEN,
        ),
        Property(
            "views_and_dtypes",
            "Half precision, double precision and whole numbers are added as they are, and x may be a view, or have no "
            "elements. What you receive into has the dtype of x.",
            keys=("*/sum", "*/digits"),
            in_half=2,
            cases=(VIEWS, HALF, FINE, WHOLE, SHORT, EMPTY),
        ),
        Property(
            "dtype",
            "The sum has the dtype of x. A new tensor gets it from `torch.zeros_like` or `x.new_zeros`.",
            holds=in_the_dtype_of_each("xs", "sum"),
            needs=("sums",),
        ),
        Property(
            "same_bits",
            "Ranks that add the same numbers in another order get other last bits. Let one rank complete each chunk, "
            "and the others copy it.",
            points=2,
            holds=_bit_for_bit,
            cases=(*EVEN, SCALARS, FEWER),
            needs=("sums",),
        ),
        Property(
            "neighbours_only",
            "Every message goes from rank r to rank r + 1, the last rank's to rank 0.",
            evidence="ledger",
            holds=to_the_next_alone,
            beside=("*/sum",),
            cases=(*EVEN, *UNEVEN),
            needs=("sums",),
        ),
        Property(
            "bytes",
            "2 (P - 1) messages of one chunk each: P - 1 of sums that are not complete, and P - 1 of complete ones.",
            evidence="ledger",
            holds=small,
            beside=("*/sum",),
            shows="bytes_sent",
            cases=EVEN,
            needs=("sums",),
        ),
        Property(
            "bytes_of_every_length",
            "No chunk may have more than ceil(n / P) elements where P does not divide n. A last chunk that takes all "
            "of the rest may have nearly P more than the others, which wait for it in every step.",
            evidence="ledger",
            holds=small,
            beside=("*/sum",),
            cases=(*UNEVEN, EMPTY, VIEWS),
            needs=("sums",),
        ),
        Property(
            "bytes_in_half",
            "An x in float16 travels in float16, 2 bytes an element: what is added in float32 is rounded before it is "
            "sent. And int8 travels in int8.",
            evidence="ledger",
            holds=few,
            beside=("*/sum",),
            cases=(HALF, SHORT),
            needs=("sums",),
        ),
        Property(
            "all_at_once",
            "All ranks send in every step, so that 2 (P - 1) steps take the time of as many messages of one chunk.",
            evidence="ledger",
            holds=within(lambda inputs: messages(inputs) * one_message(chunk_bytes(inputs))),
            beside=("*/sum",),
            cases=(*EVEN, *UNEVEN),
            needs=("sums",),
        ),
        Property(
            "own_memory",
            "The caller writes its next numbers into x, and they stand in your result too: return a new tensor, also "
            "where there is one rank.",
            keys=("*/later",),
            cases=EVEN,
            needs=("sums",),
        ),
        left_alone(needs=("sums",)),
    ),
    hints=(
        "Which two exercises above make an all-reduce together? What must x be for them, and how do you make it so?",
        "Flatten x into a new tensor of P * ceil(n / P) elements, with zeros at the end, and go round twice. In the "
        "first turn a chunk is added to at every stop; in the second it is passed on as it is.",
        "With rank r sending chunk r - s modulo P in step s of the first turn, chunk r + 1 is complete on rank r. "
        "There the second turn begins: in its step s rank r sends chunk r + 1 - s. Cut the zeros off, and give the sum "
        "the shape of x.",
    ),
    keeps=("x",),
    promises={
        "rank `comm.rank` of P = `comm.size`": EVEN,
        "of any shape": ("every_length", SCALARS, "3 ranks, 2 x 4"),
        "() and (0, 2) too": (SCALARS, EMPTY),
        "any floating or whole-number dtype": ("views_and_dtypes", "dtype", WHOLE, SHORT),
        "may be a view": ("views_and_dtypes", VIEWS),
        "need not divide n, and may be larger": ("every_length", FEWER),
        "like x: the sum over all ranks": ("sums", "dtype"),
        "the same on every rank in every bit": ("same_bits",),
        "2 (P - 1) messages of at most ceil(n / P) elements": ("bytes", "bytes_of_every_length"),
        "in the dtype of x, all to": ("bytes_in_half",),
        "to rank + 1 (modulo P)": ("neighbours_only",),
        "in 2 (P - 1) steps": ("all_at_once",),
        "stays as it is until": ("left_alone_until_waited",),
        "x is not changed": ("arguments_unchanged",),
        "shares no memory with it": ("own_memory",),
    },
)
