"""`hvp(f, x, v)`: the Hessian of a scalar function times a vector, by differentiating twice."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.errors import CourseError, WrongOutput
from course.exercises.computational_graphs import long_x
from course.exercises.computational_graphs.long_x import LENGTHS, OPERATIONS, PIECE, Function
from course.exercises.computational_graphs.tensors import (
    AnotherShape,
    tensors_in_the_dtype_of,
    with_dtypes,
)
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    every_form,
    observe,
)
from course.performing.forms import at_once, in_dtype, leaves, strided, times, transposed
from course.performing.pledges import Sample

PERCENT = 2**45  # roundings of float64 that make 1/128: what any finite difference with a sensible step reaches
NEAR = 2.0**-6  # from x to where f ends
EXACT = 128  # two passes over two products of at most 6 terms and a sine, with some cancellation
SHORT = (
    "quadratic",
    "waves",
    "another v",
    "2 v - 3 w",
    "another x",
    "x is a matrix",
    "x of shape (1, 3, 1)",
    "x is a number",
)


class NoGraph(CourseError):
    """torch was asked for a derivative of something that it holds no graph of."""


def cases(rng: torch.Generator) -> list[Case]:
    """f(x) = x.Q x / 2 + sum of c_i sin(m_i.x) and more in float64; three vectors at one point, and x of
    several shapes.

    The cases that are changed into hard forms have a positive v: half precision has no digits to lose by cancelling.

    Float64 leaves eleven digits or fewer to finite differences, so that their error shows. The last x is long, is drawn
    by the probe, and its f holds no matrix.
    """

    def function(size: int, waves: int) -> dict[str, Tensor]:
        quadratic = torch.rand(size, size, generator=rng, dtype=torch.float64) + 1
        mix = torch.rand(waves, size, generator=rng, dtype=torch.float64) * 0.5 + 0.5
        return {"quadratic": quadratic, "mix": mix, "weights": torch.linspace(0.5, 1.0, waves, dtype=torch.float64)}

    def vector(*shape: int) -> Tensor:
        return torch.rand(shape, generator=rng, dtype=torch.float64) * 2 - 1

    def case(name: str, f: dict[str, Tensor], x: Tensor, v: Tensor) -> Case:
        return Case(name=name, inputs={**f, "x": x, "v": v})

    square, wavy = function(4, 0), function(5, 4)
    x, v, w = vector(5), vector(5), vector(5)
    rows = [
        (square, vector(4).abs() + 0.1, vector(4).abs() + torch.linspace(1.0, 2.5, 4)),
        (wavy, x, v),
        (wavy, x, w),
        (wavy, x, 2 * v - 3 * w),
        (wavy, vector(5), v),
        (function(6, 3), vector(3, 2), vector(3, 2).abs() + 1.5),
        (function(3, 2), vector(1, 3, 1), vector(1, 3, 1)),
        (function(1, 1), vector(), vector() + 2),
    ]
    return [
        *(case(name, *parts) for name, parts in zip(SHORT, rows, strict=True)),
        long_x.long_case(rng),
    ]


def _function(inputs: Inputs) -> Function:
    """The f that the case describes. It takes tensors in the shape of the case's x, in any dtype.

    Where it has waves, it ends next to the case's x, at a logarithm of 0, which no difference can step over; and it has
    a relu, which complex numbers have not.
    """
    shape, at = tuple(inputs["x"].shape), inputs["x"].detach().flatten().clone()

    def f(x: Tensor) -> Tensor:
        if tuple(x.shape) != shape:
            raise AnotherShape(f"f takes a tensor of x's shape, {shape}, got one of shape {tuple(x.shape)}")
        flat = x.reshape(-1)
        waves: Tensor = inputs["weights"].to(x.dtype) * torch.sin(inputs["mix"].to(x.dtype) @ flat)
        quadratic: Tensor = flat @ (inputs["quadratic"].to(x.dtype) @ flat) / 2
        if not len(waves):
            return quadratic
        near = torch.log(flat - at.to(x.dtype) + NEAR).sum() * NEAR**2 / 64
        return quadratic + waves.sum() + (torch.relu(flat) ** 3).sum() - near

    return f


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """Calls `answer(f, x, v)` once; hv is read in x's dtype, so that rounding it hides nothing."""
    if "seeds" in inputs:
        return long_x.observe_long(lambda *given: _in_dtype_of_x(_result(answer, *given), given[1]), inputs, ask)
    x = inputs["x"]
    inputs["v"] = x if isinstance(inputs["v"], str) else inputs["v"]
    for given in (x, inputs["v"]):
        given.grad = torch.ones_like(given) if given.requires_grad else None
    hv = _result(answer, _function(inputs), x, inputs["v"])
    seen = {
        **with_dtypes({"hv": hv}),
        "hv": _in_dtype_of_x(hv, x),
        "carries_a_graph": isinstance(hv, Tensor) and hv.requires_grad,
        "after": {f"{name}.grad": "none" if inputs[name].grad is None else inputs[name].grad for name in ("x", "v")},
    }
    return observe(seen)


