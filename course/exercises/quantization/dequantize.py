"""`dequantize(codes, step, zero)`: what codes of a grid stand for, each within the roundings of its own step."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from course.exercises.quantization.affine import CODES, beyond, far, steps, zeros
from course.performing.compare import EPS
from course.performing.exercise import Case, Exercise, Inputs, Property, Values, every_form, in_the_dtype_of, one_call
from course.performing.forms import at_once, cut, in_dtype, put, strided, transposed

USUAL, EVERY, NARROW, HALF = (
    "one grid for all",
    "every code on grids with the outermost zero points",
    "zero points in int8",
    "steps in float16",
)
ROWS, SQUARE, MIDDLE, LAST, FAR = (
    "a grid for each row",
    "as many rows as columns, a grid for each row",
    "a grid for each index of a middle dimension",
    "as many rows as columns, a grid for each column",
    "a row 1,000 times larger",
)
SINGLE, EMPTY, NO_ROW = "one code without dimensions", "no code", "no row, in float64"
NEAR_THE_END = torch.tensor([[127, 126, 125, 60, 20]], dtype=torch.int8)  # up to 106 steps from the code 126
OUTERMOST = torch.tensor([[-128, -127, -1, 0, 1, 127]])


def cases(rng: torch.Generator) -> list[Case]:
    """Codes of all sizes; the first one is far from the zero point, and the second one is that of 0."""

    def drawn(*shape: int, grids: tuple[int, ...] = ()) -> dict[str, Any]:
        codes, zero = torch.randint(-128, 128, shape, generator=rng).to(torch.int8), zeros(rng, 8, *grids)
        codes.view(-1)[:1] = -128 if zero.flatten()[0] > 0 else 127  # farther away than int8 reaches
        codes.view(-1)[1:2] = zero.flatten()[0].to(torch.int8)
        return {"codes": codes, "step": steps(rng, *grids) if grids else _step(rng, codes - zero), "zero": zero}

    count = OUTERMOST.shape[1]
    every = {
        "codes": torch.arange(-128, 128).to(torch.int8)[torch.randperm(256, generator=rng), None].repeat(1, count),
        "step": steps(rng, 1, count),
        "zero": OUTERMOST.int(),
    }
    far_away, half = drawn(3, 8, grids=(3, 1)), drawn(4, 6, grids=(4, 1))
    far_away["step"] = far(far_away["step"])
    half["step"] = half["step"].half()
    some = {
        USUAL: drawn(5, 7),
        EVERY: every,
        NARROW: {**every, "zero": OUTERMOST.to(torch.int8)},
        HALF: half,
        ROWS: drawn(4, 6, grids=(4, 1)),
        SQUARE: drawn(5, 5, grids=(5, 1)),
        MIDDLE: drawn(2, 3, 4, grids=(1, 3, 1)),
        LAST: drawn(5, 5, grids=(5,)),
        FAR: far_away,
        SINGLE: drawn(),
        EMPTY: drawn(0, 3),
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def _step(rng: torch.Generator, distances: Tensor) -> Tensor:
    """float32, of which float32 does not hold all multiples by the distances."""
    while True:
        step = steps(rng)
        if distances.numel() < 2 or ((distances * step).double() != distances * step.double()).any():
            return step


def _value(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each number within the roundings of step times a difference of two codes.

    So much also holds for step * code - step * zero, whose three roundings are of numbers below 256 steps, as long as
    no product is beyond the dtype's largest number. The code of 0 stands for exactly 0 all the same.
    """
    exact, step = expected["x"], inputs["step"].detach()
    assert isinstance(exact, Tensor)
    return beyond(got["x"], exact, (exact != 0) * EPS[step.dtype] * CODES * step.double(), "a number")


EXERCISE = Exercise(
    id="quantization.dequantize",
    cases=cases,
    probe=one_call("codes", "step", "zero", gives=("x",)),
    properties=(
        Property(
            "value",
            "A code is so many steps from the code of 0, which is zero: step times the difference.",
            points=2,
            holds=_value,
            cases=(USUAL, EVERY, SINGLE, EMPTY),
        ),
        Property(
            "nine_bits",
            "127 and -128 are 255 apart, and int8 has no such number: the difference wraps around in it. Turn one of "
            "both into another dtype first.",
            points=2,
            holds=_value,
            cases=(NARROW,),
        ),
        Property(
            "for_each_channel",
            "step and zero broadcast to codes: (m, 1) is a grid for each row, (1, c, 1) one for each index of a middle "
            "dimension, (n,) one for each column.",
            points=2,
            holds=_value,
            cases=(ROWS, SQUARE, MIDDLE, LAST, FAR),
        ),
        Property(
            "dtype",
            "Numbers come in the dtype of step.",
            holds=in_the_dtype_of("step", "x"),
            cases=(USUAL, HALF, "in float64", NO_ROW),
            needs=("value",),
        ),
        dataclasses.replace(every_form(needs=("value",)), keys=(), holds=_value),
    ),
    hints=(
        "Which number has the code zero?",
        "What is 127 - (-128) in int8?",
        "codes in the dtype of step, less zero, times step.",
    ),
    keeps=("codes", "step", "zero"),
    forms=(
        in_dtype(torch.float64, "step"),
        in_dtype(torch.float16, "step", of=ROWS),
        put(
            "large steps in float16",
            codes=NEAR_THE_END,
            step=torch.tensor(600.0, dtype=torch.float16),  # 109 of them are within float16, 126 are not
            zero=torch.tensor(126, dtype=torch.int32),
        ),
        strided("codes", name="a view, one grid for all"),
        strided("codes", "step", "zero", of=ROWS),
        transposed("codes", of=ROWS),
        cut("one row", codes=(0, 1), step=(0, 1), zero=(0, 1), of=ROWS),
        cut("rows of one code", codes=(1, 1), of=ROWS),
        cut("no row", codes=(0, 0), step=(0, 0), zero=(0, 0), of=ROWS),
        at_once(NO_ROW, in_dtype(torch.float64, "step"), cut("", codes=(0, 0), step=(0, 0), zero=(0, 0)), of=ROWS),
    ),
    promises={
        "int8, any shape; it may be a view": (
            SINGLE,
            EMPTY,
            "a view, one grid for all",
            "views that are not contiguous",
            "transposed tensors",
        ),
        "float16, float32 or float64, of a shape that broadcasts to that of codes": (
            "in float16",
            "large steps in float16",
            "in float64",
            "for_each_channel",
        ),
        "int8 or int32, from -128 to 127, in the shape of step": ("nine_bits", "value", EVERY),
        "in the dtype of step and the shape of codes": ("dtype", "value"),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
)
