"""`unbroadcast(grad, shape)`: from the gradient of a broadcast result back to that of the operand."""

from __future__ import annotations

import torch

from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, in_the_dtype_of, observe

LEADING = ("one leading dimension", "two leading dimensions", "square", "in float64")
SIZE_ONE = ("a column", "a row", "two at once", "square column", "no rows")
BOTH = ("leading and size 1", "leading, and inner 1s")
NOTHING = ("same shape", "same shape with a 1")
NUMBER = ("a vector to a number", "a matrix to a number", "a number to a number")
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {  # of the result, and of the operand
    "one leading dimension": ((4, 3), (3,)),
    "two leading dimensions": ((2, 5, 4, 3), (4, 3)),
    "square": ((3, 3), (3,)),  # the wrong axis has the right length
    "in float64": ((4, 3), (3,)),
    "a column": ((4, 3), (4, 1)),
    "a row": ((4, 3), (1, 3)),
    "two at once": ((2, 3, 4), (1, 3, 1)),
    "square column": ((3, 3), (3, 1)),
    "no rows": ((0, 3), (1, 3)),  # size 1 broadcasts to size 0 too: a sum over nothing is 0
    "leading and size 1": ((2, 4, 3), (4, 1)),
    "leading, and inner 1s": ((3, 3, 3, 3), (1, 3, 1)),
    "same shape": ((4, 3), (4, 3)),
    "same shape with a 1": ((3, 1, 2), (3, 1, 2)),
    "a vector to a number": ((5,), ()),
    "a matrix to a number": ((3, 4), ()),
    "a number to a number": ((), ()),
}


def cases(rng: torch.Generator) -> list[Case]:
    """Gradients between 1/2 and 3/2: positive, so that no sum loses digits by cancellation."""

    def case(name: str) -> Case:
        result, operand = SHAPES[name]
        grad = torch.rand(result, generator=rng, dtype=torch.float64 if name == "in float64" else torch.float32) + 0.5
        return Case(name=name, inputs={"grad": grad, "shape": list(operand)})

    return [case(name) for name in SHAPES]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(grad, shape)` once, `shape` as a tuple."""
    return observe({"summed": answer(inputs["grad"], tuple(inputs["shape"]))})


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
            cases=LEADING,
        ),
        Property(
            "dimensions_of_size_1",
            "Where the operand has size 1, one number met the whole dimension: sum over it, and keep it as size 1.",
            points=2,
            cases=SIZE_ONE,
        ),
        Property(
            "both_at_once",
            "Dimension i of `shape` is dimension i + (grad.dim() - len(shape)) of `grad` until the leading ones are "
            "gone: sum those first, or count from the back.",
            cases=BOTH,
        ),
        Property(
            "down_to_a_number",
            "For the shape () every dimension is a leading one. What is left is a tensor without dimensions.",
            cases=NUMBER,
        ),
        Property(
            "same_shape_stays",
            "Where `grad` already has the operand's shape, nothing is summed. In torch `grad.sum(dim=())` does not sum "
            "over nothing: it sums over everything.",
            cases=NOTHING,
            needs=("leading_dimensions",),
        ),
        Property(
            "dtype_of_grad",
            "The result has the dtype of `grad`. A sum keeps it; torch.zeros and torch.tensor choose another one "
            "unless you name it.",
            holds=in_the_dtype_of("grad", "summed"),
            cases=("one leading dimension", "in float64"),
            needs=("leading_dimensions",),
        ),
    ),
    hints=(
        "One number of the operand was copied to several places of the result. How does a change of it reach the loss?",
        "First sum over the dimensions that the operand lacks (they stand in front), then over those where its size is "
        "1. Which of the two sums keeps its dimension?",
        "Count the dimensions that only `grad` has and sum them away; then, among those that are left, sum where "
        "`shape` has a 1, without losing the dimension.",
    ),
    keeps=("grad",),
    removes=("torch.Tensor.sum_to_size", "torch.autograd", "torch.func"),
)
