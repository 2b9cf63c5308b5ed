"""`SaveLess`: an autograd.Function of y = x sigmoid(x) that keeps x and nothing else, and can be differentiated twice.

First and second derivatives are observed as numbers and compared with the reference's in float64; finite
differences (`torch.autograd.gradcheck`) would say the same less sharply.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.meter import kept_bytes


def cases(rng: torch.Generator) -> list[Case]:
    """Values, first and second derivatives on several shapes in float32 and float64, and memory at two sizes.

    The second derivative has roots near |x| = 2.4, where all digits cancel: dy and v are near 1, so that no such place
    outweighs the others, and a single x is one too.
    """

    def case(name: str, asks: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Case:
        def near_one() -> Tensor:
            return 0.5 + torch.rand(shape, generator=rng, dtype=dtype)

        inputs: dict[str, Any] = {"asks": asks}
        inputs["x"] = torch.randn(shape, generator=rng, dtype=dtype) if shape else near_one()
        for each in {"value": [], "first": ["dy"], "second": ["dy", "v"], "kept": ["dy"]}[asks]:
            inputs[each] = near_one()
        return Case(name=name, inputs=inputs)

    return [
        case("value", "value", (3, 4)),
        case("value of one number", "value", ()),
        case("derivative", "first", (7,)),
        case("derivative in float64", "first", (2, 3, 4), torch.float64),
        case("twice", "second", (6,)),
        case("twice in float64", "second", (2, 3), torch.float64),
        case("twice for one number", "second", ()),
        case("1,000 numbers", "kept", (1_000,)),
        case("60 x 50 numbers in float64", "kept", (60, 50), torch.float64),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One run of `answer.apply`, in the scenario that the case asks for."""
    scenario = {"value": _value, "first": _first, "second": _second, "kept": _kept}[inputs["asks"]]
    return scenario(answer, inputs)


def _value(answer: Any, inputs: Inputs) -> Observation:
    return observe({"y": answer.apply(inputs["x"])})


def _first(answer: Any, inputs: Inputs) -> Observation:
    x = inputs["x"].requires_grad_()
    y = answer.apply(x)
    return observe({"y": y, "dx": torch.autograd.grad(y, x, inputs["dy"])[0]})


def _second(answer: Any, inputs: Inputs) -> Observation:
    """The derivatives of v . dx with respect to x and to dy; zeros where no path of the graph leads back to them."""
    x, dy = inputs["x"].requires_grad_(), inputs["dy"].requires_grad_()
    y = answer.apply(x)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    again = torch.autograd.grad((inputs["v"] * dx).sum(), (x, dy), materialize_grads=True)
    return observe({"dx": dx, "second_x": again[0], "second_dy": again[1]})


def _kept(answer: Any, inputs: Inputs) -> Observation:
    """Bytes alive besides y when nobody but the answer holds x, and the derivative that they are kept for.

    Storages are counted wherever they hang: saved tensors, attributes of ctx, closures, globals. Memory that torch
    does not own is not seen, so an answer of which nothing is seen does not hold either.
    """
    leaf = inputs["x"].requires_grad_()
    with kept_bytes() as meter:
        x = leaf.clone()
        y = answer.apply(x)
        del x
    kept = meter.bytes_alive() - y.nbytes
    (dx,) = torch.autograd.grad(y, leaf, inputs["dy"])
    return observe({"y": y, "dx": dx}, {"kept_bytes": kept})


def _at_most_x(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """One tensor of x's size: x itself, or whatever the answer prefers to keep in its place."""
    kept, allowed = got["kept_bytes"], inputs["x"].nbytes
    if isinstance(kept, int) and 0 < kept <= allowed:
        return None
    if kept == 0:
        return "no tensor is kept, and without one backward cannot know x"
    return f"{kept} bytes are kept besides y, where x has {allowed}"


MEMORY = ("1,000 numbers", "60 x 50 numbers in float64")

EXERCISE = Exercise(
    id="computational_graphs.SaveLess",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            name="value",
            points=1,
            keys=("y",),
            cases=("value", "value of one number"),
            hint="y is x times sigmoid(x), element by element, in a new tensor.",
        ),
        Property(
            name="derivative",
            points=2,
            keys=("dx",),
            cases=("derivative", "derivative in float64", *MEMORY),
            hint="Product rule, with s = sigmoid(x) and s' = s (1 - s): the derivative has two terms, and dy "
            "multiplies both.",
        ),
        Property(
            name="second_derivative",
            points=3,
            keys=("second_x", "second_dy"),
            cases=("twice", "twice in float64", "twice for one number"),
            needs=("derivative",),
            hint="Backward itself must be differentiable: torch operations on the saved x and on dy, with "
            "nothing detached and nothing that forward computed. forward runs without recording, so its "
            "results are constants later.",
        ),
        Property(
            name="keeps_only_x",
            points=3,
            evidence="ledger",
            holds=_at_most_x,
            cases=MEMORY,
            needs=("value", "derivative"),
            hint="Keep one tensor of x's size, with ctx.save_for_backward, and compute the rest again in backward.",
        ),
    ),
    hints=(
        "Of x, sigmoid(x) and y: from which one can the derivative be computed without the other two?",
        "Save x alone. backward gets it back with its history, so what you compute from it there can be differentiated "
        "again; what you computed in forward cannot.",
        "forward: save x, return x times its sigmoid. backward: take x back, compute s = sigmoid(x) anew, and "
        "return dy times (s plus x times the derivative of s).",
    ),
    seconds=5.0,
)
