"""`hinge_backward(w, x, b, y)`: all partial derivatives of y - max(0, z) with z = w.x + b, by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from course.exercises.computational_graphs.lists import number, numbers
from course.performing.compare import describe
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    call_once,
    observe,
    outputs,
)
from course.performing.forms import at_once, between_calls, put, times

ON = ("on", "on by the other weights", "on, one weight")
OFF = ("off", "off by the other weights", "off, one weight")
KINK = ("kink", "kink without a weight")
SOME_ALIKE = "12 weights, some equal and some 0"
B_0 = "b = 0 and y = 0, between two other calls"
TINY = 2.0**-1022  # z in two hard forms, whose products are 0: the smallest number with all digits
STEP = 2.0**-23  # of float32, from 1 on: 1 + 0.625 of it is rounded up, 1 + 1.375 of it down
THROUGH_Z = ("dw", "dx", "db", "dz")


def cases(rng: torch.Generator) -> list[Case]:
    """z > 0, z < 0 and z = 0.

    Random decimals, of which no difference of two losses is exact; eighths at the kink, so that z = 0 is 0 in whatever
    order it is added. Of w.x + b no part has the sign of z in all cases: not w.x, not a product, nor one product and b.
    """

    def between(low: float, high: float, count: int = 1) -> Tensor:
        return torch.rand(count, generator=rng, dtype=torch.float64) * (high - low) + low

    def case(name: str, products: Tensor, b: float, y: float) -> Case:
        """Any weights between 1 and 2 of both signs, and inputs that give about these products."""
        w = between(1.0, 2.0, len(products)) * (torch.randint(0, 2, products.shape, generator=rng) * 2 - 1)
        return Case(name=name, inputs={"w": w.tolist(), "x": (products / w).tolist(), "b": b, "y": y})

    def by_the_first(side: int, name: str, y: float) -> Case:
        """The first product and b have the sign of z; each other product is larger than b."""
        b, z, others = between(2.0, 3.0), between(0.5, 1.5), between(3.5, 5.0, 2)
        return case(name, side * torch.cat([z - b + others.sum(), -others]), side * float(b), y)

    def by_the_others(side: int, name: str, y: float) -> Case:
        """The first product and b have the other sign."""
        b, z, first, second = between(5.5, 6.5), between(0.5, 1.5), between(2.0, 3.0), between(4.0, 5.0)
        return case(name, side * torch.cat([-first, second, z + b + first - second]), -side * float(b), y)

    def one_weight(side: int, name: str, y: float) -> Case:
        return case(name, side * between(0.5, 1.0), side * float(between(1.5, 3.0)), y)

    w, x = ((torch.randperm(32, generator=rng)[:3] + 1).double() / 8 for _ in "wx")
    x[1] = -x[1]
    large, small = float(between(4.0, 8.0)), float(between(0.1, 4.0))
    return [
        by_the_first(1, ON[0], large),  # the loss is positive
        by_the_others(1, ON[1], small),
        one_weight(1, ON[2], -small),  # the loss is negative
        by_the_first(-1, OFF[0], small),
        by_the_others(-1, OFF[1], -small),
        one_weight(-1, OFF[2], large),
        Case(name=KINK[0], inputs={"w": w.tolist(), "x": x.tolist(), "b": -float(w @ x), "y": small}),
        Case(name=KINK[1], inputs={"w": [0.0, 0.0], "x": [1.5, -2.0], "b": 0.0, "y": large}),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Calls `answer(w, x, b, y)` once."""
    result = call_once(answer, inputs, *(inputs[name] for name in "wxby"))
    partials = outputs(result, "dw", "dx", "db", "dy", "dz")
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
            "b. dw and dx are lists as long as w and x. Zeros here mean that your z was not positive: is it all of "
            "w.x + b, with every product?",
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
            cases=OFF,
            needs=("magnitudes_when_on",),
        ),
        Property(
            "kink_counts_as_off",
            "At z = 0 both sides have a derivative, 0 and 1, and one must be chosen. Here, as in torch, it is 0: the "
            "gradient flows where z > 0 only.",
            keys=THROUGH_Z,
            cases=KINK,
            needs=("nothing_flows_when_off",),
        ),
        Property(
            "derivative_by_y",
            "y stands in the loss alone and with a plus: its derivative is 1 in every case, on or off.",
            keys=("dy",),
            needs=("magnitudes_when_on",),
        ),
        Property(
            EVERY_FORM,
            "z decides by its sign alone, however near to 0 it is. Numbers among w and x may be 0 or equal, there may "
            "be many of them, and b and y may be 0.",
            roundings=16,
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
    forms=(
        put("z = 2^-1022", w=[0.0, 2.5], x=[1.5, 0.0], b=TINY),
        put("z = -2^-1022", w=[-1.5, 0.0], x=[0.0, 2.0], b=-TINY),
        put("z = 2^-40, near 1 - 1", w=[1.0], x=[1 + 2.0**-40], b=-1.0),
        put("z = -2^-26, near 1 - 1", w=[1 + 0.625 * STEP], x=[1 + 0.625 * STEP], b=-1 - 1.375 * STEP),
        put(
            SOME_ALIKE,
            w=[-1.0, 0.0, 2.0, 2.0] * 3,
            x=[1.5, 0.5, 1.5, 0.0, 0.0, -0.5, 1.5, 0.5, 1.5, 0.0, 0.0, 0.5],
            b=-4.5,
        ),
        *(times(f"{by} {name} for {name}", by, name) for name, by in (("w", 10), ("x", 10), ("b", -10))),  # now off
        at_once(B_0, between_calls("w", "x"), put("zeros", w=[0.5, -1.5], x=[3.0, 0.5], b=0.0, y=0.0)),
    ),
    promises={
        "two lists of the same length n >= 1": ("on, one weight", SOME_ALIKE),
        "two floats": (B_0,),
        "the derivatives with respect to w and x": ("magnitudes_when_on", "signs_when_on"),
        "b, y and z (numbers; an int serves as well as a float)": (
            "signs_when_on",
            "derivative_by_y",
            "nothing_flows_when_off",
        ),
        "The lists w and x are not changed": ("arguments_unchanged",),
        "the derivative of max(0, z) counts as 0": ("kink_counts_as_off", *KINK),
        "not near it": ("z = 2^-1022", "z = -2^-1022", "z = 2^-40, near 1 - 1", "z = -2^-26, near 1 - 1"),
    },
    removes=("torch",),
    seconds=2.0,
)
