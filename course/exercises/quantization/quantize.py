"""`quantize(x, step, zero, bits)`: the code of the nearest value of a grid for each number.

Numbers lie off the ties of rounding, or exactly on one where steps are powers of two. In between, where a rounding of
the quotient decides, no code is compared: what it stands for is at most half a step from the number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course.exercises.quantization.affine import AWAY, BESIDE, beyond, eps_of, far, off_ties, steps, zeros
from course.performing.compare import as_numbers
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import alone, at_once, cut, in_dtype, put, strided, transposed

USUAL, FOUR, TWO, DENSE, HALF, TIES = (
    "numbers within the range",
    "4 bits",
    "2 bits",
    "numbers at equal distances",
    "numbers at equal distances, in float16",
    "numbers halfway between two values",
)
OUTSIDE, HUGE = "numbers outside of the range", "very large and infinite numbers"
ROWS, SQUARE, MIDDLE, LAST, FAR = (
    "a grid for each row",
    "as many rows as columns, a grid for each row",
    "a grid for each index of a middle dimension",
    "as many rows as columns, a grid for each column",
    "a row 1,000 times larger",
)
SINGLE, EMPTY = "one number without dimensions", "no number"
OUT = 300  # codes by which numbers lie outside at most: more than int8 has
BESIDE_TIES = 2.0**-16  # of a step: a float32 code and zero point rounds less away


def cases(rng: torch.Generator) -> list[Case]:
    """Numbers are (code - zero) steps, and up to 0.3 of a step more or less; among them are 0 and both ends."""

    def ends(bits: int) -> tuple[int, int]:
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def drawn(bits: int, *shape: int, grids: tuple[int, ...] = ()) -> dict[str, Any]:
        step, zero, (low, high) = steps(rng, *grids), zeros(rng, bits, *grids), ends(bits)
        codes = torch.randint(low, high + 1, shape, generator=rng)
        places = torch.randperm(codes.numel(), generator=rng)[:2]
        codes.view(-1)[places] = torch.tensor([low, high])[: len(places)]
        return {**with_zero(on(off_ties(rng, codes), step, zero)), "bits": bits}

    def on(positions: Tensor, step: Tensor, zero: Tensor) -> dict[str, Any]:
        """Numbers at these positions, codes that need not be whole."""
        x = ((positions - zero) * step.double()).float()
        return {"x": x, "step": step, "zero": zero}

    def with_zero(inputs: dict[str, Any]) -> dict[str, Any]:
        inputs["x"].view(-1)[1:2] = 0
        return inputs

    dense, outside, huge, far_away = drawn(5, 1), drawn(4, 1), drawn(8, 8), drawn(8, 3, 8, grids=(3, 1))
    low, high = ends(5)
    dense = {**on(torch.linspace(low - 0.49, high + 0.49, 1_001).double(), dense["step"], dense["zero"]), "bits": 5}
    huge["x"] = torch.tensor([math.inf, -math.inf, 3e38, -3e38, 1e20, -1e20, 4e9, -4e9])
    far_away["step"] = far(far_away["step"])
    far_away["x"][0] *= 1000
    low, high = ends(4)
    half = drawn(8, 1)
    half = {**on(torch.linspace(-128, 127, 2_001).double(), half["step"], half["zero"]), "bits": 8}
    half["x"] = half["x"].half()
    half["x"][(half["x"].double() / half["step"].double() % 1 - 0.5).abs() < BESIDE_TIES] = 0
    away = 1 + torch.arange(OUT, dtype=torch.float64) + AWAY * torch.rand(OUT, generator=rng, dtype=torch.float64)
    outside["zero"] = torch.where(outside["zero"] < 0, -5, 5).int()
    outside = {**outside, **on(torch.stack([low - away, high + away]), outside["step"], outside["zero"])}
    halves = on(torch.arange(low, high).double() + 0.5, torch.tensor(2.0**-6), zeros(rng, 4))
    some = {
        USUAL: drawn(8, 5, 7),
        FOUR: drawn(4, 20),
        TWO: drawn(2, 3, 4),
        DENSE: dense,
        HALF: half,
        TIES: {**halves, "bits": 4},
        OUTSIDE: outside,
        HUGE: huge,
        ROWS: drawn(8, 4, 6, grids=(4, 1)),
        SQUARE: drawn(8, 5, 5, grids=(5, 1)),
        MIDDLE: drawn(5, 2, 3, 4, grids=(1, 3, 1)),
        LAST: drawn(8, 5, 5, grids=(5,)),
        FAR: far_away,
        SINGLE: drawn(8),
        EMPTY: drawn(8, 0, 3),
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The codes and their dtype."""
    result = answer(*(inputs[name] for name in ("x", "step", "zero", "bits")))
    return observe({"codes": result, "dtype": str(getattr(result, "dtype", type(result).__name__))})


