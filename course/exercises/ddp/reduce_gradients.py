"""`reduce_gradients(comm, model, weight)`: the gradient of the whole batch, from those of unequal shards.

Gradients are given as numbers, as backward would leave them: a rank has none where its samples did not use a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course.exercises.ddp.models import PARAMETERS, TRAINED, built, dtypes, gradients, part
from course.exercises.ddp.tensors import between_bfloat16
from course.exercises.ddp.traffic import Holds, at_most
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

EQUAL, UNEQUAL, ONE = "equal shards", "unequal shards", "one rank"
MISSING, EMPTY, UNUSED = "unused by some ranks", "ranks without samples", "unused by all ranks"
NOWHERE = "no gradient on any rank"
DTYPES, DOUBLE, HALF = "three dtypes, and a transposed weight", "float64", "float16, 140,000 samples"
TIED, MANY = "tied weights", "8 ranks, many small parameters"
SLACK, FLAG = 1_000, 16  # bytes for what the ranks must agree on, in all and for each parameter


def cases(rng: torch.Generator) -> list[Case]:
    """Equal and unequal shards, with and without gradients on some and on all ranks, and two judged by cost.

    Gradients are from 1 to 4, so that no sum cancels, and that 70,000 times any of them is beyond float16; those of
    `zero` are 0. Those of 140,000 samples are whole numbers, whose mean is exact in float16 and not in bfloat16, and so
    small ones that 140,000th parts of them are 0 in float16. Of several dtypes float32's are beyond float16. Where
    cost is judged they are float64, so that no answer sends wider numbers than it was given. Where ranks have no
    samples the others' number is odd, so that no share of it is exact in float32.
    """

    def gradient(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return (1 + 3 * torch.rand(shape, generator=rng, dtype=torch.float64)).to(dtype)

    def case(
        name: str, weights: list[int], *tensors: tuple[Any, ...], none: Sequence[tuple[int, str]] = (), zero: str = ""
    ) -> Case:
        """Tensors: a part, its shape, and its dtype where it is not float32. none: ranks and names without gradient."""
        kinds = [(each, shape, *dtype, torch.float32)[:3] for each, shape, *dtype in tensors]
        values: list[Any] = [[normal(rng, *shape, dtype=dtype) for _, shape, dtype in kinds] for _ in weights]
        parts: list[Any] = [each for each, *_ in kinds]
        grads: list[Any] = [
            {
                each["name"]: None
                if weight == 0 or (rank, each["name"]) in none
                else gradient(shape, dtype) * (each["name"] != zero)
                for each, shape, dtype in kinds
                if each["kind"] in TRAINED
            }
            for rank, weight in enumerate(weights)
        ]
        return Case(name=name, inputs={"parts": parts, "values": values, "grads": grads, "weights": list(weights)})

    first, second, third = (part("body.0.weight"), (3, 2)), (part("body.1.bias"), (4,)), (part("scale"), ())
    frozen = (part("fixed", "frozen"), (3,))  # before `scale`, in the order of parameters()
    tied = (part("head.weight", "tied", "embed.weight"), (0,))
    few = integer(rng, 1, 4)
    halves = [(part(name), (3, 2), torch.float16) for name in ("body.0.weight", "scale")]
    half = case(HALF, [70_000] * 2, *halves)
    half.inputs["grads"] = [
        {"body.0.weight": 2 * between_bfloat16(rng, 3, 2), "scale": 2.0**-20 * between_bfloat16(rng, 3, 2)}
        for _ in range(2)
    ]
    several = case(
        DTYPES,
        [few + 1, few + 3],
        (part("a"), (6,), torch.float16),  # in bfloat16 the tolerance would be a quarter
        second,
        (part("b", "transposed"), (2, 3)),
        (part("c"), (5,), torch.float64),
    )
    for mine in several.inputs["grads"]:  # type: ignore[union-attr]
        mine["body.1.bias"] *= 2.0**20  # type: ignore[index, call-overload, operator]
    return [
        case(EQUAL, [few] * 2, first, second),
        case(UNEQUAL, [few + 7, few, few + 2], first, second, third),
        case(ONE, [few], first, second),
        case(
            MISSING,
            [few, few + 5, few + 2],
            first,
            second,
            third,
            none=[(1, "body.1.bias"), (0, "scale"), (2, "scale")],
        ),
        case(EMPTY, [0, few, few + 5, 0], (*first, torch.float64), (*second, torch.float64)),
        case(
            UNUSED,
            [few, few + 3, 0],
            first,
            frozen,
            second,
            third,
            none=[(0, "body.1.bias"), (1, "body.1.bias"), (1, "scale")],
            zero="scale",
        ),
        case(NOWHERE, [few, few + 1], first, none=[(0, "body.0.weight"), (1, "body.0.weight")]),
        several,
        case(DOUBLE, [few, few + 1], (part("c"), (5,), torch.float64)),  # shares that float32 cannot hold
        half,
        case(
            TIED,
            [few, few + 2, few + 5, few, few],
            (part("embed.weight"), (20, 20), torch.float64),
            tied,
            (*second, torch.float64),
        ),
        case(
            MANY,
            [few, few + 2, few + 5, few + 1, few, few, few + 3, few],
            (part("scales", "numbers"), (140,), torch.float64),
            (part("embed.weight", "frozen"), (20, 20), torch.float64),
            (part("head.weight"), (20, 20), torch.float64),
            none=[(rank, "head.weight") for rank in range(8)],
        ),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its model, its gradients and its weight."""
    return [
        {"parts": inputs["parts"], "values": values, "grads": grads, "weight": weight}
        for values, grads, weight in zip(inputs["values"], inputs["grads"], inputs["weights"], strict=True)
    ]


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """The gradients afterwards, and whether the model has kept its dtypes."""
    model = built(inputs["parts"], inputs["values"])
    kinds = {each["name"]: each["kind"] for each in inputs["parts"]}
    for name, grad in inputs["grads"].items():
        if kinds[name] == "numbers":
            for each, number in zip(model.get_submodule(name).parameters(), () if grad is None else grad, strict=False):
                each.grad = number.clone()
        else:
            model.get_parameter(name).grad = grad.t() if grad is not None and kinds[name] == "transposed" else grad
    before = dtypes(model)
    answer(comm, model, inputs["weight"])
    return observe({"grads": dict(gradients(inputs["parts"], model)), "dtypes": dtypes(model) == before})


