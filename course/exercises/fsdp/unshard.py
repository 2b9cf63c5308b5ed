"""`unshard(comm, shard, shapes)`: a unit's full tensors from the shards of all ranks.

The caller writes into its shard afterwards, as an optimizer does while full tensors are still around. Where nobody
counts bytes it gathers other numbers then, as one does with the next unit. In a stack of units each is gathered, and
let go of, before the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm
from course.errors import WrongOutput
from course.exercises.fsdp import units
from course.exercises.fsdp.flat import at_most, held_once, in_all, length
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    entries_of,
    is_tensor,
    observe,
)
from course.performing.forms import laid_out

EVEN, UNEVEN, ONE, MANY = "3 ranks, 12 elements", "4 ranks, 9 elements", "one rank", "5 ranks, 3 elements"
NONE = "no elements at all, in float64"
ODD, HALF, FINE, VIEW = "a number and empty ones, in float64", "bfloat16", "float64", "a shard that is a view"
DEEP = "a deep stack"
PLAIN = (EVEN, UNEVEN, ONE, MANY)
STAYS = 4.5  # units: more than anybody copies for one of them, less than six leave behind


def cases(rng: torch.Generator) -> list[Case]:
    """One to five ranks, which divide the elements or not; zeros may be padding, or else the first and last element."""

    def case(
        name: str,
        ranks: int,
        *shapes: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        lies: str = "",
        zeros: Sequence[int] = (),
        again: bool = False,
    ) -> Case:
        n = in_all(shapes)
        row = torch.zeros(ranks * length(n, ranks), dtype=dtype)
        row[:n] = 1 + normal(rng, n, dtype=dtype).abs()
        row[list(zeros)] = 0
        shards: list[Any] = [each.clone() for each in row.chunk(ranks)]
        found: dict[str, Any] = {
            "shards": shards,
            "shapes": [list(shape) for shape in shapes],
            "lies": lies,
            "again": again,
        }
        return Case(name=name, inputs=found)

    return [
        case(EVEN, 3, (2, 4), (4,)),
        case(UNEVEN, 4, (2, 3), (1, 2), (1,), zeros=(0, 8)),
        case(ONE, 1, (3, 2), (2,), again=True),
        case(MANY, 5, (2,), (1, 1)),
        case(ODD, 2, (0, 3), (2, 2), (), (0,), (3,), (0,), dtype=torch.float64),
        case(NONE, 2, (0,), (0, 3), dtype=torch.float64),
        case(HALF, 3, (2, 2), (3,), dtype=torch.bfloat16),
        case(FINE, 2, (2, 2), (3,), dtype=torch.float64, again=True),
        case(VIEW, 2, (2, 3), (5,), lies="strided"),
        units.deep(rng, DEEP),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its shard; in the deep stack what units are made of."""
    if "shards" not in inputs:
        return units.split(inputs)
    same = {name: inputs[name] for name in ("shapes", "lies", "again")}
    return [{"shard": shard, **same} for shard in inputs["shards"]]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The tensors at once, and while the shard is 0; how many storages they have, and of how many elements."""
    if "shard" not in inputs:
        return _stack(answer, comm, inputs)
    inputs.update(laid_out({"shard": inputs["shard"]}, {"shard": inputs["lies"]}))
    shard: Tensor = inputs["shard"]
    shapes = [tuple(shape) for shape in inputs["shapes"]]
    given = answer(comm, shard, shapes)
    tensors = _checked(given)
    seen, before = [each.detach().clone() for each in tensors], shard.clone()
    shard.zero_()
    if inputs["again"]:
        answer(comm, torch.ones_like(shard), shapes)
    later = [each.detach().clone() for each in tensors]
    shard.copy_(before)
    return observe(
        {
            "tensors": {str(place): each for place, each in enumerate(seen)},
            "later": {str(place): each for place, each in enumerate(later)},
            "storages": len({each.untyped_storage().data_ptr() for each in tensors if each.numel()}),
            "held": held_once(tensors),
            "in_a": "list" if isinstance(given, list) else type(given).__name__,
        }
    )


def _stack(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """One unit after the other: of each tensor what it is mixed to, and nothing stays."""
    found: dict[str, Any] = {}
    shards = units.shards_of(inputs, comm.size, comm.rank)
    before = units.marks(shards)
    for number, (shard, shapes) in enumerate(zip(shards, units.shapes_of(inputs), strict=True)):
        found |= _mixed(inputs, number, answer(comm, shard, [tuple(shape) for shape in shapes]), shapes)
    inputs["shard"] = shards[0] if units.marks(shards) != before else inputs["a"][0]  # the same, small and large
    units.room(inputs, 2)  # what a call may hold
    return observe({"tensors": found})


def _mixed(inputs: Inputs, number: int, tensors: Any, shapes: Sequence[torch.Size]) -> dict[str, Tensor]:
    """A large unit's a and b. Raises WrongOutput where they have other shapes."""
    entries = _checked(tensors)
    if (came := [each.shape for each in entries]) != [*shapes]:
        raise WrongOutput(f"must return tensors of shapes {[*map(tuple, shapes)]}, got {[*map(tuple, came)]}")
    return {
        f"{number} {place}": units.mixed(inputs, number, each, shared=place == 1) for place, each in enumerate(entries)
    }


