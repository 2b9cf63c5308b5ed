"""`make_buckets(params, cap)`: which gradients travel together, in the order in which backward completes them.

Parameters are made here, from shapes and dtypes, and all hold ones: two of them are one only if they are one object.
"""

from __future__ import annotations

from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

SMALL, FULL, LARGE = "small parameters", "buckets full to the byte", "larger than a bucket"
FROZEN, ALL_FROZEN, TIED, NUMBERS = "some are frozen", "all are frozen", "tied", "one number each, tied"
EMPTY, MIXED, OUT_OF_TURN = "some without elements", "dtypes in turn", "one dtype seldom"
BETWEEN, DOUBLE, HALVES = "a large frozen one between", "float64", "both half precisions"
ONE_DTYPE = (SMALL, FULL, LARGE, FROZEN, ALL_FROZEN, TIED, NUMBERS, BETWEEN, EMPTY)
DTYPES = {"d": "float64", "f": "float32", "b": "bfloat16", "h": "float16"}


def cases(rng: torch.Generator) -> list[Case]:
    """Numbers of elements in forward order, a letter for each dtype, and what stands in the list twice."""

    def some(count: int, low: int = 2, high: int = 7) -> list[int]:
        return [integer(rng, low, high) for _ in range(count)]

    def case(name: str, sizes: list[int], cap: int, letters: str = "", **more: Any) -> Case:
        shapes: list[Any] = [[2, size // 2] if size % 2 == 0 else [size] for size in sizes]
        dtypes: list[Any] = [DTYPES[letter] for letter in letters or "f" * len(sizes)]
        others: dict[str, Any] = {"frozen": [], "uses": list(range(len(sizes))), **more}
        return Case(name=name, inputs={"shapes": shapes, "dtypes": dtypes, "cap": cap, **others})

    a, b = some(2, 1, 5)
    numbers: dict[str, Any] = {"uses": [0, 1, 2, 3, 0, 4, 2]}
    return [
        case(SMALL, some(11), 48),
        case(FULL, [a, b, 9 - a - b, 4, 1, 4], 36),
        case(LARGE, [*some(2, 2, 5), 30, *some(3, 1, 3), 25], 40),
        case(FROZEN, some(8), 32, frozen=[0, 3, 4, 7]),
        case(ALL_FROZEN, some(2), 32, frozen=[0, 1]),
        case(TIED, some(7), 40, uses=[0, 1, 2, 3, 2, 4, 5, 1, 6, 0]),
        case(NUMBERS, [1] * 5, 8, **numbers),
        case(MIXED, some(9), 32, "fbfbdfbfd"),
        case(BETWEEN, [2, 3, 30, 1, 2, 30, 4], 32, frozen=[2, 5]),
        case(DOUBLE, [3, 2, 2, 1, 2], 32, "ddddd"),
        case(EMPTY, [4, 0, 5, 0, 3, 0, 9, 0], 32),
        case(HALVES, some(8), 24, "bhhbhbbh"),
        case(OUT_OF_TURN, [*some(2, 3), 2, 4, 5, 5, 4], 28, "fffbffb"),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The buckets as numbers of parameters (-1: none of ours), one after the other, and sorted; the list afterwards."""
    made = [
        torch.nn.Parameter(torch.ones(shape, dtype=getattr(torch, dtype)), requires_grad=number not in inputs["frozen"])
        for number, (shape, dtype) in enumerate(zip(inputs["shapes"], inputs["dtypes"], strict=True))
    ]
    number = {id(p): place for place, p in enumerate(made)}
    params = [made[use] for use in inputs["uses"]]
    buckets = [[number.get(id(p), -1) for p in bucket] for bucket in answer(params, inputs["cap"])]
    order = [place for bucket in buckets for place in bucket]
    after = {"params": [number.get(id(p), -1) for p in params]}
    values: dict[str, Any] = {"buckets": buckets, "order": order, "members": sorted(order), "after": after}
    return observe(values)


EXERCISE = Exercise(
    id="ddp.make_buckets",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "each_once",
            "Every parameter that requires a gradient stands in one bucket, once, the last one too. One that is tied "
            "is one object, which stands in the list twice; others may hold equal numbers.",
            points=2,
            keys=("members*",),
        ),
        Property(
            "as_backward_completes_them",
            "Backward begins with what forward used last. What was used twice has its whole gradient when backward "
            "has passed the first of its uses.",
            points=2,
            keys=("order*",),
            cases=ONE_DTYPE,
            needs=("each_once",),
        ),
        Property(
            "full_and_within_the_cap",
            "Count bytes. A bucket takes the next parameter as long as both have no more than the cap together; else "
            "it is closed for good, and a new one begins with this parameter.",
            points=2,
            keys=("buckets*",),
            cases=ONE_DTYPE,
            needs=("each_once",),
        ),
        Property(
            "one_dtype_in_each",
            "Each dtype has an open bucket of its own, so that parameters of another one in between close nothing. At "
            "the end look at the last parameter of each bucket: where it stands says when the bucket is complete.",
            points=2,
            keys=("buckets*",),
            cases=(MIXED, HALVES, DOUBLE, OUT_OF_TURN),
            needs=("each_once",),
        ),
        Property(
            "list_unchanged",
            "The caller's list has changed: reverse() and pop() work in place. Use reversed(...) or [::-1].",
            keys=("after/*",),
            needs=("each_once",),
        ),
    ),
    hints=(
        "Whose gradient is complete first, and whose last, in a network whose first and last layer share a matrix?",
        "dict.fromkeys(params) has each parameter once, at its first use. Go through it from the end.",
        "Keep the open bucket of each dtype in a dict. Put each parameter there if the bytes allow it, else into a new "
        "bucket, which takes the place of the open one. Sort the buckets by the place of their last parameter.",
    ),
    promises={
        "the first one used first": ("as_backward_completes_them",),
        "may be frozen": ("each_once", FROZEN, ALL_FROZEN, BETWEEN),
        "stands here several times if it is used several times": (TIED, NUMBERS),
        "dtypes may differ": (MIXED, HALVES, DOUBLE, OUT_OF_TURN),
        "the first of its uses": ("as_backward_completes_them", TIED),
        "at least 1": ("full_and_within_the_cap",),
        "each that requires a gradient once": ("each_once",),
        "in the order in which backward completes their gradients": ("as_backward_completes_them",),
        "closed for good": ("full_and_within_the_cap", LARGE),
        "may be larger than the cap alone": (LARGE,),
        "one open bucket for each dtype. A parameter goes into that of its dtype": ("one_dtype_in_each",),
        "in the order in which they are complete": ("one_dtype_in_each",),
        "The list is not changed": ("list_unchanged",),
    },
)