def _half_step(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: what a code stands for is at most half a step from its number, and a code of 0's
    own is 0. Beyond that, only what a rounding of the quotient makes.
    """
    x, step, zero = (inputs[name].detach().double() for name in ("x", "step", "zero"))
    codes, low = as_numbers(got["codes"]), -(2 ** (inputs["bits"] - 1))
    if codes is None or codes.is_complex() or codes.shape != x.shape:
        return f"there must be one code for each number, {(*x.shape,)}"
    if not bool(((codes >= low) & (codes <= -low - 1)).all()):
        return f"codes must lie from {low} to {-low - 1}"
    return beyond((codes - zero) * step, x, step / 2 + eps_of(inputs, "step") * x.abs(), "a number becomes")


SMALL = torch.tensor([0.0, 1.0, -1.0, 3.0, -4.0, 5.0, -6.0, 7.0]) * 2.0**-24  # multiples of float16's least number
SMALL_STEP = 8.3e-8  # float16 has 6e-8 and 1.2e-7; the numbers are 0.72 steps apart, and none lies near a tie

HALVES, BELOW_ONE = torch.tensor([0.5, 2.5, 4.5, -0.5, -2.5, -4.5]), torch.tensor(1 - 1e-10, dtype=torch.float64)
ONE = torch.tensor(1, dtype=torch.int32)

EXERCISE = Exercise(
    id="quantization.quantize",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "nearest",
            "Divide by step, round to the nearest integer, and add the zero point, which is the code of 0.",
            points=3,
            keys=("codes",),
            roundings=0,
            cases=(USUAL, FOUR, TWO, SINGLE, EMPTY),
        ),
        Property(
            "half_a_step",
            "What a code stands for is farther than half a step from a number within the range. For a float16 x, the "
            "quotient has to be in float32, as step is: between 64 and 128 a float16 has sixteenths only.",
            points=2,
            holds=_half_step,
            cases=(USUAL, FOUR, TWO, DENSE, HALF, TIES, FAR),
        ),
        Property(
            "ties",
            "Halfway between two values x / step goes to the even integer, as torch.round has it, and the zero point "
            "is added after that.",
            keys=("codes",),
            roundings=0,
            cases=(TIES,),
            needs=("nearest",),
        ),
        Property(
            "ends",
            "Codes stop at -2**(bits - 1) and 2**(bits - 1) - 1, after the zero point was added. Numbers beyond get "
            "the last code: int8 itself would wrap around, and the largest number become the smallest.",
            points=2,
            keys=("codes",),
            roundings=0,
            cases=(OUTSIDE,),
        ),
        Property(
            "infinite",
            "Infinite numbers, and those beyond all integers, get the code at their end: cut off before you turn the "
            "quotient into an integer.",
            keys=("codes",),
            roundings=0,
            cases=(HUGE,),
            needs=("nearest",),
        ),
        Property(
            "for_each_channel",
            "step and zero broadcast to x: (m, 1) is a grid for each row, (1, c, 1) one for each index of a middle "
            "dimension, (n,) one for each column.",
            points=2,
            keys=("codes",),
            roundings=0,
            cases=(ROWS, SQUARE, MIDDLE, LAST, FAR),
        ),
        Property("int8", "Codes are in int8, also those of 4 bits.", keys=("dtype",), needs=("nearest",)),
    ),
    hints=(
        "How many steps is x away from 0, and which code does 0 have?",
        "torch.round goes to the even one of two. Where has the cut to stand, before or after the zero point is added, "
        "before or after the dtype changes?",
        "x in step's dtype, over step; round; plus zero; clamp to both ends; int8.",
    ),
    keeps=("x", "step", "zero"),
    forms=(
        in_dtype(torch.float64, "x", "step"),
        at_once("x alone in float64", in_dtype(torch.float64, "x"), of=ROWS),
        in_dtype(torch.float16, "x", of=FOUR),
        in_dtype(torch.bfloat16, "x", of=FOUR),
        at_once(
            "a step that float16 cannot hold",
            put("", x=SMALL.half(), step=torch.tensor(SMALL_STEP), zero=ONE),
            of=FOUR,
        ),
        put("a step that float32 cannot hold", x=HALVES, step=BELOW_ONE, zero=ONE, of=FOUR),
        put(
            "a step whose inverse is infinite", x=SMALL[1:] * 2.0**-106, step=torch.tensor(2.0**-130), zero=ONE, of=FOUR
        ),
        put("numbers that float32 cannot hold", x=BESIDE, step=torch.ones_like(BELOW_ONE), zero=ONE, of=FOUR),
        alone(
            put(
                "a grid for each of them",
                x=BESIDE[:, None],
                step=torch.ones(len(BESIDE), 1, dtype=torch.float64),
                zero=torch.ones(len(BESIDE), 1, dtype=torch.int32),
                of=FOUR,
            )
        ),
        strided("x", name="a view, one grid for all"),
        strided("x", "step", "zero", of=ROWS),
        transposed("x", of=ROWS),
        cut("one row", x=(0, 1), step=(0, 1), zero=(0, 1), of=ROWS),
        cut("rows of one number", x=(1, 1), of=ROWS),
        cut("no row", x=(0, 0), step=(0, 0), zero=(0, 0), of=ROWS),
    ),
    promises={
        "any shape, any floating dtype; it may be a view": (
            SINGLE,
            EMPTY,
            "in float16",
            "in bfloat16",
            "in float64",
            "a view, one grid for all",
            "views that are not contiguous",
            "transposed tensors",
        ),
        "Numbers outside of the grid, also infinite ones, get the code at its end": ("ends", "infinite"),
        "above 0, float32 or float64, of a shape that broadcasts to x's": ("for_each_channel", "in float64"),
        "x / step is computed in its dtype": (
            HALF,
            "a step that float16 cannot hold",
            "a step that float32 cannot hold",
            "a step whose inverse is infinite",
            "numbers that float32 cannot hold",
            "a grid for each of them",
            "x alone in float64",
        ),
        "int32, from -2**(bits - 1) to 2**(bits - 1) - 1, in the shape of step": ("nearest", "for_each_channel"),
        "from 2 to 8": (USUAL, FOUR, TWO),
        "int8, in the shape of x": ("int8", "nearest"),
        "to the nearest integer (of two, the even one), plus zero": ("nearest", "half_a_step", "ties"),
        "no less than -2**(bits - 1), no more than 2**(bits - 1) - 1": ("ends",),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
)