def _result(answer: Answer, f: Function, x: Tensor, v: Tensor) -> Any:
    """What one call returns. Raises WrongOutput on a tuple, NoGraph where torch found none."""
    try:
        result = answer(f, x, v)
    except RuntimeError as error:
        if "does not require grad" in str(error) or "not have been used in the graph" in str(error):
            graphless = NoGraph(f"torch holds no graph to differentiate through: {error}")
            raise graphless.with_traceback(error.__traceback__) from None
        raise
    if isinstance(result, (tuple, list)):
        came = type(result).__name__
        raise WrongOutput(f"must return one tensor, got a {came}; torch.autograd.grad returns a tuple, take its [0]")
    return result


def _in_dtype_of_x(result: Any, x: Tensor) -> Any:
    return result.to(x.dtype) if isinstance(result, Tensor) else result


def _zero(name: str, *, but: int = 0) -> Form:
    """This vector with a 0 in every place, but for the last ones."""

    def change(case: Case) -> Case:
        vector = case.inputs[name]
        assert isinstance(vector, Tensor)
        places = torch.arange(len(vector)) >= len(vector) - but
        return dataclasses.replace(case, inputs={**case.inputs, name: vector * places})

    return Form(name=f"{name} is 0" if not but else f"{name} is 0 but at its end", change=change, of="quadratic")


def _one_tensor(case: Case) -> Case:
    """v is x itself, the same tensor: what marks x marks v too, and makes v no constant."""
    return dataclasses.replace(case, inputs={**case.inputs, "x": case.inputs["v"], "v": "x"})


LEAVES = leaves("x", "v", of="x is a matrix")