def _checked(tensors: Any) -> list[Tensor]:
    """What came. Raises WrongOutput where it is no list of tensors."""
    if not isinstance(tensors, (list, tuple)):
        raise WrongOutput(f"must return a list of tensors, got {type(tensors).__name__}")
    entries = entries_of(tensors)
    others = [type(each).__name__ for each in entries if not is_tensor(each)]
    if others:
        raise WrongOutput(f"must return a list of tensors, got one with {others[0]} in it")
    return entries


def _one_row(inputs: Inputs, got: Values, expected: Values) -> str | None:
    most = len(inputs["shards"]) * len(inputs["shards"][0])
    for rank in range(len(inputs["shards"])):
        storages, held = got[f"{rank}/storages"], got[f"{rank}/held"]
        assert isinstance(storages, int)
        assert isinstance(held, int)
        if storages > 1:
            return f"{storages} pieces of memory on rank {rank}"
        if held > most:
            return f"{held} elements are held on rank {rank}, where the shards have {most}"
    return None


def _list_in_its_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    wanted = inputs["shards"][0].dtype
    found = [each for key, each in got.items() if "/tensors/" in key and isinstance(each, Tensor)]
    if not found:
        return "no tensors"
    for rank in range(len(inputs["shards"])):
        if got[f"{rank}/in_a"] != "list":
            return f"a {got[f'{rank}/in_a']} in place of a list"
    others = sorted({str(each.dtype) for each in found} - {str(wanted)})
    return f"{', '.join(others)} in place of {wanted}" if others else None


