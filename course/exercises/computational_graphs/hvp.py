"""`hvp(f, x, v)`: the Hessian of a scalar function times a vector, by differentiating twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.errors import CourseError, WrongOutput
from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, arguments_unchanged, observe
from course.tree import Leaf

Function = Callable[[Tensor], Tensor]

PERCENT = 2**45  # roundings of float64 that make 1/128: what any finite difference with a sensible step reaches
EXACT = 128  # two passes over two products of at most 6 terms and a sine, with some cancellation
LONG = 100  # numbers in the x that is too long for a Hessian
OPERATIONS = 1_000  # right answers take 48 to 133 on the long x, a loop over its entries 5,600 and more
LENGTHS = 4  # right answers make tensors as long as x; the Hessian is LONG times as long


class NoGraph(CourseError):
    """torch was asked for a derivative of something that it holds no graph of."""


def cases(rng: torch.Generator) -> list[Case]:
    """f(x) = x.Q x / 2 + sum of c_i sin(m_i.x) in float64; three vectors at one point, and x of several shapes.

    Float64 leaves eleven digits or fewer to finite differences, so that their error shows. The last x is long, and its
    f holds no matrix.
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
    return [
        case("quadratic", square, vector(4), vector(4)),
        case("waves", wavy, x, v),
        case("another v", wavy, x, w),
        case("2 v - 3 w", wavy, x, 2 * v - 3 * w),
        case("another x", wavy, vector(5), v),
        case("x is a matrix", function(6, 3), vector(3, 2), vector(3, 2)),
        case("x is a number", function(1, 1), vector(), vector() + 2),
        case("a long x", {}, vector(LONG), vector(LONG)),
    ]


def _function(inputs: Inputs) -> Function:
    """The f that the case describes; it takes x of any shape."""

    def f(x: Tensor) -> Tensor:
        flat = x.reshape(-1)
        waves: Tensor = inputs["weights"] * torch.sin(inputs["mix"] @ flat)
        quadratic: Tensor = flat @ (inputs["quadratic"] @ flat) / 2
        return quadratic + waves.sum()

    return f if "quadratic" in inputs else _neighbours


