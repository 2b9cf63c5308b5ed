"""`shard_flat(params, size, rank)`: one rank's piece of all parameters, one after the other.

All ranks' pieces are asked for. Two parameters are one only if they are one object; others may hold equal numbers, or
lie in one memory. A caller goes on using its parameters, so what they are is looked at afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from course.exercises.fsdp.flat import one_tensor
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
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
from course.performing.forms import at_once, in_dtype, put, strided, times, transposed

EVEN, UNEVEN, ONE, MANY = "4 ranks, 12 elements", "4 ranks, 10 elements", "one rank", "more ranks than elements"
TIED, EQUAL, ODD = "tied parameters", "equal numbers and a view", "a number and an empty one"
SINGLE, EMPTY = "one parameter", "no elements at all"


def cases(rng: torch.Generator) -> list[Case]:
    """Sizes that the ranks divide and do not, and one peculiarity in each of the others."""

    def case(name: str, size: int, *shapes: tuple[int, ...], uses: list[int] | None = None) -> Case:
        values: list[Any] = [1 + normal(rng, *shape).abs() for shape in shapes]  # no zeros, which padding has
        every: list[Any] = list(range(len(shapes))) if uses is None else uses
        return Case(name=name, inputs={"values": values, "uses": every, "size": size, "frozen": []})

    equal = case(EQUAL, 3, (2, 2), (2, 2), (4,), uses=[0, 1, 2, 3])  # 3 is a view of the last one
    values: Any = equal.inputs["values"]
    values[1] = values[0].clone()
    empty = case(EMPTY, 2, (0,), (0, 3))
    empty.inputs["values"] = [torch.zeros(0, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.float64)]
    return [
        case(UNEVEN, 4, (2, 3), (4,)),
        case(EVEN, 4, (2, 4), (4,)),
        case(ONE, 1, (2, 3), (2,)),
        case(SINGLE, 1, (5,)),
        case(MANY, 5, (2,), (1,)),
        case(TIED, 3, (2, 3), (4,), (2,), uses=[1, 0, 2, 0, 1]),
        equal,
        case(ODD, 2, (3,), (), (0, 2), (2, 1)),
        empty,
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The pieces of all ranks; what they hold when the parameters have changed; how much memory each keeps alive.

    Each rank has parameters of its own, rank 0 those of the inputs.
    """
    size = inputs["size"]
    made = [_parameters(inputs, [each.clone() if rank else each for each in inputs["values"]]) for rank in range(size)]
    lay = [each.data_ptr() for each in made[0]]
    shards = [
        one_tensor(answer([params[use] for use in inputs["uses"]], size, rank)) for rank, params in enumerate(made)
    ]
    return observe(
        {
            "shards": _by_rank(each.detach().clone() for each in shards),
            "later": _by_rank(map(_while_zero, made, shards)),
            "kept": [each.untyped_storage().nbytes() // each.element_size() for each in shards],
            "recorded": [each.requires_grad for each in shards],
            "after": {
                "grads": {str(k): each.grad for k, each in enumerate(made[0])},
                "requires_grad": [each.requires_grad for each in made[0]],
                "same_memory": [each.data_ptr() == place for each, place in zip(made[0], lay, strict=True)],
            },
        }
    )


def _parameters(inputs: Inputs, values: list[Tensor]) -> list[Parameter]:
    """Parameters with gradients, unless they are frozen, and behind them a view of the last of them."""
    made = [Parameter(each, requires_grad=k not in inputs["frozen"]) for k, each in enumerate(values)]
    for each in made:
        each.grad = 2 * each.detach() if each.requires_grad else None
    return [*made, Parameter(made[-1].detach())]


def _by_rank(tensors: Iterable[Tensor]) -> dict[str, Any]:
    return {str(rank): each for rank, each in enumerate(tensors)}


@torch.no_grad()
def _while_zero(made: list[Parameter], shard: Tensor) -> Tensor:
    """What the shard holds while all parameters are 0."""
    before = [each.clone() for each in made]
    for each in made:
        each.zero_()
    later = shard.clone()
    for each, value in zip(made, before, strict=True):
        each.copy_(value)
    return later


def _in_their_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    wanted = inputs["values"][0].dtype
    found = {each.dtype for rank in range(inputs["size"]) if isinstance(each := got[f"shards/{rank}"], Tensor)}
    others = ", ".join(str(each) for each in found - {wanted})
    return f"{others} in place of {wanted}" if others else None


HALF, BRAIN = (in_dtype(each, "values") for each in (torch.float16, torch.bfloat16))
FINER = times("with more digits than float32 has", 1 + 2.0**-40, "values")
DOUBLE = at_once("in float64", in_dtype(torch.float64, "values"), FINER)
SOME = put("a parameter that requires no gradient", frozen=[0])
TURNED, SCATTERED = transposed("values"), strided("values", of=EVEN)

EXERCISE = Exercise(
    id="fsdp.shard_flat",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "pieces",
            "Write all parameters one after the other, and cut the row into equal pieces: rank 0 has the first.",
            points=2,
            keys=("shards/*",),
            roundings=0,
            cases=(EVEN, ONE, SINGLE),
        ),
        Property(
            "padded",
            "All pieces have ceil(n / size) elements. Where the row ends inside of a piece, zeros follow, and a rank "
            "may have nothing else.",
            points=2,
            keys=("shards/*",),
            roundings=0,
            cases=(EVEN, UNEVEN, MANY),
            needs=("pieces",),
        ),
        Property(
            "tied_once",
            "A parameter that stands in the list twice is one object. It counts where it stands first; another one "
            "that holds the same numbers, or lies in the same memory, is another parameter.",
            keys=("shards/*",),
            roundings=0,
            cases=(TIED, EQUAL),
            needs=("pieces",),
        ),
        Property(
            "every_shape",
            "A parameter of shape () has one element, and one with a size of 0 has none. Without any "
            "elements each piece has the shape (0,).",
            keys=("shards/*",),
            roundings=0,
            cases=(ODD, EMPTY),
            needs=("pieces",),
        ),
        Property(
            "own_memory",
            "The piece must be all that is kept. A slice is a view: as long as it lives, so does the whole row; and a "
            "view of a parameter changes with it.",
            points=2,
            keys=("kept", "later/*"),
            roundings=0,
            cases=(EVEN, UNEVEN, ONE, SINGLE, MANY),
            needs=("padded",),
        ),
        Property(
            "no_gradient",
            "Parameters require a gradient, so that what you compute from them is recorded, and the graph keeps them "
            "alive. Use `detach()` or `torch.no_grad()`.",
            keys=("recorded",),
            cases=(EVEN, UNEVEN),
            needs=("pieces",),
        ),
        Property(
            "dtype",
            "The piece has the dtype of the parameters.",
            holds=_in_their_dtype,
            cases=(UNEVEN, EMPTY, HALF.name, BRAIN.name, DOUBLE.name),
            needs=("pieces",),
        ),
        dataclasses.replace(
            arguments_unchanged(needs=("pieces",)),
            hint="The caller goes on with its parameters. Their numbers, the memory in which they lie, `grad` and "
            "`requires_grad` must be what they were: `detach()` gives you a tensor of your own.",
        ),
        every_form(needs=("padded",), keys=("shards/*",), roundings=0),
    ),
    hints=(
        "How long must a piece be, so that `size` of them hold all n elements? What does the last one hold then?",
        "dict.fromkeys(params) has each parameter once. torch.cat puts flat tensors one after the other.",
        "m = n / size, rounded up. Make m zeros in the right dtype, take the slice from rank * m to (rank + 1) * m of "
        "the row, which may be shorter or empty, and copy it to the front of the zeros.",
    ),
    keeps=("values",),
    forms=(HALF, BRAIN, DOUBLE, TURNED, SCATTERED, SOME),
    promises={
        "of any shapes": ("every_shape", "pieces"),
        "Some may require a gradient, and others not": ("no_gradient", SOME.name),
        "() and sizes of 0 too": ("every_shape", EMPTY),
        "any strides": (TURNED.name, SCATTERED.name),
        "one floating dtype": ("dtype", HALF.name, BRAIN.name, DOUBLE.name),
        "stands here several times, as the same object, and counts where it stands first": ("tied_once",),
        "may exceed the number of elements": (MANY,),
        "0 to size - 1": ("pieces",),
        "m = ceil(n / size) of the n elements of all parameters": ("pieces", "padded"),
        "zeros where that is beyond n": ("padded",),
        "in their dtype": ("dtype",),
        "keeps no other memory alive": ("own_memory",),
        "requires no gradient": ("no_gradient",),
        "The parameters are not changed, nor are their gradients and `requires_grad`": ("arguments_unchanged",),
    },
)
