"""`broadcast_parameters(comm, model)`: every rank's model becomes rank 0's, in its own memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course.exercises.ddp.models import PARAMETERS, built, nbytes, part
from course.exercises.ddp.tensors import BEYOND_FLOAT16, BEYOND_FLOAT64, between_bfloat16, last_digits
from course.exercises.ddp.traffic import at_most
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

ONE, FIVE, NAN = "one rank", "5 ranks", "nan on the other ranks"
FROZEN, BUFFERS, DTYPES = "a frozen parameter", "buffers", "several dtypes"
TIED, VIEW, GRADS = "tied weights", "a transposed weight, and a buffer", "gradients"
BATCH_NORM = (part("norm.weight"), part("norm.running_mean", "buffer"), part("norm.num_batches_tracked", "buffer"))


def cases(rng: torch.Generator) -> list[Case]:
    """A nested model on one to five ranks, and one peculiarity in each of the others."""

    def one(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if dtype == torch.bool:
            return torch.randint(2, shape, generator=rng).bool()
        if dtype == torch.int64:  # an odd number that float64 cannot hold
            return torch.tensor(BEYOND_FLOAT64 + 2 * integer(rng, 1, 1000))
        if dtype == torch.float16:
            return between_bfloat16(rng, *shape)
        return normal(rng, *shape, dtype=dtype) * (BEYOND_FLOAT16 if dtype == torch.bfloat16 else 1)

    def case(name: str, ranks: int, *tensors: tuple[Any, ...], **more: Any) -> Case:
        """tensors: a part, its shape, and its dtype where it is not float32."""
        kinds = [(shape, *dtype, torch.float32)[:2] for _, shape, *dtype in tensors]
        values: list[Any] = [[one(*kind) for kind in kinds] for _ in range(ranks)]
        parts: list[Any] = [each for each, *_ in tensors]
        return Case(name=name, inputs={"parts": parts, "values": values, **more})

    weight, inner = (part("body.0.weight"), (3, 2)), (part("body.1.inner.bias"), (4,))
    single = case(NAN, 4, weight, inner)
    values: Any = single.inputs["values"]
    for other in (1, 3):
        values[other][0][0] = math.nan
        values[other][1][1] = math.inf
    values[0][0][2] = torch.tensor([-0.0, math.nan])
    values[2][0][2] = 0.0
    tied = (part("head.weight", "tied", "body.0.weight"), (0,))
    return [
        case("3 ranks", 3, weight, inner),
        case(FIVE, 5, weight, inner, (part("scale"), ())),
        case(ONE, 1, weight, inner),
        case(TIED, 3, (part("body.0.weight"), (20, 10)), inner, tied),
        case(FROZEN, 2, weight, (part("body.0.bias", "frozen"), (3,)), inner),
        case(
            BUFFERS,
            3,
            *zip(BATCH_NORM, [(3,), (3,), ()], [torch.float32, torch.float32, torch.int64], strict=True),
            (part("mask", "cache"), (7,), torch.bool),
            (part("angles", "cache"), (2, 3)),
            (part("body.angles", "shared", "angles"), (0,)),
        ),
        case(
            DTYPES,
            2,
            (part("a"), (5,), torch.bfloat16),
            (part("b"), (), torch.float16),
            (part("c"), (2, 2), torch.float64),
        ),
        case(VIEW, 2, (part("body.0.weight", "transposed"), (4, 3)), inner, (part("angles", "turned"), (2, 3))),
        case(
            GRADS,
            3,
            weight,
            (part("body.0.bias", "frozen"), (3,)),
            inner,
            grads=[{"body.0.weight": normal(rng, 3, 2)} for _ in range(3)],
        ),
        single,
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank the tensors of its model."""
    count = len(inputs["values"])
    grads = inputs.get("grads", [{}] * count)
    return [{"parts": inputs["parts"], "values": inputs["values"][at], "grads": grads[at]} for at in range(count)]


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """The model afterwards, and what lies then in the memory that it had before."""
    model = built(inputs["parts"], inputs["values"])
    for name, grad in inputs["grads"].items():
        model.get_parameter(name).grad = grad
    memory = {name: each.detach() for name, each in [*model.named_parameters(), *model.named_buffers()]}
    answer(comm, model)
    # By the names of before: who puts new objects in their places unties what was tied, which `memory` shows.
    parameters = {name: each for name, each in model.named_parameters() if name in memory}
    buffers = {name: each for name, each in model.named_buffers() if name in memory}
    return observe(
        {
            "parameters": {**parameters},
            "buffers": {**buffers},
            "whole": {name: last_digits(each, each) for name, each in buffers.items()},
            "signs": torch.cat(
                [each.detach().flatten().signbit() & (each == each).flatten() for each in parameters.values()]
            ),
            "memory": dict(memory),
            "grads": {name: each.grad for name, each in parameters.items()},
            "requires_grad": {name: each.requires_grad for name, each in parameters.items()},
        }
    )


