"""`clip_grad_norm_(grads, max_norm)`: all gradients shortened together, in place."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import all_refused, refused
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (5,), (2, 3, 2), ())  # a weight, a bias, a kernel, a single number


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients above the limit and below it, some that are all zero, tiny, infinite or undefined, and none at all.

    What is not finite stands in the first tensor, so that the others show what it does to the rest.
    """

    def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]

    def share(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=rng))

    def norm(grads: list[Tensor]) -> float:
        return math.sqrt(sum(float(g.double().square().sum()) for g in grads))

    def case(name: str, grads: list[Tensor], max_norm: float) -> Case:
        inputs: dict[str, Any] = {"grads": grads, "max_norm": max_norm}
        return Case(name=name, inputs=inputs)

    def above(name: str, grads: list[Tensor]) -> Case:
        return case(name, grads, share(0.2, 0.6) * norm(grads))

    def with_a(value: float) -> list[Tensor]:
        grads = draw(*SHAPES)
        grads[0][1, 2] = value
        return grads

    tiny = [g * (share(2e-6, 4e-6) / norm([g])) for g in draw((3, 4))]
    below = draw(*SHAPES)
    return [
        above("one tensor", draw((6,))),
        above("several shapes", draw(*SHAPES)),
        above("two dtypes", [*draw((3, 4)), *draw((5,), dtype=torch.float64), *draw((2, 2))]),
        above("in float64", draw(*SHAPES, dtype=torch.float64)),
        case("below the limit", below, share(1.5, 4.0) * norm(below)),
        case("all zero", [torch.zeros(shape) for shape in SHAPES], share(0.5, 2.0)),
        case("tiny", tiny, 1e-6),
        case("an infinity", with_a(math.inf), share(0.5, 2.0)),
        case("a nan", with_a(math.nan), share(0.5, 2.0)),
        case("no gradients", [], share(0.5, 2.0)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What is returned, and what the very tensors that went in hold afterwards; and what is refused."""
    grads = [g.clone() for g in inputs["grads"]]
    norm = answer(list(grads), inputs["max_norm"])
    values: dict[str, Any] = {"norm": norm, "clipped": grads}
    if grads:  # for an empty list it is a matter of style whether the limit is looked at
        others = [g.clone() for g in inputs["grads"]]
        values["refused"] = refused({"a negative max_norm": lambda: answer(others, -1.0)})
    return observe(values)


ABOVE = ("one tensor", "several shapes", "two dtypes")

EXERCISE = Exercise(
    id="optimizers.clip_grad_norm_",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "returns_the_norm_before",
            "What is returned is one number: the root of the sum of the squares of all numbers in all gradients, "
            "as they were before anything was scaled.",
            keys=("norm",),
            cases=ABOVE,
        ),
        Property(
            "one_tensor",
            "A gradient above the limit is multiplied by max_norm over its norm, in place: the caller's own "
            "tensor must change (mul_, *=), not a name that you give to a product.",
            keys=("clipped/*",),
            cases=("one tensor",),
        ),
        Property(
            "one_norm_for_all",
            "There is one norm and one factor, for all tensors together, whatever their shapes. All squares are "
            "added up before the root is taken.",
            points=2,
            keys=("clipped/*",),
            cases=ABOVE,
        ),
        Property(
            "untouched_below_the_limit",
            "Below the limit the factor is 1, and each number stays as it is to the last bit: nothing is ever "
            "scaled up.",
            keys=("clipped/*",),
            roundings=0,
            cases=("below the limit",),
            needs=("one_tensor",),
        ),
        Property(
            "zeros_stay_zero",
            "With gradients of norm 0, max_norm / norm divides by zero. The 1e-6 under the fraction prevents that.",
            cases=("all zero",),
            needs=("one_tensor",),
        ),
        Property(
            "every_digit_of_the_factor",
            "The factor is max_norm / (norm + 1e-6), which shows where the norm is small or there are many "
            "digits; what is returned is the norm alone. In float64 neither of them may pass through a float32 tensor.",
            cases=("tiny", "in float64"),
            needs=("one_tensor",),
        ),
        Property(
            "not_finite",
            "No special case: an infinite norm gives the factor 0, and 0 * inf is nan; a nan gives the factor "
            "nan. Beware of `if norm > max_norm` and of Python's min: a comparison with nan is false.",
            cases=("an infinity", "a nan"),
            needs=("one_norm_for_all",),
        ),
        Property(
            "no_gradients",
            "For an empty list the norm is 0. torch.stack and torch.cat want at least one tensor.",
            keys=("norm",),
            cases=("no gradients",),
            needs=("returns_the_norm_before",),
        ),
        Property(
            "refuses_a_negative_limit",
            "A norm is never negative, and a negative limit would turn every gradient around: raise a ValueError "
            "before anything is changed.",
            holds=all_refused,
            cases=("several shapes",),
            needs=("one_tensor",),
        ),
    ),
    hints=(
        "If all gradients of a model were laid end to end as one long vector: what would be its norm, in terms of the "
        "norms of the pieces?",
        "One factor for all, never more than 1. Which expression for `at most 1` keeps a nan a nan?",
        "Refuse; return 0 for an empty list; the norm of the norms; the factor max_norm / (norm + 1e-6), limited to 1 "
        "by a tensor's own method; multiply each tensor in place; return the norm.",
    ),
    removes=("torch.nn.utils",),
    seconds=2.0,
)