def _neighbours(x: Tensor) -> Tensor:
    """An f of a vector in which each entry meets the next one only."""
    return torch.sin(x[1:] * x[:-1]).sum() + (x**3).sum()


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(f, x, v)` once; the result is read in x's dtype, so that rounding it hides nothing."""
    f, x, v = _function(inputs), inputs["x"], inputs["v"]
    meter = _Meter()
    try:
        with meter:
            result = answer(f, x, v)
    except RuntimeError as error:
        raise (_no_graph(error) or error).with_traceback(error.__traceback__) from None
    if isinstance(result, (tuple, list)):
        came = type(result).__name__
        raise WrongOutput(f"must return one tensor, got a {came}; torch.autograd.grad returns a tuple, take its [0]")
    product = result.to(x.dtype) if isinstance(result, Tensor) else result
    return observe({"hv": product, "after": {"x_itself": _constant(x)}}, meter.costs(x))


def _constant(x: Tensor) -> Tensor | str:
    """x as it was given, a tensor that no gradient is recorded for; else what became of it."""
    return "x requires grad" if x.requires_grad else x.clone()


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operations in the body of the `with`, and the bytes of the largest tensor that they made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and made.layout == torch.strided:
                self.largest = max(self.largest, made.untyped_storage().nbytes())
        return result

    def costs(self, x: Tensor) -> dict[str, Leaf]:
        """Both counts as limits that they keep, rounded up tenfold at a time: answers differ in style. A short x has
        none: its Hessian is as cheap as anything.
        """
        if x.numel() < LONG:
            return {}
        return {
            "operations_up_to": _tenfold(OPERATIONS, self.operations),
            "largest_tensor_up_to": _tenfold(LENGTHS * LONG, self.largest // x.element_size()),
        }


def _tenfold(limit: int, count: int) -> int:
    """The first of limit, 10 limit, 100 limit, ... that is not below `count`."""
    while limit < count:
        limit *= 10
    return limit


def _in_a_few_passes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Both counts within their limits: a loop over the entries of x breaks the first, a Hessian the second."""
    operations, largest = got["operations_up_to"], got["largest_tensor_up_to"]
    if not isinstance(operations, int) or operations > OPERATIONS:
        return f"up to {operations:,} operations, where {OPERATIONS:,} are more than enough"
    if not isinstance(largest, int) or largest > LENGTHS * LONG:
        return f"a tensor of up to {largest:,} numbers, for an x of {LONG}"
    return None


def _no_graph(error: RuntimeError) -> NoGraph | None:
    """The error by a name of its own, where torch says that it found no graph."""
    message = str(error)
    told = "does not require grad" in message or "not have been used in the graph" in message
    return NoGraph(f"torch holds no graph to differentiate through: {message}") if told else None


EXERCISE = Exercise(
    id="computational_graphs.hvp",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            name="quadratic_function",
            points=1,
            keys=("hv",),
            cases=("quadratic",),
            roundings=PERCENT,
            hint="For f(x) = x.Q x / 2 the gradient is (Q + Q^T) x / 2, and its derivative along v is (Q + Q^T) v / 2.",
        ),
        Property(
            name="curvature_at_x",
            points=1,
            keys=("hv",),
            cases=("waves", "another x", "a long x"),
            roundings=PERCENT,
            hint="The Hessian of a function that is not quadratic changes with x: differentiate at the x "
            "that you are given.",
        ),
        Property(
            name="linear_in_v",
            points=1,
            keys=("hv",),
            cases=("waves", "another v", "2 v - 3 w"),
            roundings=PERCENT,
            hint="H (2 v - 3 w) must be 2 H v - 3 H w: every entry of the result is a sum over all entries "
            "of v, and nothing is added that does not depend on v.",
        ),
        Property(
            name="every_shape_of_x",
            points=1,
            keys=("hv",),
            cases=("x is a matrix", "x is a number"),
            roundings=PERCENT,
            hint="x, v and the result have one shape, whatever it is: gradient times v is summed over all "
            "of its entries.",
        ),
        Property(
            name="exact_to_rounding",
            points=2,
            keys=("hv",),
            cases=("quadratic", "waves", "another v", "2 v - 3 w", "another x", "a long x"),
            roundings=EXACT,
            needs=("quadratic_function", "curvature_at_x"),
            hint="Differentiating twice is exact to some 15 digits here. A difference of two gradients is "
            "not, whatever the step: over a large one the gradient bends, over a small one its digits cancel. "
            "Nor is float32, which keeps 7 digits.",
        ),
        Property(
            name="never_builds_the_hessian",
            points=2,
            evidence="ledger",
            holds=_in_a_few_passes,
            cases=("a long x",),
            needs=("curvature_at_x",),
            hint=f"For an x of {LONG} numbers the Hessian has {LONG**2:,}. H v takes two backward passes, however long "
            f"x is: at most {OPERATIONS:,} operations here, and no tensor of more than {LENGTHS} times x's numbers.",
        ),
        dataclasses.replace(
            arguments_unchanged(needs=("curvature_at_x",)),
            hint="An argument was changed: in place (+=, sub_), or by `requires_grad_()` on the caller's x. Work on a "
            "new tensor: x.detach() is one, and holds x's numbers.",
        ),
    ),
    hints=(
        "The gradient g(x) is a vector. Which number, made of g(x) and a fixed v, has H v as its gradient?",
        "Make the gradient in a way that records a graph of the gradient itself (create_graph), multiply it "
        "with v, sum, and differentiate once more by x.",
        "Differentiate once so that the gradient has a graph of its own, make one number of it and v, differentiate "
        "that number.",
    ),
    keeps=("x", "v"),
    removes=("torch.autograd.functional",),
    seconds=10.0,  # the first torch.func.jvp of a process imports for 1 to 3 s
)
