"""`tree_broadcast(comm, x, source)`: one rank's tensor in all ranks' memory, in as few rounds as can be.

What is looked at is the memory that x had before the call. In the case `LARGE` the probe repeats a few numbers, so that
messages take long and sheets stay small, and adds a whole number to each, so that all differ. It takes the source's off
again, and of all repetitions it shows the least and the largest.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course.cluster import Comm
from course.exercises.ddp.tensors import BEYOND_FLOAT16, BEYOND_FLOAT64, laid, last_digits
from course.exercises.ddp.traffic import all_of, at_least_in_all, at_most, in_all, one_message, within
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

ONE, VIEWS, LARGE = "one rank", "views", "7 ranks, a large x"
EVEN, OTHERS = ("4 ranks", "8 ranks, one number"), ("3 ranks", "9 ranks", LARGE, ONE)
HALF, FINE, TRUTHS, WHOLE, NAN = "bfloat16", "float64", "booleans", "whole numbers", "nan where x comes to"
SOURCES = ("4 ranks, from the third", "5 ranks, from the last")
TIMES = 30_000  # how often the numbers of the large case stand in its x: half a megabyte, five latencies on a link
STEPS = 1024  # in 1, of the numbers of the large case; and whole numbers that are added: float32 holds both exactly


def cases(rng: torch.Generator) -> list[Case]:
    """Powers of two and other numbers of ranks, sources from the first to the last, any shape and dtype."""

    def case(name: str, ranks: int, source: int, *shape: int, dtype: torch.dtype = torch.float32) -> Case:
        larger = BEYOND_FLOAT16 if name == HALF else 1
        xs = [larger * normal(rng, *shape, dtype=dtype) for _ in range(ranks)]
        return _case(name, source, xs, lies="strided" if name == VIEWS else "")

    def large(ranks: int) -> Case:
        xs = [(STEPS * normal(rng, 4)).round() / STEPS for _ in range(ranks)]
        return _case(LARGE, 0, xs, times=TIMES, seed=integer(rng, 0, 2**31))

    return [
        case("4 ranks", 4, 0, 3),
        case("8 ranks, one number", 8, 0),
        case(HALF, 2, 0, 4, dtype=torch.bfloat16),
        _case(TRUTHS, 0, [torch.tensor([rank == 0, rank == 1]) for rank in range(2)]),
        case("3 ranks", 3, 0, 2, 2),
        case("9 ranks", 9, 0, 2),
        large(7),
        case(ONE, 1, 0, 2),
        case("4 ranks, from the third", 4, 2, 3),
        case("5 ranks, from the last", 5, 4, 2),
        case(VIEWS, 4, 0, 2, 3),  # one of them passes on what it has received
        case(FINE, 2, 0, 3, dtype=torch.float64),
        _case(WHOLE, 0, [torch.tensor([BEYOND_FLOAT64, 7]), torch.tensor([3, -5])]),
        _case(NAN, 0, [normal(rng, 2), torch.tensor([math.nan, math.inf])]),
    ]


def _case(name: str, source: int, xs: list[Tensor], *, lies: str = "", times: int = 1, seed: int = 0) -> Case:
    return Case(name=name, inputs={"xs": list(xs), "source": source, "lies": lies, "times": times, "seed": seed})


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its own x, and what is the same for all."""
    shared = {name: inputs[name] for name in ("source", "lies", "times", "seed")}
    return [{"x": x, **shared} for x in inputs["xs"]]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """What the memory of this rank's x holds afterwards."""
    x = laid(inputs, "x")
    if inputs["times"] > 1:
        x = x.repeat(inputs["times"]) + _added(inputs, comm.rank)
    memory = x.view(x.shape)
    answer(comm, x, inputs["source"])
    if inputs["times"] == 1:
        return observe({"x": memory, **last_digits(memory, x)})
    repeated = (memory - _added(inputs, inputs["source"])).view(inputs["times"], -1)
    return observe({"x": repeated.amin(0), "largest": repeated.amax(0)})


def _added(inputs: Inputs, rank: int) -> Tensor:
    """Whole numbers below STEPS, which a rank adds to its x in the large case."""
    rng = torch.Generator().manual_seed(inputs["seed"] + rank)
    return torch.randint(STEPS, (inputs["times"] * len(inputs["x"]),), generator=rng)


