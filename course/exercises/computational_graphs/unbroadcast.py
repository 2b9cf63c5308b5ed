"""`unbroadcast(grad, shape)`: from the gradient of a broadcast result back to that of the operand."""

from __future__ import annotations

import torch

from course.exercises.computational_graphs.tensors import every_digit_in_float64, tensors_in_the_dtype_of, with_dtypes
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    call_once,
    every_form,
    observe,
)
from course.performing.forms import at_once, between_calls, cut, in_dtype, put, strided, transposed

LEADING = ("one leading dimension", "two leading dimensions", "square", "four leading dimensions")
SIZE_ONE = ("a column", "a row", "two at once", "square column", "no rows")
BOTH = ("leading and size 1", "leading, and inner 1s")
NOTHING = ("same shape", "same shape with a 1")
NUMBER = ("a vector to a number", "a matrix to a number", "a number to a number")
FINE = ("in float64", "no rows")
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {  # of the result, and of the operand
    "one leading dimension": ((4, 3), (3,)),
    "two leading dimensions": ((2, 5, 4, 3), (4, 3)),
    "square": ((3, 3), (3,)),  # the wrong axis has the right length
    "four leading dimensions": ((1, 2, 3, 2, 3), (3,)),
    "a column": ((4, 3), (4, 1)),
    "a row": ((4, 3), (1, 3)),
    "two at once": ((2, 3, 4), (1, 3, 1)),
    "square column": ((3, 3), (3, 1)),
    "no rows": ((0, 3), (1, 3)),  # size 1 broadcasts to size 0 too: a sum over nothing is 0
    "leading and size 1": ((4, 4, 3), (4, 1)),  # the leading one has a size of the operand
    "leading, and inner 1s": ((3, 3, 3, 3), (1, 3, 1)),
    "same shape": ((4, 3), (4, 3)),
    "same shape with a 1": ((3, 1, 2), (3, 1, 2)),
    "a vector to a number": ((5,), ()),
    "a matrix to a number": ((3, 4), ()),
    "a number to a number": ((), ()),
    "in float64": ((3, 2, 4, 3), (4, 1)),
}


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients between 1/2 and 3/2, all negative in every second case: no sum loses digits by cancellation."""

    def case(name: str, sign: int) -> Case:
        result, operand = SHAPES[name]
        grad = torch.rand(result, generator=rng, dtype=torch.float64 if name in FINE else torch.float32) + 0.5
        return Case(name=name, inputs={"grad": sign * grad, "shape": list(operand)})

    return [case(name, 1 - 2 * (at % 2)) for at, name in enumerate(SHAPES)]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(grad, shape)` once, `shape` as a tuple."""
    return observe(with_dtypes({"summed": call_once(answer, inputs, inputs["grad"], tuple(inputs["shape"]))}))


EXERCISE = Exercise(
    id="computational_graphs.unbroadcast",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "leading_dimensions",
            "Shapes are aligned at their last dimensions. Those that only `grad` has stand in front: sum over them, "
            "and let them vanish.",
            points=2,
            keys=("summed",),
            cases=LEADING,
        ),
        Property(
            "dimensions_of_size_1",
            "Where the operand has size 1, one number met the whole dimension: sum over it, and keep it as size 1.",
            points=2,
            keys=("summed",),
            cases=SIZE_ONE,
        ),
        Property(
            "both_at_once",
            "Dimension i of `shape` is dimension i + (grad.dim() - len(shape)) of `grad` until the leading ones are "
            "gone: sum those first, or count from the back.",
            keys=("summed",),
            cases=BOTH,
        ),
        Property(
            "down_to_a_number",
            "For the shape () every dimension is a leading one. What is left is a tensor without dimensions.",
            keys=("summed",),
            cases=NUMBER,
        ),
        Property(
            "same_shape_stays",
            "Where `grad` already has the operand's shape, nothing is summed. In torch `grad.sum(dim=())` does not sum "
            "over nothing: it sums over everything.",
            keys=("summed",),
            cases=NOTHING,
            needs=("leading_dimensions",),
        ),
        every_digit_in_float64("summed"),
        Property(
            "dtype_of_grad",
            "The result is a tensor in the dtype of `grad`, for the shape () too. A sum keeps it; torch.zeros and "
            "torch.tensor choose another one unless you name it.",
            holds=tensors_in_the_dtype_of("grad", "summed"),
            cases=(
                "one leading dimension",
                *NOTHING,
                *NUMBER,
                *FINE,
                "in float16",
                "in float16, to a number",
                "in bfloat16",
            ),
            needs=("leading_dimensions",),
        ),
        every_form(needs=("leading_dimensions",), keys=("summed",)),
    ),
    hints=(
        "One number of the operand was copied to several places of the result. How does a change of it reach the loss?",
        "First sum over the dimensions that the operand lacks (they stand in front), then over those where its size is "
        "1. Which of the two sums keeps its dimension?",
        "Count the dimensions that only `grad` has and sum them away; then, among those that are left, sum where "
        "`shape` has a 1, without losing the dimension.",
    ),
    keeps=("grad",),
    forms=(
        in_dtype(torch.float16, "grad", of="leading and size 1"),
        in_dtype(torch.bfloat16, "grad", of="leading and size 1"),
        in_dtype(torch.float16, "grad", of="a matrix to a number", name="in float16, to a number"),
        at_once("views, between two other calls", strided("grad"), between_calls("grad"), of="two leading dimensions"),
        at_once(
            "views in float64 for a number", strided("grad"), in_dtype(torch.float64, "grad"), of="a matrix to a number"
        ),
        transposed("grad", of="two leading dimensions"),
        cut("a leading 1", grad=(0, 1)),
        cut("a 1 that is no repetition", grad=(2, 1), of="leading and size 1"),
        cut("no leading rows", grad=(0, 0)),
        put("no numbers", {"shape/0": 0}, of="no rows"),
        put(
            "300 equal rows in bfloat16",  # one by one in bfloat16 they add up to 256
            grad=torch.ones(300, 2, dtype=torch.bfloat16),
            of="a matrix to a number",
        ),
        put("300 equal columns in bfloat16", grad=torch.ones(4, 300, dtype=torch.bfloat16), of="a column"),
        put("5,000 equal rows in float16", grad=torch.ones(5000, 3, dtype=torch.float16)),  # one by one: 2048
    ),
    promises={
        "any floating dtype": ("dtype_of_grad", "every_digit_in_float64", "in float16", "in bfloat16"),
        "it broadcasts to grad.shape": ("leading_dimensions", "dimensions_of_size_1", "both_at_once", "every_form"),
        "It may be ()": ("down_to_a_number",),
        "it may equal grad.shape": ("same_shape_stays",),
        "a tensor of shape `shape`": ("dtype_of_grad", "both_at_once"),
        "the dtype of `grad`": ("dtype_of_grad",),
        "over every dimension that broadcasting repeated, `grad` is summed": ("both_at_once", "a leading 1"),
        "`grad` itself is not changed": ("arguments_unchanged",),
        "where nothing was repeated, it or a view of it may be returned": ("same_shape_stays",),
        "in float32 or finer": (
            "300 equal rows in bfloat16",
            "300 equal columns in bfloat16",
            "5,000 equal rows in float16",
        ),
    },
    removes=("torch.Tensor.sum_to_size", "torch.autograd", "torch.func"),
)
