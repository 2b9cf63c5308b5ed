"""`SaveLess`: an autograd.Function of y = x sigmoid(x) that keeps x only, besides y, and can be differentiated twice.

First and second derivatives are observed as numbers and compared with the reference's in float64; finite
differences (`torch.autograd.gradcheck`) would say the same less sharply.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.meter import kept_bytes


def cases(rng: torch.Generator) -> list[Case]:
    """Values, first and second derivatives on several shapes in float32 and float64, large |x|, memory at two sizes.

    The second derivative has roots near |x| = 2.4, where all digits cancel: dy and v are near 1, so that no such place
    outweighs the others, and a single x is one too. Where |x| is about 100, exp(|x|) overflows float32. Only the
    first derivative is asked for there: the second of the right form 1 / (1 + exp(-x)) is nan.
    """

    def case(name: str, asks: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Case:
        def near_one() -> Tensor:
            return 0.5 + torch.rand(shape, generator=rng, dtype=dtype)

        inputs: dict[str, Any] = {"asks": asks}
        inputs["x"] = torch.randn(shape, generator=rng, dtype=dtype) if shape else near_one()
        for each in {"value": [], "first": ["dy"], "second": ["dy", "v"], "kept": ["dy"]}[asks]:
            inputs[each] = near_one()
        return Case(name=name, inputs=inputs)

    far = case("far from zero", "first", (6,))
    far.inputs["x"] = torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]) * (95 + 10 * torch.rand(6, generator=rng))
    return [
        case("value", "value", (3, 4)),
        case("value of one number", "value", ()),
        case("derivative", "first", (7,)),
        case("derivative in float64", "first", (2, 3, 4), torch.float64),
        case("twice", "second", (6,)),
        case("twice in float64", "second", (2, 3), torch.float64),
        case("twice for one number", "second", ()),
        far,
        case("1,000 numbers", "kept", (1_000,)),
        case("60 x 50 numbers in float64", "kept", (60, 50), torch.float64),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One run of `answer.apply`, in the scenario that the case asks for. Raises WrongOutput where it is no Function."""
    came = _other_form(answer)
    if came:
        raise WrongOutput(
            f"must be a subclass of torch.autograd.Function with a forward and a backward of its own, got {came}"
        )
    scenario = {"value": _value, "first": _first, "second": _second, "kept": _kept}[inputs["asks"]]
    return scenario(answer, inputs)


def _other_form(answer: Answer) -> str:
    """What it is instead; "" where the class, or a parent below Function, defines both halves and no apply."""
    base = torch.autograd.Function
    if not (isinstance(answer, type) and issubclass(answer, base)):
        return f"a {'class' if isinstance(answer, type) else type(answer).__name__} that is none"
    own = {name for part in answer.__mro__ if part not in base.__mro__ for name in vars(part)}
    halves = {"forward": {"forward"}, "backward": {"backward", "vjp"}}  # vjp is torch's other name of backward
    missing = [half for half, names in halves.items() if own.isdisjoint(names)]
    if missing:
        return f"one without {' and '.join(missing)}"
    return "one with an apply of its own" if "apply" in own else ""


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

    y is free even where it is saved: the caller holds that very tensor, so saving it keeps no byte more alive.

    Tensors are counted, however they are kept: saved, as attributes of ctx, in closures, in globals. Memory that torch
    does not own (a NumPy copy) is not seen, so an answer of which nothing is seen does not hold either.
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
    """One tensor of x's size besides y: x itself, or whatever the answer prefers to keep in its place."""
    kept, allowed = got["kept_bytes"], inputs["x"].nbytes
    if isinstance(kept, int) and 0 < kept <= allowed:
        return None
    if kept == 0:
        return "no tensor besides y is kept, and y alone does not tell which x it came from"
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
            "multiplies both. The x in them is what forward was given, not y and not a tensor written over since.",
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
            name="far_from_zero",
            points=1,
            keys=("y", "dx"),
            cases=("far from zero",),
            needs=("value", "derivative"),
            hint="exp overflows float32 above 88, and infinity over infinity, or times 0, is nan. torch.sigmoid is "
            "finite for every x, and so is every term that is made of it.",
        ),
        Property(
            name="keeps_only_x",
            points=3,
            evidence="ledger",
            holds=_at_most_x,
            shows="kept_bytes",
            cases=MEMORY,
            needs=("value", "derivative"),
            hint="Keep one tensor of x's size, with ctx.save_for_backward, and compute the rest again in backward. "
            "Tensors count, however they are kept. Only y is free, also when you save it: the caller holds that very "
            "tensor anyway.",
        ),
    ),
    hints=(
        "Of x, sigmoid(x) and y: from which one can the derivative be computed without the other two?",
        "Save x alone. backward gets it back with its history, so what you compute from it there can be differentiated "
        "again; what you computed in forward cannot.",
        "forward: save x, return x times its sigmoid. backward: take x back, compute s = sigmoid(x) anew, and "
        "return dy times (s plus x times the derivative of s).",
    ),
    removes=("torch.nn.functional.silu", "torch.utils.checkpoint"),
    seconds=5.0,
)
