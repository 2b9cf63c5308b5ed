"""`fake_quant(x, step, zero, bits)`: numbers on a grid, and the gradient of the straight-through estimator.

Numbers lie off the ties of rounding, and none in the half step beyond an end of the grid, where implementations differ.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercises.quantization.affine import BESIDE, CODES, beyond, far, off_ties, steps, zeros
from course.performing.compare import EPS
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
    in_the_dtype_of,
    observe,
)
from course.performing.forms import at_once, cut, in_dtype, leaves, put, strided, times, transposed

USUAL, FOUR, TWO, ENDS = "numbers inside and outside", "4 bits", "2 bits", "the first and the last value"
INSIDE, OUTSIDE = "all inside of the grid", "all outside of the grid"
ROWS, SQUARE, MIDDLE, LAST, FAR = (
    "a grid for each row",
    "as many rows as columns, a grid for each row",
    "a grid for each index of a middle dimension",
    "a grid for each column",
    "a row 1,000 times larger",
)
SINGLE, EMPTY, TWICE, LEAF, PLAIN = (
    "one number without dimensions",
    "no number",
    "differentiated twice",
    "a step that requires a gradient",
    "x needs no gradient",
)
BEYOND, NEAR = 40, 0.8  # codes by which numbers lie outside at most; and by which one lies beyond each end
STEP_ALONE = f"{PLAIN}, but step"
IN_DOUBLE, NO_ROW = f"{ROWS}, in float64", "no row, in float64"
FLOATING = ("x", "step", "gradient")
TINY = 2.0**-130
UNIT = torch.tensor(2.0**-160, dtype=torch.float64)
ALLOWED = 4  # roundings of a gradient that is multiplied by step and divided by it


def cases(rng: torch.Generator) -> list[Case]:
    """Some numbers are inside of the grid, and some are outside by 0.7 of a step or more."""

    def drawn(
        bits: int, *shape: int, grids: tuple[int, ...] = (), share: float = 0.6, at: int | None = None
    ) -> dict[str, Any]:
        """`share` of all numbers are inside; one of them is 0, two have the last codes but one, and one beyond each
        end, if any, is near to it. `at` is the zero point, where it is not drawn.
        """
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        inside = off_ties(rng, torch.randint(low + 1, high, shape, generator=rng))
        away = 1 + off_ties(rng, torch.randint(BEYOND, shape, generator=rng))
        outside = torch.where(torch.rand(shape, generator=rng) < 0.5, low - away, high + away)
        order = torch.randperm(inside.numel(), generator=rng).reshape(shape)
        positions = torch.where(order < share * order.numel(), inside, outside)
        known = {1: low + 1.0, 2: high - 1.0} if share > 0 else {}
        known |= {order.numel() - 1: low - NEAR, order.numel() - 2: high + NEAR} if share < 1 else {}
        for place, position in known.items():
            positions = torch.where(order == place, position, positions)
        step, zero = steps(rng, *grids), zeros(rng, bits, *grids)
        zero = zero if at is None else torch.full_like(zero, at)
        x = ((positions - zero) * step.double()).float()
        x = torch.where(order == 0, 0.0, x) if share > 0 and order.numel() > 1 else x
        return {"x": x, "step": step, "zero": zero, "bits": bits, "gradient": gradient(*shape)}

    def gradient(*shape: int) -> Tensor:
        """Of either sign, and of a size from 1 to 2."""
        return torch.where(normal(rng, *shape) < 0, -1.0, 1.0) * (1 + torch.rand(shape, generator=rng))

    far_away, ends = drawn(8, 3, 12, grids=(3, 1)), drawn(4, 4)
    far_away["step"] = far(far_away["step"])
    far_away["x"][0] *= 1000
    ends["step"] = torch.tensor(2.0**-6)
    ends["x"] = (torch.tensor([-8.0, -7.0, 6.0, 7.0]) - ends["zero"]) * ends["step"]
    some = {
        USUAL: drawn(8, 5, 7),
        FOUR: drawn(4, 20),
        TWO: drawn(2, 3, 8),
        ENDS: ends,
        INSIDE: drawn(8, 4, 6, share=1, at=-101),
        OUTSIDE: {**drawn(4, 4, 5, share=0), "beside": True},
        ROWS: drawn(8, 4, 12, grids=(4, 1)),
        SQUARE: drawn(8, 6, 6, grids=(6, 1)),
        MIDDLE: drawn(5, 2, 3, 8, grids=(1, 3, 1)),
        LAST: drawn(8, 8, 6, grids=(6,)),
        FAR: far_away,
        SINGLE: drawn(8, share=1),
        EMPTY: drawn(8, 0, 3, share=1),
        TWICE: {**drawn(6, 4, 6), "twice": True},
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """y; what backward makes of `gradient`, for x unless it is plain, and for step where it requires one. In one case
    the gradient of the gradient of sum(gradient * y^3), summed; in one x is added to y, and its own share taken off,
    and zeros come between y and backward.
    """
    x, step, weights = inputs["x"].detach(), inputs["step"], inputs["gradient"]
    x.requires_grad_(not inputs.get("plain", False))
    y = answer(x, step, inputs["zero"], inputs["bits"])
    if not isinstance(y, Tensor) or y.shape != x.shape:
        shape = f"of the shape {(*y.shape,)}" if isinstance(y, Tensor) else type(y).__name__
        raise WrongOutput(f"must return a tensor in the shape of x, {(*x.shape,)}, got one {shape}")
    wanted = {"gradient": x, **({"gradient of step": step} if step.requires_grad else {})}
    beside = "beside" in inputs
    if beside:
        answer(torch.zeros_like(x), step, inputs["zero"], inputs["bits"])
    seen: dict[str, Any] = {"y": y.detach(), **_gradients(y + x if beside else y, weights, wanted)}
    if beside:
        seen["gradient"] = seen["gradient"] - weights
    if "twice" in inputs:
        first = _gradients(y**3, weights, {"first": x}, again=True)["first"]
        seen["gradient of the gradient"] = _gradients(first, torch.ones_like(first), {"second": x})["second"]
    return observe(seen)


def _gradients(y: Tensor, dy: Tensor, wanted: dict[str, Tensor], again: bool = False) -> dict[str, Tensor]:
    """By name; zeros where y does not depend on one."""
    found = {name: torch.zeros_like(each) for name, each in wanted.items()}
    asked = {name: each for name, each in wanted.items() if each.requires_grad and y.requires_grad}
    if asked:
        grads = torch.autograd.grad(y, [*asked.values()], dy, retain_graph=True, create_graph=again, allow_unused=True)
        found |= {name: grad for name, grad in zip(asked, grads, strict=True) if grad is not None}
    return found


def _allowed(inputs: Inputs) -> Tensor:
    """How far y may be off: roundings of x + (y - x), and of step times a difference of two codes. 0 stays 0."""
    x, step = inputs["x"].detach(), inputs["step"].detach().double()
    allowed: Tensor = (x != 0) * EPS[x.dtype] * (2 * x.double().abs() + CODES * step)
    return allowed


def _value(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each number of y within the roundings of its own x and step."""
    exact = expected["y"]
    assert isinstance(exact, Tensor)
    return beyond(got["y"], exact, _allowed(inputs), "y")


