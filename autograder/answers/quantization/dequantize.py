"""Right and wrong ways to write `dequantize`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.dequantize import dequantize


def by_numpy(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """NumPy's integers of 16 bits, and one product in float64."""
    distance = codes.numpy().astype(np.int16) - zero.numpy().astype(np.int16)
    return torch.from_numpy(np.asarray(distance * step.double().numpy())).to(step.dtype)


def integers_first(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """The difference in int32."""
    return torch.mul(codes.to(torch.int32) - zero, step)


def from_the_beginning(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """From a table of all values of each grid."""
    table = torch.arange(-255, 256, dtype=step.dtype)
    steps_away = codes.long() - zero.long()
    return table[steps_away + 255] * step.expand(codes.shape)


RIGHT = (
    right(by_numpy, independent="numpy's int16"),
    right(integers_first),
    right(from_the_beginning),
)

numbers = partial(edited, dequantize)
DISTANCE = "(codes.to(step.dtype) - zero)"
RETURN = f"return {DISTANCE} * step"

WRONG = (
    wrong(
        "wraps_in_int8",
        "You subtract in int8. The difference of two codes needs nine bits, and what is left over is lost without a "
        "word.",
        numbers((DISTANCE, "(codes - zero)")),
        numbers((DISTANCE, "(codes - zero.char())")),
    ),
    wrong(
        "zero_forgotten",
        "The zero point is missing: a code counts from zero, and not from 0.",
        numbers((DISTANCE, "codes.to(step.dtype)")),
    ),
    wrong(
        "zero_added",
        "The zero point was added to make a code. On the way back it is taken off.",
        numbers((" - zero", " + zero")),
    ),
    wrong(
        "zero_after_the_step",
        "You take zero off the number. It is a code: take it off the code, before you multiply by step.",
        numbers((RETURN, "return (codes.to(step.dtype) * step - zero).to(step.dtype)")),
    ),
    wrong(
        "products_first",
        "You multiply code and zero point by step, and subtract then. In float16, which ends at 65,504, both products "
        "may be infinite where their difference is not, and inf - inf is nan: subtract first.",
        numbers((RETURN, "return codes * step - zero * step")),
    ),
    wrong(
        "divides",
        "You divide by step. A code counts steps.",
        numbers((RETURN, f"return {DISTANCE} / step")),
    ),
    wrong(
        "unsigned_codes",
        "You read the codes as numbers from 0 to 255: those below 0 are 256 too large.",
        numbers((DISTANCE, "((codes.int() & 255).to(step.dtype) - zero)")),
    ),
    wrong(
        "axis_swapped",
        "Your steps have lost a dimension, and lie along another one of codes now. (m, 1) broadcasts along the rows as "
        "it is.",
        numbers((RETURN, f"step, zero = step.squeeze(), zero.squeeze()\n    {RETURN}")),
    ),
    wrong(
        "always_float32",
        "Numbers come in float32, whatever step is in.",
        numbers((RETURN, "return (codes.float() - zero) * step.float()")),
        rounds_to=torch.float32,
    ),
    wrong(
        "nothing_in_float32",
        "Where there is no code, nothing comes in float32. It, too, has the dtype of step.",
        numbers((RETURN, f"if not codes.numel():\n        return codes.float()\n    {RETURN}")),
    ),
    wrong(
        "trains_what_came",
        "step requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        numbers((RETURN, RETURN + ".requires_grad_().detach()")),
    ),
)
