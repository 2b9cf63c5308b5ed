"""`linear_vjp(dout, x, w)`: what flows back through out = x @ w.T + b, for any number of batch dimensions."""

from __future__ import annotations

from functools import partial

import torch

from course.exercises.computational_graphs.tensors import (
    every_digit_in_float64,
    tensors_in_the_dtype_of,
    unchanged,
    with_dtypes,
)
from course.performing.draws import near_one, signs
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
    outputs,
)
from course.performing.forms import (
    alone,
    at_once,
    between_calls,
    cut,
    in_dtype,
    leaves,
    offset,
    put,
    strided,
    times,
    transposed,
)
from course.tree import Tree


def cases(rng: torch.Generator) -> list[Case]:
    """None to four batch dimensions; a square w, on which a transposed product has the right shape too; float64 once.

    Signs go by columns, such that no sum cancels: the tolerance is relative to what comes out.
    """

    def case(name: str, batch: tuple[int, ...], inputs: int, out: int, dtype: torch.dtype = torch.float32) -> Case:
        draw = partial(near_one, rng, dtype=dtype)
        of_dout, of_x, of_dx = (signs(rng, count) for count in (out, inputs, inputs))
        dout, x = draw(of_dout, *batch, out), draw(of_x, *batch, inputs)
        return Case(name=name, inputs={"dout": dout, "x": x, "w": draw(of_dout[:, None] * of_dx, out, inputs)})

    return [
        case("one batch dimension", (4,), 3, 2),
        case("square weight", (5,), 3, 3),
        case("no batch dimension", (), 3, 2),
        case("two batch dimensions", (2, 5), 3, 4),
        case("four batch dimensions", (2, 3, 1, 2), 4, 2),
        case("in float64", (3,), 2, 4, torch.float64),
        case(BATCHES_IN_FLOAT64, (2, 3), 2, 4, torch.float64),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, and the three gradients."""
    gradients = outputs(call_once(answer, inputs, inputs["dout"], inputs["x"], inputs["w"]), *GRADIENTS)
    return observe(with_dtypes(gradients))


GRADIENTS = ("dx", "dw", "db")
ONE_BATCH = ("one batch dimension", "square weight")
NO_ROWS, BATCHES_IN_FLOAT64 = "no rows, in float64", "two batch dimensions, in float64"
ANY_BATCH = ("no batch dimension", "two batch dimensions", "four batch dimensions")
HALVES = ("in float16", "in bfloat16")
ALL = ("dout", "x", "w")
LEAVES = at_once("pieces of a longer tensor that require a gradient", offset(*ALL), leaves(*ALL), of=ANY_BATCH[1])


def _ones(dtype: torch.dtype, *rows: int) -> dict[str, Tree]:
    shapes = {"dout": (*rows, 2), "x": (*rows, 3), "w": (2, 3)}
    return {name: torch.ones(shape, dtype=dtype) for name, shape in shapes.items()}


EXERCISE = Exercise(
    id="computational_graphs.linear_vjp",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "gradient_of_the_input",
            "out is linear in x: one row of dx is one row of dout times w, and no transpose is needed for that.",
            keys=("dx",),
            cases=ONE_BATCH,
        ),
        Property(
            "gradient_of_the_weight",
            "dw has the shape of w, (out, in). Every row of the batch used the same w, so its shares add up.",
            points=2,
            keys=("dw",),
            cases=ONE_BATCH,
        ),
        Property(
            "gradient_of_the_bias",
            "Every row of the batch added the same b: its gradient is the sum of all rows of dout.",
            keys=("db",),
            cases=ONE_BATCH,
        ),
        Property(
            "any_number_of_batch_dimensions",
            "However many batch dimensions there are, also none: each row of out was made alike. For dw and db fold "
            "them into one and sum over it; dx has all of them, as x does.",
            points=2,
            keys=GRADIENTS,
            cases=ANY_BATCH,
        ),
        every_digit_in_float64(*GRADIENTS, cases=("in float64", BATCHES_IN_FLOAT64)),
        Property(
            "dtype_of_the_inputs",
            "All three gradients are tensors in the dtype of the inputs: float64 where those are, and not otherwise.",
            holds=tensors_in_the_dtype_of("x", *GRADIENTS),
            cases=(*ONE_BATCH, "in float64", BATCHES_IN_FLOAT64, *HALVES, "no batch dimension, in float16", NO_ROWS),
            needs=("gradient_of_the_input", "gradient_of_the_weight", "gradient_of_the_bias"),
        ),
        unchanged(
            needs=("gradient_of_the_input", "gradient_of_the_weight"),
            cases=(*ONE_BATCH, *ANY_BATCH, "in float64", LEAVES.name),
        ),
        every_form(needs=("gradient_of_the_input",), keys=GRADIENTS),
    ),
    hints=(
        "Which shapes must dx, dw and db have, and which dimensions of dout do not occur in each of them?",
        "Make every array of rows a matrix first: dout (rows, out) and x (rows, in). A dimension that does not occur "
        "in a gradient is one that the forward pass broadcast over, so it is summed.",
        "dx: rows of dout times w. dw: a product over the rows that has the shape (out, in). db: the sum over the "
        "rows. Only dx gets its batch dimensions back.",
    ),
    keeps=("dout", "x", "w"),
    forms=(
        in_dtype(torch.float16, *ALL),
        at_once("in bfloat16", times("beyond float16", 2.0**17, "dout"), in_dtype(torch.bfloat16, *ALL)),
        strided(*ALL, of="two batch dimensions"),
        transposed(*ALL, of="two batch dimensions"),
        LEAVES,
        cut("one row", dout=(0, 1), x=(0, 1)),
        between_calls(*ALL),
        cut("a batch dimension of 1 beside another", dout=(0, 1), x=(0, 1), of="two batch dimensions"),
        cut("one input", x=(1, 1), w=(1, 1)),
        cut("one output", dout=(1, 1), w=(0, 1)),
        at_once(NO_ROWS, in_dtype(torch.float64, *ALL), cut("", dout=(0, 0), x=(0, 0))),
        put(
            "300 equal rows in bfloat16",  # one by one in bfloat16 they add up to 256
            _ones(torch.bfloat16, 300),
        ),
        put(
            "3,000 equal rows in float16",  # one by one in float16 they add up to 2048
            _ones(torch.float16, 3000),
        ),
        alone(put("300 sequences of a row in bfloat16", _ones(torch.bfloat16, 300, 1))),
        in_dtype(torch.float16, *ALL, of="no batch dimension", name="no batch dimension, in float16"),
    ),
    promises={
        "all three have one floating dtype": ("in float16", "in bfloat16", "in float64"),
        "(..., out)": ("any_number_of_batch_dimensions",),
        "(..., in)": ("any_number_of_batch_dimensions",),
        "any number of batch dimensions, also none": ("no batch dimension", "four batch dimensions"),
        "(out, in)": ("one input", "one output"),
        "of the shapes of x, w and b": ("any_number_of_batch_dimensions", "one row", NO_ROWS),
        "in the dtype of the inputs": ("dtype_of_the_inputs", "every_digit_in_float64", "in float16", "in bfloat16"),
        "added up in float32 or finer": ("300 equal rows in bfloat16", "300 sequences of a row in bfloat16"),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
    removes=("torch.autograd", "torch.func"),
)