def _gradient(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: that of y where x is inside, exactly 0 where it is outside."""
    exact = expected["gradient"]
    assert isinstance(exact, Tensor)
    return beyond(got["gradient"], exact, ALLOWED * EPS[inputs["x"].dtype] * exact.abs(), "a gradient")


def _second(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: 6 gradient y inside, which moves as far as y does, and 0 outside."""
    exact, weights = expected["gradient of the gradient"], inputs["gradient"].detach().double().abs()
    assert isinstance(exact, Tensor)
    allowed = (exact != 0) * (6 * weights * _allowed(inputs) + 2 * ALLOWED * EPS[inputs["x"].dtype] * exact.abs())
    return beyond(got["gradient of the gradient"], exact, allowed, "a gradient of the gradient")


def _step_gets_none(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the gradient of step is 0, or there is none."""
    found = got["gradient of step"]
    exact = torch.zeros_like(inputs["step"].detach()).double()
    return beyond(found, exact, exact, "the gradient of step")


def _both(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: y and its gradient."""
    return _value(inputs, got, expected) or _gradient(inputs, got, expected)


EXERCISE = Exercise(
    id="quantization.fake_quant",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "y is what the code of x stands for: round x / step, add zero, cut off at both ends, and go back.",
            points=2,
            holds=_value,
            cases=(USUAL, FOUR, TWO, INSIDE),
        ),
        Property(
            "gradient_inside",
            "Inside of the grid the gradient of y passes through as it is. That of round is 0 almost everywhere: what "
            "is rounded may not be part of the graph, and x has to be.",
            points=3,
            holds=_gradient,
            cases=(INSIDE,),
            needs=("value",),
        ),
        Property(
            "gradient_outside",
            "Where x lies beyond the first or the last value, it is cut off: a small move changes nothing, and the "
            "gradient is 0. At the first and at the last value themselves it passes.",
            points=3,
            holds=_gradient,
            cases=(USUAL, FOUR, TWO, ENDS),
        ),
        Property(
            "all_outside",
            "Where every number is cut off, y has both ends only, and no gradient is left. One that comes to x "
            "by another way stays, and another call before backward changes nothing.",
            holds=_both,
            cases=(OUTSIDE,),
            needs=("value", "gradient_inside"),
        ),
        Property(
            "for_each_channel",
            "step and zero broadcast to x: each channel has its own ends.",
            points=2,
            holds=_both,
            cases=(ROWS, SQUARE, MIDDLE, LAST, FAR),
        ),
        Property(
            "twice",
            "The gradient can be differentiated again: in backward nothing is taken out of the graph.",
            holds=_second,
            cases=(TWICE,),
            needs=("value", "gradient_outside"),
        ),
        Property(
            "none_for_step",
            "step gets no gradient, also where it requires one.",
            holds=_step_gets_none,
            cases=(LEAF, STEP_ALONE),
            needs=("value", "gradient_inside"),
        ),
        Property(
            "dtype",
            "y comes in the dtype of x.",
            holds=in_the_dtype_of("x", "y"),
            cases=(USUAL, "in float64", IN_DOUBLE, NO_ROW),
            needs=("value",),
        ),
        dataclasses.replace(every_form(needs=("value",)), keys=(), holds=_both),
    ),
    hints=(
        "What would have to stand beside y, so that its value does not change and its gradient is that of x?",
        "x - x.detach() is 0 and has the gradient of x. And whose gradient is to be 0 although it has a value?",
        "Everything from x.detach(): codes before they are cut off, a mask of those that need not be, y from those "
        "that are; then add x - x.detach() where the mask says so. Or clamp x itself first, which has the right "
        "gradient, and add (y - clamped).detach().",
    ),
    keeps=("x", "step", "zero", "gradient"),
    forms=(
        in_dtype(torch.float64, *FLOATING),
        strided("x", "step", "zero", of=ROWS),
        transposed("x", of=ROWS),
        cut("one row", x=(0, 1), step=(0, 1), zero=(0, 1), gradient=(0, 1), of=ROWS),
        cut("rows of one number", x=(1, 1), gradient=(1, 1), of=ROWS),
        cut("no row", x=(0, 0), step=(0, 0), zero=(0, 0), gradient=(0, 0), of=ROWS),
        at_once(  # float32 holds no such step
            IN_DOUBLE,
            in_dtype(torch.float64, *FLOATING),
            times("", math.pi / 4, "x", "step"),
            of=ROWS,
        ),
        at_once(
            NO_ROW,
            in_dtype(torch.float64, *FLOATING),
            cut("", x=(0, 0), step=(0, 0), zero=(0, 0), gradient=(0, 0)),
            of=ROWS,
        ),
        put(
            "a step whose inverse is infinite",
            x=torch.tensor([1.0, -1, 3, -4, 5, -6, 7]) * TINY,
            step=torch.tensor(TINY),
            zero=torch.tensor(1, dtype=torch.int32),
            gradient=torch.ones(7),
            of=FOUR,
        ),
        put(
            "numbers that float32 cannot hold",
            x=BESIDE * UNIT,
            step=UNIT,
            zero=torch.tensor(1, dtype=torch.int32),
            gradient=torch.ones_like(BESIDE),
            of=FOUR,
        ),
        leaves("step", name=LEAF),
        strided("x", name="a view, and one grid"),
        put(PLAIN, plain=True),
        at_once(STEP_ALONE, put("", plain=True), leaves("step")),
    ),
    promises={
        "any shape, float32 or float64; it may be a view": (
            SINGLE,
            EMPTY,
            "in float64",
            "numbers that float32 cannot hold",
            "views that are not contiguous",
            "transposed tensors",
            "a view, and one grid",
            PLAIN,
        ),
        "above 0, in the dtype of x, of a shape that broadcasts to x's": ("for_each_channel",),
        "it gets no gradient": ("none_for_step",),
        "int32, from -2**(bits - 1) to 2**(bits - 1) - 1, in the shape of step": ("value", "for_each_channel"),
        "from 2 to 8": (USUAL, FOUR, TWO),
        "in the shape and dtype of x": ("dtype", "value"),
        "cut off at -2**(bits - 1) and 2**(bits - 1) - 1": ("value", "all_outside"),
        "Where x lies from the first to the last value of the grid, both included": (
            "gradient_inside",
            "gradient_outside",
        ),
        "Outside, beyond half a step, 0": ("gradient_outside", "all_outside"),
        "It can be differentiated again": ("twice",),
        "Nothing that was handed in is changed, nor is the gradient that backward is given": ("arguments_unchanged",),
    },
)
