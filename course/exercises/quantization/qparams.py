"""`qparams(x, bits, dim)`: step and zero point of the affine grid that just holds x and 0.

The numbers of a grid have an end that lies off the ties of rounding, so that its zero point is beyond dispute. Where it
lies at a tie, only what the grid does is judged: no number of x is farther from its value than half a step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from course.exercises.quantization.affine import AWAY, beyond, eps_of, steps
from course.performing.compare import as_numbers, describe
from course.performing.draws import integer
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
    outputs,
)
from course.performing.forms import at_once, cut, in_dtype, put, strided, times, transposed

USUAL, FOUR, TWO, SPREAD = "numbers of both signs", "4 bits", "2 bits", "three dimensions, one grid"
ROWS, SQUARE, MIDDLE, FAR, EACH = (
    "a grid for each row",
    "as many rows as columns, a grid for each column",
    "a grid for each index of a middle dimension",
    "a channel 1,000 times larger",
    "a grid for each number",
)
POSITIVE, NEGATIVE, EQUAL, BELOW = (
    "numbers above 0 only",
    "numbers below 0 only",
    "equal numbers above 0",
    "equal numbers below 0",
)
ZEROS, ZERO_ROW = "zeros", "a row of zeros"
SINGLE, TIE = "one number without dimensions", "0 halfway between two codes"
IN_OTHERS = (  # where an answer may take another way
    in_dtype(torch.float16, "x", of=ROWS, name=f"{ROWS}, in float16"),
    in_dtype(torch.float64, "x", of=ROWS, name=f"{ROWS}, in float64"),
    in_dtype(torch.float16, "x", of=EACH, name=f"{EACH}, in float16"),
    in_dtype(torch.float64, "x", of=EACH, name=f"{EACH}, in float64"),
    in_dtype(torch.float64, "x", of=ZEROS, name="zeros in float64"),
    in_dtype(torch.bfloat16, "x", of=ZEROS, name="zeros in bfloat16"),
)
ALLOWED = 4  # spacings of the dtype: a difference and two quotients round three times, and so may ours


def cases(rng: torch.Generator) -> list[Case]:
    """Channels whose range begins off the ties, holds 0, and ends where it has the length of all codes."""

    def rows(bits: int, side: Tensor, n: int, deep: bool = False) -> Tensor:
        """(count, n), float64, each row with both ends of its range, and numbers between. The range begins before a
        code where side, (count, 1), is 1, and after one where it is -1; deep, it has more than its half below 0.
        """
        levels = 2**bits - 1
        below = torch.randint(levels // 2 + 2 if deep else 1, levels, side.shape, generator=rng).double()
        low = -below - side * AWAY * (1 + torch.rand(side.shape, generator=rng, dtype=torch.float64)) / 2
        made: Tensor = low + levels * torch.rand(len(side), n, generator=rng, dtype=torch.float64)
        ends = torch.cat([low, low + levels], 1)
        places = torch.stack([torch.randperm(n, generator=rng)[:2] for _ in side])
        made = made.scatter(1, places, ends) * steps(rng, len(side), 1)
        return made

    def drawn(bits: int, *shape: int, side: int = 1, deep: bool = False) -> dict[str, Any]:
        made = rows(bits, torch.tensor([[side]]), torch.Size(shape).numel(), deep)
        return just(made.reshape(shape).float(), bits)

    def channels(bits: int, *shape: int, dim: int, deep: bool = False) -> dict[str, Any]:
        """The beginnings of their ranges lie before and after codes by turns."""
        others = [length for at, length in enumerate(shape) if at != dim % len(shape)]
        side = 1 - 2 * (torch.arange(shape[dim])[:, None] % 2)
        made = rows(bits, side, torch.Size(others).numel(), deep).reshape(shape[dim], *others).movedim(0, dim)
        return just(made.float().contiguous(), bits, dim)

    def just(x: Tensor, bits: int, dim: int | None = None) -> dict[str, Any]:
        return {"x": x, "bits": bits, "dim": dim}

    far, still = channels(8, 4, 6, dim=0), channels(8, 4, 6, dim=0, deep=True)
    far["x"][1] *= 1000
    still["x"][2] = 0
    sided = 1 + torch.rand(2, 3, 4, generator=rng)
    whole = integer(rng, 8, 16) / 64  # a step: -low / step is an integer, also in floating point
    below = -torch.cat([torch.tensor([15.0]), 1 + 13 * torch.rand(8, generator=rng)]) * whole
    # The range is 2**bits - 1 steps of 2^-6, and 0 lies an odd number of half steps from its beginning.
    half = (torch.arange(16.0) - integer(rng, 2, 13) - 0.5)[torch.randperm(16, generator=rng)] / 64
    some = {
        USUAL: drawn(8, 5, 7),
        FOUR: drawn(4, 12, side=-1, deep=True),
        TWO: drawn(2, 3, 4),
        SPREAD: drawn(3, 2, 3, 4, deep=True),
        ROWS: channels(8, 4, 6, dim=0, deep=True),
        SQUARE: channels(5, 5, 5, dim=-1),
        MIDDLE: channels(4, 2, 3, 4, dim=-2),
        FAR: far,
        EACH: just(torch.tensor([1.0, -1.0])[torch.randint(2, (5,), generator=rng)] * steps(rng, 5), 8, 0),
        POSITIVE: just(sided, 8),
        NEGATIVE: just(below, 4),
        EQUAL: just(torch.full((6,), 255 * whole), 8),
        BELOW: just(torch.full((2, 3), -15 * whole), 4),
        ZEROS: just(torch.zeros(2, 3), 4),
        ZERO_ROW: still,
        SINGLE: just(torch.tensor(-255 * whole), 8),
        TIE: just(half, 4),
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Step and zero point, and their dtypes."""
    dims = [] if inputs.get("without dim") else [inputs["dim"]]
    found = outputs(answer(inputs["x"], inputs["bits"], *dims), "step", "zero")
    dtypes: Inputs = {name: str(getattr(each, "dtype", type(each).__name__)) for name, each in found.items()}
    return observe({**found, "dtypes": {**dtypes}})


