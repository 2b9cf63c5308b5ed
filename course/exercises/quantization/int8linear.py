"""`Int8Linear(weight, bias)`: a linear layer that keeps its weight in int8, and multiplies in int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.quantization.grids import ROUGH, ROUGH_TOO, SIGNS, SMALL, multiplies_int8, on_grid
from course.meter import cycles_freed, kept_bytes, metered
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
from course.performing.forms import alone, at_once, cut, in_dtype, leaves, put, strided, times, transposed

USUAL, FAR, ZERO, STILL, BARE, SINGLE, HALF, KEPT = (
    "several rows",
    "a channel 1,000 times larger",
    "a channel of zeros",
    "a row of zeros",
    "no bias, three leading dimensions",
    "no leading dimension",
    "steps that half precision holds",
    "a few rows through a larger layer",
)
BELOW_HALF = ("steps of x below float16", "steps of the weight below float16")
SINGLE_IN_HALF, ROUNDED = f"{SINGLE}, in float16", "steps that bfloat16 rounds"
NO_ROW, BEYOND_HALF = "no row, in float16", "x beyond the weight's float16"
KEEPS = ("weight", "bias", "x")
ROOM = 256  # bytes beside codes, step and bias that a layer may keep: numbers in tensors of shape ()


def cases(rng: torch.Generator) -> list[Case]:
    """Layers and inputs off ties, so that every right answer has the same codes."""

    def drawn(rows: int, n: int, m: int, **how: Any) -> dict[str, Any]:
        return {
            "weight": on_grid(rng, m, n, **how),
            "bias": normal(rng, m) + 40,  # beyond what rounding explains
            "x": on_grid(rng, rows, n, **how),
        }

    far, zero, still, bare = drawn(5, 40, 4), drawn(4, 6, 3), drawn(4, 5, 3), drawn(6, 7, 3)
    far["weight"][2] *= 1000
    zero["weight"][1] = 0
    still["x"][2] = 0
    bare |= {"bias": None, "x": bare["x"].reshape(2, 1, 3, 7)}
    half = drawn(4, 24, 5, exact=True)
    half["x"][0] = half["weight"][0]  # the product of codes is beyond float16's largest number
    single = drawn(1, 6, 4)
    single["x"] = single["x"][0]
    some = {
        USUAL: drawn(5, 8, 6),
        FAR: far,
        ZERO: zero,
        STILL: still,
        BARE: bare,
        SINGLE: single,
        HALF: half,
        KEPT: {**drawn(2, 64, 48), "parameters": True},  # what is computed from them may keep them
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What the layer holds and what it says in a second call; bytes beyond what is enough that it keeps, and makes in
    one tensor.
    """
    x = inputs["x"]
    as_given: Callable[[Tensor], Tensor] = nn.Parameter if inputs.get("parameters") else lambda each: each
    with cycles_freed():
        with kept_bytes() as meter:
            given = [None if each is None else as_given(each * 1) for each in (inputs["weight"], inputs["bias"])]
            given = given[:1] if inputs.get("without bias") else given
            layer = answer(inputs["weight"], inputs["bias"]) if x.dim() != 2 else answer(*given)
            del given
            layer(1 - 3 * x.detach())
        with metered() as run:
            y = layer(x)
    m, n = inputs["weight"].shape
    largest = run.largest.bytes if run.largest else 0
    values = {
        "y": y,
        "codes": layer.codes,
        "step": layer.step,
        "held": " ".join(f"{name} {each.dtype}" for name, each in sorted(layer.state_dict().items()) if name != "bias"),
        "parameters": " ".join(name for name, _ in layer.named_parameters()) or "none",
        "in int8": multiplies_int8(run, x.shape[:-1].numel(), n, m),
        "beyond": {
            "kept": torch.tensor(float(max(0, meter.bytes_alive(ignore=[y]) - (m * n + 12 * m + ROOM)))),
            "largest": torch.tensor(float(max(0, largest - (m + 1) * (n + 1)))),  # int8_product may pad the codes
        },
    }
    return observe(values)