EXERCISE = Exercise(
    id="computational_graphs.hvp",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "quadratic_function",
            "For f(x) = x.Q x / 2 the gradient is (Q + Q^T) x / 2, and its derivative along v is (Q + Q^T) v / 2.",
            keys=("hv",),
            cases=("quadratic",),
            roundings=PERCENT,
        ),
        Property(
            "curvature_at_x",
            "The Hessian of a function that is not quadratic changes with x: differentiate at the x "
            "that you are given.",
            keys=("hv",),
            cases=("waves", "another x"),
            roundings=PERCENT,
        ),
        Property(
            "linear_in_v",
            "H (2 v - 3 w) must be 2 H v - 3 H w: every entry of the result is a sum over all entries "
            "of v, and nothing is added that does not depend on v.",
            keys=("hv",),
            cases=("waves", "another v", "2 v - 3 w"),
            roundings=PERCENT,
        ),
        Property(
            "every_shape_of_x",
            "x, v and the result have one shape, whatever it is, and f takes a tensor of that shape: gradient times v "
            "is summed over all of its entries.",
            keys=("hv",),
            cases=("x is a matrix", "x of shape (1, 3, 1)", "x is a number"),
            roundings=PERCENT,
        ),
        Property(
            "exact_to_rounding",
            "Differentiating twice is exact to some 15 digits here. A difference of two gradients is "
            "not, whatever the step: over a large one the gradient bends, over a small one its digits cancel. "
            "Nor is float32, which keeps 7 digits.",
            points=2,
            keys=("hv",),
            cases=("quadratic", "waves", "another v", "2 v - 3 w", "another x"),
            roundings=EXACT,
            needs=("quadratic_function", "curvature_at_x"),
        ),
        Property(
            "never_builds_the_hessian",
            f"For an x of {PIECE} numbers the Hessian has {PIECE**2:,}. H v takes two backward passes, however "
            f"long x is: at most {OPERATIONS:,} operations here, and no tensor of more than {LENGTHS} times x's "
            "numbers.",
            points=2,
            evidence="ledger",
            holds=long_x.in_a_few_passes,
            beside=("hv",),
            roundings=EXACT,
            cases=(long_x.NAME,),
            needs=("curvature_at_x",),
        ),
        Property(
            "dtype_of_x",
            "The result is a tensor in the dtype of x, whatever that is: float32 where x is, and not otherwise.",
            holds=tensors_in_the_dtype_of("x", "hv"),
            cases=("quadratic", "waves", "in float32", "in bfloat16", "x of shape (1, 3, 1)", "x is a number"),
            needs=("curvature_at_x",),
        ),
        Property(
            "result_without_a_graph",
            "Your result requires grad: it carries the graph of both passes, which stays in memory as long as the "
            "result does. Record a graph for the first derivative only, or detach the result, also where the caller's "
            "x or v requires grad.",
            keys=("carries_a_graph",),
            cases=(*SHORT, LEAVES.name),
            needs=("curvature_at_x",),
        ),
        Property(
            "arguments_unchanged",
            "An argument was changed in place (+=, sub_), by `requires_grad_()` on the caller's x, or by `backward()`: "
            "it fills `grad`. Work on a new tensor: x.detach() is one, and holds x's numbers.",
            keys=("after/*",),
            roundings=0,
            cases=(*SHORT, LEAVES.name),
            needs=("curvature_at_x",),
        ),
        every_form(needs=("curvature_at_x",), keys=("hv",)),
    ),
    hints=(
        "The gradient g(x) is a vector. Which number, made of g(x) and a fixed v, has H v as its gradient?",
        "Make the gradient in a way that records a graph of the gradient itself (create_graph), multiply it "
        "with v, sum, and differentiate once more by x.",
        "Differentiate once so that the gradient has a graph of its own, make one number of it and v, differentiate "
        "that number.",
    ),
    keeps=("x", "v"),
    forms=(
        in_dtype(torch.float32, "x", "v"),
        at_once("in bfloat16", times("beyond float16", 2.0**17, "v"), in_dtype(torch.bfloat16, "x", "v")),
        _zero("x"),
        _zero("v"),
        _zero("v", but=1),
        strided("x", "v", of="x is a matrix"),
        LEAVES,
        at_once("v is x, transposed", Form(name="v is x", change=_one_tensor), transposed("x"), of="x is a matrix"),
    ),
    promises={
        "a function of one tensor of the shape of x": ("every_shape_of_x",),
        "not linear": ("quadratic_function",),
        "may be one tensor": ("v is x, transposed",),
        "of the same shape and floating dtype": ("every_shape_of_x", "every_form", "dtype_of_x"),
        "of the shape and dtype of x": ("every_shape_of_x", "dtype_of_x", "exact_to_rounding"),
        "It carries no graph": ("result_without_a_graph",),
        "x and v are not changed, nor are their `requires_grad` and `grad`": ("arguments_unchanged",),
        "a few passes through f": ("never_builds_the_hessian",),
        "for an x of 100 numbers no tensor of more than 4 times its numbers": ("never_builds_the_hessian",),
        "at most 1,000 of torch's operations": ("never_builds_the_hessian",),
    },
    removes=("torch.autograd.functional",),
    oracle=partial(Sample, look=long_x.LOOK),
    measured=(long_x.NAME,),
    seconds=10.0,  # the first torch.func.jvp of a process imports for 1 to 3 s
)