EXERCISE = Exercise(
    id="fsdp.unshard",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_gather", "all_reduce"),
    properties=(
        Property(
            "gathered",
            "The shards of all ranks, one after the other, are the row. Its first elements are the first tensor's, row "
            "by row, then come those of the second.",
            points=3,
            keys=("*/tensors/*",),
            roundings=0,
            cases=(EVEN, ONE),
        ),
        Property(
            "padding_dropped",
            "Where the tensors have fewer elements than the row, what is left over at its end is padding, and belongs "
            "to none of them. It may be longer than a shard; and zeros before it are numbers as others are.",
            points=2,
            keys=("*/tensors/*",),
            roundings=0,
            cases=(EVEN, UNEVEN, MANY),
            needs=("gathered",),
        ),
        Property(
            "every_shape",
            "A tensor of shape () has one element, and one with a size of 0 has none. Both are in the list, at their "
            "places.",
            keys=("*/tensors/*",),
            roundings=0,
            cases=(ODD, NONE),
            needs=("gathered",),
        ),
        Property(
            "any_shard",
            "Numbers of any floating dtype travel as they are, and a shard may be a view. What you receive into has "
            "the dtype of the shard.",
            keys=("*/tensors/*",),
            roundings=0,
            cases=(VIEW, HALF, FINE),
            needs=("padding_dropped",),
        ),
        Property(
            "kind_of_the_result",
            "You return a list, of tensors that have the dtype of the shard: `shard.new_empty` makes one that has it.",
            holds=_list_in_its_dtype,
            cases=(*PLAIN, HALF, FINE, ODD, NONE),
            needs=("any_shard",),
        ),
        Property(
            "one_row",
            "The tensors are views of the row. A copy of each of them would take the memory of a full unit once more, "
            "at the moment when most is held.",
            points=2,
            holds=_one_row,
            cases=(*PLAIN, ODD),
            needs=("padding_dropped",),
        ),
        Property(
            "own_memory",
            "The rank steps in its shard, and the full tensors must not change with it, on one rank either. Nor with "
            "the next call: it has a row of its own.",
            keys=("*/later/*",),
            roundings=0,
            cases=(EVEN, ONE, FINE),
            needs=("gathered",),
        ),
        Property(
            "let_go",
            "Rows of units that the caller has let go of are alive: in a list, a dict or an attribute of yours. A unit "
            "is full for a moment, and then its memory is for the next one.",
            evidence="ledger",
            holds=units.memory(STAYS, shards=1, sent=1),
            beside=("*/tensors/*",),
            shows="live_bytes",
            roundings=units.SUM,
            cases=(DEEP,),
            needs=("padding_dropped",),
        ),
        Property(
            "memory",
            "More is alive at once than the row and a second one of what came. A list of parts, what cat makes of it, "
            "and each clone are all as large as a row.",
            evidence="ledger",
            holds=units.memory(2.3, shards=1, sent=1),
            beside=("*/tensors/*",),
            shows="live_bytes",
            roundings=units.SUM,
            cases=(DEEP,),
            needs=("padding_dropped",),
        ),
        Property(
            "bytes",
            "P - 1 shards from each rank, in their own dtype: one all-gather of what every rank has.",
            points=2,
            evidence="ledger",
            holds=at_most(lambda inputs: (len(inputs["shards"]) - 1) * inputs["shards"][0].nbytes),
            beside=("*/tensors/*",),
            shows="bytes_sent",
            cases=(*PLAIN, HALF),
            needs=("any_shard",),
        ),
        Property(
            "messages",
            "One all-gather for all tensors: every message takes a latency, however small it is.",
            evidence="ledger",
            holds=at_most(lambda inputs: len(inputs["shards"]) - 1, "messages"),
            beside=("*/tensors/*",),
            cases=PLAIN,
            needs=("padding_dropped",),
        ),
    ),
    hints=(
        "How many elements do the shards of all ranks have together, and how many do the tensors have?",
        "comm.all_gather_single fills a row of P times the shard. `row.split(sizes)` gives views, and so "
        "does `piece.view(shape)`.",
        "Make an empty row like the shard, P times as long, and gather into it. The size of a shape is math.prod of "
        "it, 1 for (). Cut the row off behind the sum of all sizes, split it, and view each piece.",
    ),
    keeps=("shard",),
    promises={
        "any number of ranks": (ONE, "gathered", MANY),
        "zeros behind the last of n": ("padding_dropped",),
        "any floating dtype": ("any_shard", HALF, FINE),
        "It may be a view": (VIEW,),
        "() and sizes of 0 too": ("every_shape",),
        "m = ceil(n / P)": ("padding_dropped",),
        "of these shapes, in the dtype of shard": ("gathered", "kind_of_the_result"),
        "a list of tensors": ("kind_of_the_result",),
        "all views of one tensor that has at most P * m elements": ("one_row",),
        "one all-gather: (P - 1) * m elements from each rank": ("bytes", "messages"),
        "shard is not changed": ("arguments_unchanged",),
        "share no memory with it, nor with those of other calls": ("own_memory",),
        "when the caller lets go of the tensors, it is freed": ("let_go",),
        "Before you return you may hold a second row": ("memory",),
    },
    measured=(DEEP,),
    seconds=20.0,
)
