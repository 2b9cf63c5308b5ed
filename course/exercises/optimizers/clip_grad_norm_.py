"""`clip_grad_norm_(grads, max_norm)`: all gradients shortened together, in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.performing.compare import as_numbers
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
)
from course.performing.forms import inside, put, strided, transposed
from course.performing.refusals import LEFT, all_refused, refused

SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (5,), (2, 3, 2), ())  # a weight, a bias, a kernel, a single number
TWO = ((3, 4), ())
NONSENSE = {"a negative max_norm": -1.0, "one just below 0": -1e-9, "nan": math.nan}
FOUR = {torch.float16: 300.0, torch.bfloat16: 1e5, torch.float32: 1e5, torch.float64: 1e4}
BESIDE = "beside float32, and its squares beyond it"
HALF = 4  # roundings: of two norms, the factor and the product; more of them in bfloat16 would allow anything
ABOVE, REFUSING = ("one tensor", "several shapes"), ("one tensor", "no gradients")


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients above the limit and below it, some that are all zero, tiny, infinite or undefined, and none at all.

    What is not finite stands in the first tensor, so that the others show what it does to the rest. Close to the limit
    the norm, 5, has no rounding. Numbers in float16 have squares beyond it.
    """

    def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [normal(rng, *shape, dtype=dtype) for shape in shapes]

    def share(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=rng))

    def norm(grads: list[Tensor]) -> float:
        return math.sqrt(sum(float(g.double().square().sum()) for g in grads))

    def case(name: str, grads: list[Tensor], max_norm: float) -> Case:
        inputs: dict[str, Any] = {"grads": grads, "max_norm": max_norm, "asks_for_refusals": name in REFUSING}
        return Case(name=name, inputs=inputs)

    def above(name: str, grads: list[Tensor]) -> Case:
        return case(name, grads, share(0.2, 0.6) * norm(grads))

    def with_a(value: float) -> list[Tensor]:
        grads = draw(*TWO)
        grads[0][1, 2] = value
        return grads

    def large(size: float, dtype: torch.dtype) -> Tensor:
        return (draw((2, 3))[0].sign() * size * share(1.0, 1.5)).to(dtype)

    three_four = [torch.tensor([3.0], dtype=torch.float64), torch.tensor([[4.0]], dtype=torch.float64)]
    tiny = [g * (share(2e-6, 4e-6) / norm([g])) for g in draw((3, 4))]
    below = draw(*TWO)
    return [
        above("one tensor", [g + g.sign() for g in draw((6,))]),
        above("several shapes", draw(*SHAPES)),
        above("in float16", [large(300.0, torch.float16), large(1000.0, torch.float16)]),
        above("four dtypes", [large(size, dtype) for dtype, size in FOUR.items()]),
        above("in float64", draw(*TWO, dtype=torch.float64)),
        case("below the limit", below, share(1.5, 4.0) * norm(below)),
        case("2e-6 below the limit", three_four, 5 + 2e-6),
        case("5e-7 below the limit", three_four, 5 + 5e-7),
        case("all zero", [torch.zeros(shape) for shape in TWO], share(0.5, 2.0)),
        case("tiny", tiny, 1e-6),
        case("an infinity", with_a(math.inf), share(0.5, 2.0)),
        case("a nan", with_a(math.nan), share(0.5, 2.0)),
        case("no gradients", [], share(0.5, 2.0)),
        above(BESIDE, [large(1.0, torch.float32), large(1e25, torch.float64)]),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What is returned, and what the memory of the tensors that went in holds afterwards; and what is refused."""
    grads = [inside(g) if g.is_contiguous() else g for g in inputs["grads"]]
    memory = [g.detach() for g in grads]  # `g.data = ...` would give g another
    given = [[g.clone() for g in grads] for _ in NONSENSE]
    norm = answer(list(grads), inputs["max_norm"])
    exact = norm.detach().double() if isinstance(norm, Tensor) else norm  # float32 would get float32's tolerance
    values: dict[str, Any] = {"norm": exact, "clipped": [g.clone() for g in memory]}
    if inputs["asks_for_refusals"]:

        def call(others: list[Tensor], limit: float) -> Callable[[], object]:
            return lambda: answer(list(others), limit)

        limits = zip(NONSENSE.items(), given, strict=True)
        came = refused({words: call(others, limit) for (words, limit), others in limits})
        values["refused"] = {**came, "left": dict(zip(NONSENSE, given, strict=True))}
    return observe(values)


def _refused_in_time(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every limit that makes no sense was refused, and the gradients are as before."""
    for key, wanted in expected.items():
        a, b = as_numbers(got.get(key)), as_numbers(wanted)
        if key.startswith(LEFT) and not (a is not None and b is not None and torch.equal(a, b)):
            return f"{key.removeprefix(LEFT)}: a gradient was changed"
    return all_refused(inputs, got, expected)


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
            "A gradient above the limit is multiplied by max_norm over its norm, in place: the memory of "
            "the caller's own tensor must change (mul_, copy_, *=). A product under a new name, or put in its place by "
            "`.data =`, changes nothing there.",
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
            "half_precision",
            "float16 ends at 65504: the square of 300 is infinite in it. Add up squares in float32 (g.float(), or "
            "torch.linalg.vector_norm, which does so); the tensors keep their dtypes, which may differ.",
            cases=("in float16", "four dtypes"),
            roundings=HALF,
        ),
        Property(
            "untouched_below_the_limit",
            "Below the limit the factor is 1, and each number stays as it is to the last bit: nothing is ever "
            "scaled up.",
            keys=("clipped/*",),
            roundings=0,
            cases=("below the limit", "2e-6 below the limit"),
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
            "The factor is max_norm / (norm + 1e-6), which shows where the norm is small; what is returned is the norm "
            "alone.",
            cases=("tiny",),
        ),
        Property(
            "digits_of_float64",
            "Where the gradients are in float64, neither norm nor factor may pass through a float32 tensor; and a norm "
            "within 1e-6 below the limit has a factor that is below 1 already.",
            cases=("in float64", "5e-7 below the limit", BESIDE),
        ),
        Property(
            "not_finite",
            "No special case: an infinite norm gives the factor 0, and 0 * inf is nan; a nan gives the factor "
            "nan. Beware of `if norm > max_norm` and of Python's min: a comparison with nan is false.",
            cases=("an infinity", "a nan"),
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
            "before anything is changed. nan is refused too, and `nan < 0` is false: ask `not max_norm >= 0`.",
            holds=_refused_in_time,
            cases=REFUSING,
            needs=("one_tensor",),
        ),
        every_form(needs=()),
    ),
    hints=(
        "If all gradients of a model were laid end to end as one long vector: what would be its norm, in terms of the "
        "norms of the pieces?",
        "One factor for all, never more than 1. Which expression for `at most 1` keeps a nan a nan?",
        "Refuse; return 0 for an empty list; the norm of the norms; the factor max_norm / (norm + 1e-6), limited to 1 "
        "by a tensor's own method; multiply each tensor in place; return the norm.",
    ),
    forms=(
        strided("grads", of="in float64"),
        transposed("grads", of="several shapes"),
        put("a tensor without numbers", {"grads/1": torch.zeros(0, 3)}, of="several shapes"),
        put("4,096 ones in float16", {"grads/0": torch.ones(4096, dtype=torch.float16)}),  # one by one: 2048
        put("4,096 ones in bfloat16", {"grads/0": torch.ones(4096, dtype=torch.bfloat16)}),  # one by one: 256
        put("a limit of 0", max_norm=0.0, of="below the limit"),
        put("a limit of inf", max_norm=math.inf, of="below the limit"),
    ),
    promises={
        "of any shapes, () and (0, 3) too": ("one_norm_for_all", "a tensor without numbers"),
        "views too": ("views that are not contiguous",),
        "in any floating dtypes, which may differ": ("half_precision", "four dtypes", "in float64", BESIDE),
        "The new numbers go into the memory of the very tensors": ("one_tensor",),
        "the smaller of 1 and max_norm / (norm + 1e-6)": ("every_digit_of_the_factor", "5e-7 below the limit"),
        "no bit changes": ("untouched_below_the_limit", "2e-6 below the limit"),
        "at least 0": ("a limit of 0",),
        "inf is allowed where the norm is finite": ("a limit of inf",),
        "the norm *before*": ("returns_the_norm_before",),
        "added up in float32": ("half_precision", "4,096 ones in float16", "4,096 ones in bfloat16"),
        "in float64 where the tensors are": ("digits_of_float64",),
        "may be rounded to a tensor's dtype": ("half_precision",),
        "may then be rounded to the tensors' dtype": ("half_precision",),
        "0 for an empty list": ("no_gradients",),
        "If the norm is inf, the factor is 0": ("not_finite", "an infinity"),
        "If the norm is nan, the factor is nan": ("not_finite", "a nan"),
        "before anything is changed": ("refuses_a_negative_limit",),
        "a negative max_norm": ("refuses_a_negative_limit",),
        "a max_norm that is nan": ("refuses_a_negative_limit",),
    },
    removes=("torch.nn.utils",),
    seconds=2.0,
)