EXERCISE = Exercise(
    id="ddp.broadcast_parameters",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("broadcast", "all_reduce", "all_gather"),
    properties=(
        Property(
            "parameters",
            "Afterwards every parameter of every rank, in all modules within modules, has rank 0's values. All ranks "
            "name the same source.",
            points=2,
            keys=("*/parameters/*",),
            roundings=0,
            cases=("3 ranks", FIVE, ONE, TIED),
        ),
        Property(
            "frozen_parameters",
            "A parameter that requires no gradient is part of the function, too, and gets no other chance to become "
            "the same everywhere.",
            keys=("*/parameters/*",),
            roundings=0,
            cases=(FROZEN,),
        ),
        Property(
            "buffers",
            "Buffers are part of the model: running means, the number of batches, which is a whole number, and masks "
            "that no state_dict holds (`persistent=False`). `model.buffers()` has them all.",
            points=2,
            keys=("*/buffers/*", "*/whole/*"),
            roundings=0,
            cases=(BUFFERS,),
        ),
        Property(
            "every_dtype",
            "Each tensor travels in its own dtype: parameters in several of them are no rarity.",
            keys=("*/parameters/*",),
            roundings=0,
            cases=(DTYPES,),
        ),
        Property(
            "whatever_the_others_hold",
            "What stands on the other ranks is overwritten, and must not be computed with: memory that nobody has "
            "initialised may hold nan, and 0 times nan is nan. Rank 0's are copied, -0.0 and nan, too.",
            keys=("*/parameters/*", "*/signs"),
            roundings=0,
            cases=(NAN,),
        ),
        Property(
            "views",
            "A parameter or a buffer need not be contiguous. `view` refuses to flatten such a tensor, and `reshape` "
            "makes a copy without a word: what is received there is lost. The verbs take tensors of any strides.",
            keys=("*/parameters/*", "*/buffers/*"),
            roundings=0,
            cases=(VIEW,),
        ),
        Property(
            "in_place",
            "The optimizer holds the parameters that it was given, and somebody may hold a view of their memory. Write "
            "into what is there: no new Parameter, and no new `.data`.",
            keys=("*/memory/*",),
            roundings=0,
            cases=("3 ranks", FIVE, TIED, BUFFERS, VIEW, FROZEN, DTYPES),
            needs=("parameters",),
        ),
        Property(
            "nothing_else",
            "`.grad` and `requires_grad` are each rank's own business: leave them as they are.",
            keys=("*/grads/*", "*/requires_grad/*"),
            roundings=0,
            cases=(GRADS,),
            needs=("parameters",),
        ),
        Property(
            "bytes",
            "Every tensor is sent once, also one that has two names, and broadcast is the verb for it: an all_reduce "
            "sends up to twice as much. `model.parameters()` gives a tied parameter once; a state_dict, or "
            "`remove_duplicate=False`, gives it as often as it has names. Half precision takes 2 bytes.",
            evidence="ledger",
            holds=at_most(nbytes(*PARAMETERS, "buffer", "cache")),
            beside=("*/parameters/*",),
            shows="bytes_sent",
            roundings=0,
            cases=("3 ranks", FIVE, TIED, FROZEN, DTYPES, BUFFERS),
            needs=("parameters",),
        ),
    ),
    hints=(
        "What does a model consist of, besides the tensors that an optimizer changes?",
        "`model.parameters()` and `model.buffers()` go through all modules, and give each tensor once.",
        "Broadcast each of these tensors from rank 0. A Parameter that requires a gradient may be written to under "
        "`torch.no_grad()`, or as `detach()` of it, which shares its memory.",
    ),
    promises={
        "any nesting": ("parameters",),
        "of the same structure on all ranks": ("3 ranks", FIVE, ONE),
        "any shapes, strides and dtypes": ("every_dtype", "views", FIVE),
        "some of them frozen": ("frozen_parameters",),
        "or under two names (tied)": ("bytes", TIED),
        "persistent or not, some under two names": ("buffers", "bytes"),
        "rank 0's values, bit for bit": ("parameters", "buffers", NAN),
        "whatever the other ranks hold, nan too": ("whatever_the_others_hold",),
        "with broadcast, all_reduce and all_gather": ("3 ranks",),
        "each tensor keeps its memory": ("in_place",),
        "no rank sends more bytes than its model has": ("bytes",),
        "`.grad` and `requires_grad` are not changed": ("nothing_else",),
    },
)
