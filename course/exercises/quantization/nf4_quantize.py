"""`nf4_quantize(x, block)`: the code of the nearest of NF4's values for each number, and the scale of each block.

Numbers are drawn well inside the interval of a code, so that no rounding decides. Where they are not, it is errors that
are judged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.lessons.nf4 import NF4
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs
from course.performing.forms import alone, in_dtype, put, strided, times, transposed

USUAL, RAGGED, LARGE, FAR, ZERO, SINGLE, EACH, EMPTY, NEAR = (
    "several blocks in a matrix",
    "a shorter last block",
    "a block larger than x",
    "a block 1,000 times larger",
    "a block of zeros",
    "one number",
    "blocks of one number",
    "no number",
    "bfloat16, also near midpoints",
)
ROUNDED, EMPTY_IN_HALF = "quotients that float16 rounds", f"{EMPTY}, in float16"
# 595 / 2037 and 1755 / 2037 lie just above midpoints, and their nearest numbers in float16 below.
BESIDE = torch.tensor([2037, 595, 1755]).half()
INSIDE = 0.8  # of the way from a value to the midpoint


def cases(rng: torch.Generator) -> list[Case]:
    """Numbers in blocks, each with a scale of its own, whose largest magnitude is the scale."""
    values = torch.tensor(NF4, dtype=torch.float64)
    middle = (values[1:] + values[:-1]) / 2
    edges = torch.cat([values[:1], middle, values[-1:]])

    def drawn(*shape: int, block: int) -> dict[str, Any]:
        count = torch.Size(shape).numel()
        codes = torch.randint(16, (count,), generator=rng)
        side = torch.rand(count, generator=rng, dtype=torch.float64) * 2 - 1
        room = torch.where(side > 0, edges[codes + 1] - values[codes], values[codes] - edges[codes])
        units = values[codes] + INSIDE * side * room
        negative = int(torch.randint(2, (), generator=rng))  # whether the largest of the first block is, then in turn
        for start in range(0, count, block):
            stop = min(start + block, count)
            at = int(torch.randint(start, stop, (), generator=rng))
            units[at] = 1.0 if (start // block + negative) % 2 == 0 else -1.0
            if units[at] < 0:  # so that the largest number is far below the largest magnitude, and no code is the same
                units[start:stop] = units[start:stop].clamp(max=float(values[12]))
            units[start:stop] *= 0.05 + torch.rand((), generator=rng, dtype=torch.float64)
        return {"x": units.float().reshape(shape), "block": block}

    far, zero, ragged = drawn(64, block=16), drawn(5, 8, block=8), drawn(53, block=16)
    ragged["x"][48:] /= 50
    far["x"][16:32] *= 1000
    zero["x"][2] = 0
    some = {
        USUAL: drawn(6, 12, block=9),
        RAGGED: ragged,
        LARGE: drawn(2, 3, 4, block=64),
        FAR: far,
        ZERO: zero,
        SINGLE: drawn(block=4),
        EACH: drawn(7, block=1),
        EMPTY: drawn(0, 3, block=4),
        NEAR: {"x": normal(rng, 32, 64).bfloat16(), "block": 32},
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Codes and scales, and their dtypes."""
    found = outputs(answer(inputs["x"], inputs["block"]), "codes", "scales")
    dtypes: Inputs = {name: str(getattr(each, "dtype", type(each).__name__)) for name, each in found.items()}
    return observe({**found, "dtypes": {**dtypes}})