def _step(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each step within the roundings of the dtype in which it is to be computed."""
    exact = expected["step"]
    assert isinstance(exact, Tensor)
    return beyond(got["step"], exact, ALLOWED * eps_of(inputs, "x") * exact, "step")


def _zero(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each zero point, exactly."""
    exact = expected["zero"]
    assert isinstance(exact, Tensor)
    return beyond(got["zero"], exact.double(), torch.zeros(()), "zero")


def _both(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: step and zero point."""
    return _step(inputs, got, expected) or _zero(inputs, got, expected)


def _half_step(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: 0 is on the grid, and every number of x at most half of our step from it.

    Beyond that, only what the allowed error of step and x's own roundings make of the length of the range.
    """
    x, low = inputs["x"].detach().double(), -(2 ** (inputs["bits"] - 1))
    ours, step, zero = expected["step"], as_numbers(got["step"]), as_numbers(got["zero"])
    assert isinstance(ours, Tensor)
    if step is None or zero is None or step.shape != ours.shape or zero.shape != ours.shape:
        return f"step and zero must have the shape {(*ours.shape,)}, got {describe(got['step'])}"
    if not bool(((zero >= low) & (zero <= -low - 1) & (zero == zero.round())).all()):
        return f"zero must be a code, a whole number from {low} to {-low - 1}, got {describe(got['zero'])}"
    near = (((x / step).round() + zero).clamp(low, -low - 1) - zero) * step
    allowed = ours / 2 + (ALLOWED + 1) * eps_of(inputs, "x") * ours * 2 ** inputs["bits"]
    return beyond(near, x, allowed, "a number of x becomes")


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: step in float32 or x's float64, zero in int32."""
    wanted = {"step": str(torch.promote_types(inputs["x"].dtype, torch.float32)), "zero": "torch.int32"}
    others = [f"{name} in {got[f'dtypes/{name}']}" for name, dtype in wanted.items() if got[f"dtypes/{name}"] != dtype]
    return f"{', '.join(others)}, where x is in {inputs['x'].dtype}" if others else None


EXERCISE = Exercise(
    id="quantization.qparams",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "step",
            "2**bits codes have 2**bits - 1 steps between them, and together these are as long as the range from the "
            "least number to the largest.",
            points=2,
            holds=_step,
            cases=(USUAL, FOUR, TWO, SPREAD),
        ),
        Property(
            "zero_point",
            "The beginning of the range has the code -2**(bits - 1), and 0 lies -low / step codes behind it, rounded "
            "to the nearest integer.",
            points=2,
            holds=_zero,
            cases=(USUAL, FOUR, TWO, SPREAD),
        ),
        Property(
            "half_a_step",
            "On your grid a number of x is farther than half a step from the nearest value, or 0 is no code.",
            points=2,
            holds=_half_step,
            cases=(USUAL, FOUR, TWO, SPREAD, ROWS, FAR, POSITIVE, NEGATIVE, EQUAL, BELOW, TIE),
        ),
        Property(
            "for_each_channel",
            "With dim there is one grid for each index of this dimension: the least and the largest number are those "
            "over all *other* dimensions, which stay as 1. dim may be negative, and x may have no other dimension.",
            points=2,
            holds=_both,
            cases=(ROWS, SQUARE, MIDDLE, FAR, EACH),
        ),
        Property(
            "one_sided",
            "Numbers on one side of 0, also equal ones: the range includes 0 all the same, as one of its ends.",
            holds=_both,
            cases=(POSITIVE, NEGATIVE, EQUAL, BELOW, SINGLE),
        ),
        Property(
            "no_length",
            "Where all numbers are 0 the range has no length, and step is 1: 0 / 0 is nan.",
            holds=_both,
            cases=(ZEROS, ZERO_ROW),
            needs=("step",),
        ),
        Property(
            "dtypes",
            "step is in float32, or in float64 where x is; zero in int32.",
            holds=_dtypes,
            cases=(USUAL, ROWS, ZEROS, "in float16", "in bfloat16", "in float64", *(form.name for form in IN_OTHERS)),
            needs=("step",),
        ),
        dataclasses.replace(every_form(needs=("step",)), keys=(), holds=_both),
    ),
    hints=(
        "How many steps lie between the first of four codes and the last? Where does the range of numbers from 2 to 3 "
        "begin?",
        "amin and amax take several dimensions at once, and keepdim. clamp(max=0) brings 0 into the range from above.",
        "low and high over all dimensions but dim; step is high - low over 2**bits - 1, or 1 where that is 0; zero = "
        "-2**(bits - 1) - round(low / step), as int32.",
    ),
    keeps=("x",),
    forms=(
        in_dtype(torch.float64, "x"),
        in_dtype(torch.float16, "x", of=FOUR),
        in_dtype(torch.bfloat16, "x", of=FOUR),
        *IN_OTHERS,
        at_once(
            "a range too long for float16",
            put("", x=torch.tensor([-30_000.0, 45_000.0, 7.0], dtype=torch.float16)),
            of=FOUR,
        ),
        strided("x", name="a view, one grid for all"),
        strided("x", of=ROWS),
        transposed("x", of=ROWS),
        cut("one channel", x=(0, 1), of=ROWS),
        cut("channels of one number", x=(1, 1), of=ROWS),
        put("the first dimension by a negative number", dim=-2, of=ROWS),
        times("tiny numbers", 2.0**-110, "x", of=ROWS),
        put("dim is left out", {"without dim": True}, of=SPREAD),
    ),
    promises={
        "any shape, any floating dtype": ("in float64", "in float16", "in bfloat16", SINGLE, SPREAD),
        "with one number at least; it may be a view": (
            SINGLE,
            "a view, one grid for all",
            "views that are not contiguous",
            "transposed tensors",
        ),
        "from 2 to 8": (USUAL, FOUR, TWO),
        "one for each index of this dimension, which may be negative": ("for_each_channel",),
        "begins at the least number or 0, and ends at the largest or 0": ("one_sided", "half_a_step"),
        "its length over 2**bits - 1, and 1 where that is 0": ("step", "no_length", "tiny numbers"),
        "rounded to the nearest integer": ("zero_point",),
        "step in float32, or in float64 where x is, and computed in it; zero in int32": (
            "dtypes",
            "in float64",
            "a range too long for float16",
        ),
        "the shape (), or as many dimensions as x, all 1 but dim": ("for_each_channel", "step"),
        "x is not changed": ("arguments_unchanged",),
    },
)