def two_for_each() -> Holds:
    """Whether no rank sent more than two numbers for each element of a gradient, and a little more."""

    def most(inputs: Inputs) -> int:
        found: dict[str, int] = {
            name: grad.nbytes for grads in inputs["grads"] for name, grad in grads.items() if grad is not None
        }
        pairs = zip(inputs["parts"], inputs["values"][0], strict=True)
        kinds = [(each["kind"], len(value) if each["kind"] == "numbers" else 1) for each, value in pairs]
        return 2 * sum(found.values()) + FLAG * sum(count for kind, count in kinds if kind in PARAMETERS) + SLACK

    return at_most(most)


EXERCISE = Exercise(
    id="ddp.reduce_gradients",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "reduce", "broadcast", "all_gather", "gather"),
    properties=(
        Property(
            "equal_shards",
            "Where all ranks have as many samples, the gradient of the whole batch is the mean of theirs.",
            keys=("*/grads/*",),
            cases=(EQUAL, ONE),
        ),
        Property(
            "unequal_shards",
            "Every sample of the whole batch has the same say, so that the gradient of a rank with more of them counts "
            "for more; and what they are divided by is the number of all.",
            points=2,
            keys=("*/grads/*",),
            cases=(UNEQUAL, EQUAL),
        ),
        Property(
            "unused_by_some",
            "A parameter that this rank's samples did not use has a gradient of 0 here, and its samples count in the "
            "mean. The rank must make the same calls as the others, and ends with the same gradient as they.",
            points=2,
            keys=("*/grads/*",),
            cases=(MISSING,),
        ),
        Property(
            "without_samples",
            "A rank of the weight 0 has no gradient at all, and still takes part in every call, in each parameter's "
            "dtype: the others wait for it, and it needs the result.",
            keys=("*/grads/*",),
            cases=(EMPTY,),
        ),
        Property(
            "unused_by_all",
            "Where no rank has a gradient `.grad` stays None, and so it does in frozen parameters: an optimizer skips "
            "None, but takes a step with zeros. No rank can know this alone, so they have to tell each other. Zeros "
            "are a gradient, too.",
            keys=("*/grads/*",),
            cases=(UNUSED, NOWHERE),
        ),
        Property(
            "dtypes_and_strides",
            "Gradients have the dtypes of their parameters, of which a model may have several, and any strides.",
            keys=("*/grads/*", "*/dtypes"),
            cases=(DTYPES, DOUBLE),
        ),
        Property(
            "large_weights",
            "float16 ends at 65,504, and a gradient times a number of samples is soon beyond that, as is a sum of "
            "samples. Scale each gradient by its share of all samples, which is at most 1, before you add.",
            keys=("*/grads/*",),
            in_half=2,
            cases=(HALF,),
        ),
        Property(
            "tied_once",
            "A parameter with two names has one gradient, which is sent once. `model.parameters()` gives it once.",
            evidence="ledger",
            holds=two_for_each(),
            beside=("*/grads/*", "*/dtypes"),
            cases=(TIED,),
            needs=("equal_shards",),
        ),
        Property(
            "bytes",
            "Let the ranks' gradients be added on their way, as all_reduce does: no rank needs to see each of the "
            "others'. Nothing travels for a parameter that is frozen, or that nobody has used, but a flag.",
            evidence="ledger",
            holds=two_for_each(),
            beside=("*/grads/*", "*/dtypes"),
            shows="bytes_sent",
            cases=(MANY,),
            needs=("equal_shards",),
        ),
    ),
    hints=(
        "Three samples here and one there: what must the two local means be multiplied by, so that their sum is the "
        "mean of four? And which number does no rank know alone?",
        "Begin with one small all_reduce of what all must know: how many samples there are, and for each parameter on "
        "how many ranks it has a gradient. Then every rank can make the same calls.",
        "Then for each parameter that has a gradient somewhere: take your gradient, or zeros, times your share of all "
        "samples; all_reduce the sum; put it into `.grad`.",
    ),
    promises={
        "on any number of ranks": (ONE, UNEQUAL, MANY),
        "some of them frozen or under two names (tied)": (UNUSED, "tied_once"),
        "of any shapes, strides and floating dtypes": ("dtypes_and_strides", UNEQUAL),
        "the gradient of this rank's mean loss, in the parameter's dtype": ("equal_shards", "dtypes_and_strides"),
        "None where its samples did not use the parameter": ("unused_by_some", "unused_by_all"),
        "which may differ from rank to rank": ("unequal_shards",),
        "0 on some ranks, where every `.grad` is None": ("without_samples",),
        "may exceed the largest number of a gradient's dtype": ("large_weights",),
        "the gradient of the mean loss over the samples of all ranks": ("equal_shards", "unequal_shards"),
        "A gradient that some ranks do not have counts as 0 there": ("unused_by_some",),
        "where no rank has one, and in frozen parameters, `.grad` stays None": ("unused_by_all",),
        "at most two numbers for each element of a gradient, 16 bytes a parameter and 1,000 more": (
            "bytes",
            "tied_once",
        ),
    },
    seconds=20.0,
)