def _nearest(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no number is farther from what its code stands for than from another value.

    A code's value times its scale is compared; 8 roundings of float32 are allowed, of the block's scale.
    """
    x, block, codes, scales = inputs["x"].double().flatten(), inputs["block"], got["codes"], got["scales"]
    if not isinstance(codes, Tensor) or not isinstance(scales, Tensor) or codes.numel() != x.numel():
        return "there is not one code for each number"
    if len(scales.shape) != 1 or len(scales) != -(-x.numel() // block):
        return f"there must be {-(-x.numel() // block)} scales, one for each block"
    values = torch.tensor(NF4, dtype=torch.float64)
    whole = codes.flatten().long()
    if x.numel() == 0 or not 0 <= int(whole.min()) <= int(whole.max()) <= 15:
        return None if x.numel() == 0 else "a code is not in 0 to 15"
    largest = torch.stack([part.abs().max() for part in x.split(block)]).repeat_interleave(block)[: x.numel()]
    error = (values[whole] * scales.double().repeat_interleave(block)[: x.numel()] - x).abs()
    least = (values * largest[:, None] - x[:, None]).abs().amin(1) + 8 * 2.0**-23 * largest
    worst = float(((error - least) / largest.clamp(min=1e-30)).nan_to_num(nan=torch.inf).max())
    return None if worst <= 0 else f"an error is {worst:.3g} of its block's largest number above the least"


EXERCISE = Exercise(
    id="quantization.nf4_quantize",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "scales",
            "A scale is the largest magnitude of the numbers of one block.",
            points=2,
            keys=("scales",),
            cases=(USUAL, FAR),
        ),
        Property(
            "codes",
            "A code is the index of the value of NF4 that is nearest to number / scale. The values are not evenly "
            "spaced.",
            points=3,
            keys=("codes",),
            cases=(USUAL, FAR),
        ),
        Property(
            "least_error",
            "No other code of the block's scale would be nearer, neither in small blocks nor in large ones.",
            points=2,
            holds=_nearest,
            cases=(USUAL, RAGGED, LARGE, FAR, NEAR, ROUNDED),
        ),
        Property(
            "ragged",
            "The last block has what is left, a scale of its own, and its numbers alone decide it.",
            points=2,
            keys=("codes", "scales"),
            cases=(RAGGED, LARGE),
            needs=("codes",),
        ),
        Property(
            "zeros",
            "A block of zeros has scale 0 and the code 7: do not divide by its scale.",
            roundings=0,
            keys=("codes", "scales"),
            cases=(ZERO,),
            needs=("codes",),
        ),
        Property(
            "any_shape",
            "x may have any shape, also () and (0, 3), and a block may be one number.",
            keys=("codes", "scales"),
            cases=(SINGLE, EACH, EMPTY),
            needs=("scales",),
        ),
        Property(
            "dtypes",
            "Codes are uint8, scales float32, whatever x is in.",
            keys=("dtypes/*",),
            cases=(USUAL, EMPTY, EMPTY_IN_HALF, "in float16", "in bfloat16"),
            needs=("scales",),
        ),
    ),
    hints=(
        "Which numbers share a scale, and which code stands for 0?",
        "Between two neighbouring values the midpoint decides: a code is the number of midpoints below. "
        "torch.bucketize counts them. Zeros fill up a last block without touching its largest magnitude.",
        "flatten, float, pad to full blocks, reshape (-1, block); amax of abs; divide where it is not 0; bucketize; "
        "cut off the padding; reshape as x; uint8.",
    ),
    keeps=("x",),
    forms=(
        in_dtype(torch.float16, "x"),
        in_dtype(torch.bfloat16, "x"),
        in_dtype(torch.float16, "x", of=EMPTY, name=EMPTY_IN_HALF),
        strided("x"),
        transposed("x"),
        put("one block for all", block=1000),
        alone(put(ROUNDED, x=BESIDE, block=3)),
        times("small numbers", 2.0**-130, "x"),  # the inverse of a scale is infinite
    ),
    promises={
        "any shape, in float32, float16 or bfloat16, a view or not": (
            "any_shape",
            "in float16",
            "in bfloat16",
            "views that are not contiguous",
            "transposed tensors",
        ),
        "the last one is shorter where block does not divide their number": ("ragged",),
        "at least 1, perhaps more than x has": (EACH, LARGE, "ragged", "one block for all"),
        "the index in NF4 of the value nearest to number / scale": ("codes", "least_error", NEAR, ROUNDED),
        "its largest |number|": ("scales", "small numbers"),
        "scale 0 and the code 7": ("zeros",),
        "four of them 0 until two codes share a byte, and 32 for each block": ("dtypes", "scales"),
        "x is not changed": ("arguments_unchanged",),
    },
)