def rounds(inputs: Inputs) -> int:
    """That are needed: ceil(log2 P)."""
    return (len(inputs["xs"]) - 1).bit_length()


def size(inputs: Inputs) -> int:
    """Bytes of x."""
    return int(inputs["xs"][0].nbytes * inputs["times"])


def of_others(inputs: Inputs) -> int:
    """Bytes of x on all ranks but the source."""
    return (len(inputs["xs"]) - 1) * size(inputs)


EXERCISE = Exercise(
    id="ddp.tree_broadcast",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("send", "recv"),
    properties=(
        Property(
            "delivered",
            "Afterwards x holds the source's numbers on every rank, whatever it held before. Here rank 0 is the "
            "source.",
            points=3,
            cases=(*EVEN, NAN),
        ),
        Property(
            "any_number_of_ranks",
            "P need not be a power of two: in the last round some ranks have nobody left to send to. With one rank "
            "there is no round at all.",
            points=2,
            cases=OTHERS,
        ),
        Property(
            "any_source",
            "Number the ranks from the source on: (rank - source) modulo P is a rank's place in the tree. Messages "
            "still go to ranks, not to places.",
            points=2,
            cases=SOURCES,
        ),
        Property(
            "views_and_dtypes",
            "Where x is a view, `contiguous`, `flatten` and `reshape` may give a copy, and what comes into a copy does "
            "not reach x. send and recv take any strides, and any dtype, in which every number stays as it is.",
            cases=(VIEWS, HALF, FINE, TRUTHS, WHOLE),
        ),
        Property(
            "messages_in_all",
            "Each of P - 1 ranks needs x once, so P - 1 messages of one x do.",
            evidence="ledger",
            holds=all_of(
                in_all(lambda inputs: len(inputs["xs"]) - 1),
                in_all(of_others, "bytes"),
                at_least_in_all(of_others),
            ),
            beside=("*",),
            cases=(*EVEN, *OTHERS, *SOURCES, HALF),
            needs=("delivered",),
        ),
        Property(
            "messages_of_a_rank",
            "No rank sends more than one message in a round, of one x in its own dtype: whoever has x by then sends "
            "the others.",
            evidence="ledger",
            holds=all_of(at_most(rounds, "messages"), at_most(lambda inputs: rounds(inputs) * size(inputs))),
            beside=("*",),
            cases=(*EVEN, *OTHERS, *SOURCES, HALF),
            needs=("delivered",),
        ),
        Property(
            "rounds",
            "In every round all ranks that have x must send it, so that twice as many have it afterwards: ceil(log2 P) "
            "rounds, each as long as one message.",
            points=2,
            evidence="ledger",
            holds=all_of(at_least_in_all(of_others), within(lambda inputs: rounds(inputs) * one_message(size(inputs)))),
            beside=("*",),
            cases=(*EVEN, *OTHERS, *SOURCES),
            needs=("delivered",),
        ),
    ),
    hints=(
        "After the first round two ranks have x. How many can have it after the second one, and who sent it to them?",
        "Let the source be rank 0 first. Before a round the ranks below `have` have x, where `have` is 1, 2, 4 and so "
        "on: rank r below it sends to r + have. Which ranks receive, and who has nobody to send to?",
        "place = (rank - source) modulo P. While have < P: a place below have sends to the rank `have` further on, if "
        "that place is below P; a place from have to 2 have - 1 receives from the rank `have` before it; double have.",
    ),
    promises={
        "rank `comm.rank` of P = `comm.size`": ("4 ranks", "8 ranks, one number", ONE),
        "any number of them": ("any_number_of_ranks",),
        "any shape and dtype": ("8 ranks, one number", "3 ranks", HALF, FINE, TRUTHS, WHOLE),
        "may be a view": ("views_and_dtypes",),
        "0 to P - 1": ("any_source",),
        "in its own memory": ("delivered", NAN, "views_and_dtypes"),
        "x of `source` stays as it is": ("delivered", "any_source"),
        "P - 1 messages of one x in all": ("messages_in_all",),
        "at most ceil(log2 P) from any rank": ("messages_of_a_rank",),
        "in the time of ceil(log2 P) messages": ("rounds",),
    },
)