def _near(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no y is farther from x W' + bias than half a step of every x and w explains.

    Of a product (x + a)(w + b) with |a| <= dx / 2 and |b| <= dw / 2 the error is at most |x| dw / 2 + |w| dx / 2 +
    dx dw / 4. Sums and scales of float32 add 8 roundings of the largest term.
    """
    x, w = inputs["x"].double().reshape(-1, inputs["weight"].shape[1]), inputs["weight"].double()
    bias = 0.0 if inputs["bias"] is None else inputs["bias"].double()
    dx, dw = (each.abs().amax(1, keepdim=True) / 127 for each in (x, w))
    sizes = x.abs() @ w.abs().T
    most = x.abs().sum(1, keepdim=True) @ dw.T / 2 + dx @ w.abs().sum(1, keepdim=True).T / 2
    most += x.shape[1] * dx @ dw.T / 4 + 8 * 2.0**-23 * (sizes + abs(bias))
    y = got["y"]
    if not isinstance(y, Tensor) or y.numel() != most.numel():
        return "y has not one number for each row of x and of the weight"
    excess = (y.double().reshape(most.shape) - x @ w.T - bias).abs() / most.clamp(min=1e-30)
    worst = float(excess.nan_to_num(nan=torch.inf).max()) if most.numel() else 0.0
    return None if worst <= 1 else f"the error is {worst:.3g} times what rounding to the nearest code can make"


def _product_of_codes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: codes are multiplied, and nothing is larger than those of the weight."""
    return _enough("largest", "are in one tensor")(inputs, got, expected) or (
        None if got["in int8"] else "forward does not make all products in int8: int8_product makes them"
    )


def _enough(key: str, told: str) -> Any:
    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        beyond = got[f"beyond/{key}"]
        if isinstance(beyond, Tensor) and beyond == 0:
            return None
        m, n = inputs["weight"].shape
        more = f"{float(beyond):,.0f} bytes more than are enough" if isinstance(beyond, Tensor) else "nobody knows what"
        return f"{more} {told}, where the codes have {m * n:,}"

    return holds


EXERCISE = Exercise(
    id="quantization.Int8Linear",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "codes",
            "A code is weight / step, rounded to the nearest integer, and the largest |weight| of each row has 127.",
            points=2,
            keys=("codes", "step"),
            cases=(USUAL, BARE, KEPT),
        ),
        Property(
            "value",
            "y = (codes of x times codes of the weight) * step of x * step of the weight + bias. Each row of x has a "
            "step of its own, from its largest |x|.",
            points=3,
            keys=("y",),
            cases=(USUAL, KEPT),
            needs=("codes",),
        ),
        Property(
            "each_channel",
            "A channel that is 1,000 times larger takes nothing from the others: each row of the weight has its step, "
            "and no error is above half a step of each factor.",
            points=2,
            holds=_near,
            cases=(FAR, KEPT),
        ),
        Property(
            "zeros",
            "A channel of zeros says its bias, and a row of zeros gets the bias alone: 0 / 0 is nan. Its step is 1.",
            keys=("y", "step"),
            cases=(ZERO, STILL),
            needs=("codes",),
        ),
        Property(
            "any_input",
            "x has any number of leading dimensions, also none; the layer may have no bias.",
            keys=("y",),
            cases=(BARE, SINGLE),
            needs=("codes",),
        ),
        Property(
            "buffers",
            "codes (int8) and step (float32) are buffers, so that they are saved with the model, and nothing is a "
            "parameter.",
            keys=("held", "parameters"),
            cases=(USUAL, "parameters", "tensors that require a gradient", "in bfloat16"),
            needs=("codes",),
        ),
        Property(
            "dtype_of_x",
            "y comes in the dtype of x.",
            holds=in_the_dtype_of("x", "y"),
            cases=("in float16", "in bfloat16", SINGLE_IN_HALF, NO_ROW, *BELOW_HALF),
        ),
        every_form(needs=("codes",), keys=("y", "codes", "step")),
        Property(
            "nothing_beside_the_codes",
            "The layer keeps more than its codes, its steps and its bias: a copy of the weight, in any precision and "
            "wherever it is held, makes it larger than it was.",
            points=2,
            holds=_enough("kept", "are kept"),
            cases=(KEPT,),
            needs=("value",),
        ),
        Property(
            "no_float_weight",
            "forward makes a tensor with more bytes than the codes have, the weight once more in a wider type, or does "
            "not multiply in int8. Multiply the codes as they are, and scale the product.",
            holds=_product_of_codes,
            cases=(KEPT,),
            needs=("value",),
        ),
    ),
    hints=(
        "Which numbers share a step: those that are multiplied into one output, or those of one input?",
        "amax over dimension 1 with keepdim gives the steps of rows, of the weight and of x alike. Where in y does "
        "each of both go?",
        "codes = (rows / step).round().to(int8), twice; int8_product(codes of x, codes.T) times step (rows, 1) times "
        "step.T (1, m); the bias; the dtype; the shape.",
    ),
    keeps=KEEPS,
    forms=(
        at_once("in float16", in_dtype(torch.float16, "weight", "bias", "x"), of=HALF),
        at_once("in bfloat16", in_dtype(torch.bfloat16, "weight", "bias", "x"), of=HALF),
        alone(put(BELOW_HALF[0], x=SMALL, weight=SIGNS.float(), bias=torch.full((len(SIGNS),), -(2.0**-11)))),
        alone(
            at_once(  # the product of both steps is below float16, too
                BELOW_HALF[1],
                put("", weight=SMALL, bias=torch.zeros(len(SMALL)).half()),
                times("", 8.0, "x"),
                in_dtype(torch.float16, "x"),
            )
        ),
        alone(at_once(BEYOND_HALF, in_dtype(torch.float16, "weight", "bias"), times("", 2.0**17, "x"), of=HALF)),
        alone(put(ROUNDED, x=ROUGH, weight=ROUGH_TOO, bias=None)),
        in_dtype(torch.float16, "weight", "bias", "x", of=SINGLE, name=SINGLE_IN_HALF),
        at_once("tiny numbers", put("", bias=None), times("", 2.0**-40, "weight", "x")),
        put("parameters", parameters=True),
        put("bias is left out", {"bias": None, "without bias": True}),
        leaves("weight", "bias", "x", of=SINGLE),
        strided("weight", "bias", "x"),
        strided("x", of=BARE, name="three leading dimensions, not contiguous"),
        transposed("weight", "x"),
        cut("one row", x=(0, 1)),
        cut("no row", x=(0, 0)),
        at_once(NO_ROW, in_dtype(torch.float16, "weight", "bias", "x"), cut("", x=(0, 0)), of=HALF),
        cut("one number out", weight=(0, 1), bias=(0, 1)),
        cut("one number in", weight=(1, 1), x=(1, 1), of=HALF),
    ),
    promises={
        "float32, float16 or bfloat16": ("in float16", "in bfloat16", "dtype_of_x"),
        "a view or not": ("views that are not contiguous", "transposed tensors"),
        "in one of these dtypes, which may be another": (BELOW_HALF[0], BEYOND_HALF, "dtype_of_x"),
        "in the weight's dtype, a parameter or not, or None": ("in float16", "in bfloat16", "parameters", BARE),
        "weight / step to the nearest integer, from -127 to 127": ("codes",),
        "the largest |weight| of the row, over 127; 1 where the row is all 0": ("codes", "zeros", "tiny numbers"),
        "with any number of leading dimensions, also none, and also without a row": ("any_input", "no row"),
        "Returns y (..., m) in the dtype of x": ("dtype_of_x", "value", "one number out"),
        "the integer product of codes": ("no_float_weight",),
        "are in float32": ("buffers", "in float16", ROUNDED, *BELOW_HALF),
        "and no other copy of the weight in any form": ("nothing_beside_the_codes",),
        "forward multiplies in int8, and makes no tensor with more bytes than codes has": ("no_float_weight",),
        "the layer has no parameters": ("buffers",),
        "Weight, bias and x are not changed": ("arguments_unchanged", "buffers"),
    },
)
