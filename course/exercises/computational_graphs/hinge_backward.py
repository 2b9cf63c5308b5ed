"""`hinge_backward(w, x, b, y)`: all partial derivatives of y - max(0, z) with z = w.x + b, by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from course.exercises.computational_graphs.lists import number, numbers
from course.performing.compare import describe
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs

ON = ("on", "on, one weight")
THROUGH_Z = ("dw", "dx", "db", "dz")


def cases(rng: torch.Generator) -> list[Case]:
    """z > 0, z < 0 and z = 0.

    Random decimals, of which no difference of two losses is exact; eighths at the kink, so that z = 0 is 0 in whatever
    order it is added.
    """

    def signed(sizes: Tensor) -> Tensor:
        return sizes * (torch.randint(0, 2, sizes.shape, generator=rng) * 2 - 1)

    def sizes(count: int, side: int) -> Tensor:
        if side:
            return torch.rand(count, generator=rng, dtype=torch.float64) * 3.9 + 0.1
        return torch.randint(1, 33, (count,), generator=rng).double() / 8

    def case(name: str, count: int, side: int) -> Case:
        """Chooses b so that z has the sign `side`. Of three weights w.x alone has the other sign, so that b decides."""
        w, x = signed(sizes(count, side)), signed(sizes(count, side))
        wanted = side if count == 1 else -side or 1
        x = x if wanted * float(w @ x) > 0 else -x
        b = side * float(sizes(1, side)) - float(w @ x)
        y = sizes(1, side)
        y = 4 + y if name == ON[0] else -y if name == ON[1] else signed(y)  # when on: a positive loss, a negative one
        return Case(name=name, inputs={"w": w.tolist(), "x": x.tolist(), "b": b, "y": float(y)})

    return [
        case("on", 3, 1),
        case("on, one weight", 1, 1),
        case("off", 3, -1),
        case("off, one weight", 1, -1),
        case("kink", 3, 0),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(w, x, b, y)` once."""
    partials = outputs(answer(*(inputs[name] for name in "wxby")), "dw", "dx", "db", "dy", "dz")
    read = {name: numbers(each, name) if name in ("dw", "dx") else number(each) for name, each in partials.items()}
    return observe(read)


def _right_up_to_sign(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Magnitudes of dw, dx and db; exact, as every share is an input times 1, -1 or 0."""
    for key in ("dw", "dx", "db"):
        a, b = (torch.as_tensor(values[key]).double().abs() for values in (got, expected))
        if a.shape != b.shape:
            return f"{key} has {a.numel()} numbers in shape {tuple(a.shape)}, not {tuple(b.shape)}"
        if not torch.equal(a, b):
            return f"{key} without signs is {describe(a)}, not {describe(b)}"
    return None


EXERCISE = Exercise(
    id="computational_graphs.hinge_backward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "magnitudes_when_on",
            "Where z > 0, z moves by x_i for each unit of w_i, by w_i for each unit of x_i, and by 1 for each unit of "
            "b. dw and dx are lists as long as w and x.",
            holds=_right_up_to_sign,
            cases=ON,
        ),
        Property(
            "signs_when_on",
            "max(0, z) is taken away from y: when z grows by 1, the loss falls by 1, and so do all shares behind z.",
            points=2,
            keys=THROUGH_Z,
            cases=ON,
            needs=("magnitudes_when_on",),
        ),
        Property(
            "nothing_flows_when_off",
            "Where z < 0, max(0, z) is 0 and stays 0 when z moves a little: nothing behind it has an influence. dw and "
            "dx are then zeros, as many as w and x have numbers.",
            points=2,
            keys=THROUGH_Z,
            cases=("off", "off, one weight"),
            needs=("magnitudes_when_on",),
        ),
        Property(
            "kink_counts_as_off",
            "At z = 0 both sides have a derivative, 0 and 1, and one must be chosen. Here, as in torch, it is 0: the "
            "gradient flows where z > 0 only.",
            keys=THROUGH_Z,
            cases=("kink",),
            needs=("nothing_flows_when_off",),
        ),
        Property(
            "derivative_by_y",
            "y stands in the loss alone and with a plus: its derivative is 1 in every case, on or off.",
            keys=("dy",),
            needs=("magnitudes_when_on",),
        ),
    ),
    hints=(
        "The loss is computed in three steps: z from w, x and b; max(0, z); the subtraction from y. What is the "
        "derivative of each step alone?",
        "Go backward through the three steps and multiply. First find dz, the derivative of the loss by z; then all of "
        "dw, dx and db are dz times a local derivative.",
        "dz is -1 or 0, decided by z > 0. Then db is dz, each dw_i is dz times x_i, each dx_i is dz times w_i; dy does "
        "not pass through z at all.",
    ),
    keeps=("w", "x"),
    removes=("torch",),
    seconds=2.0,
)
