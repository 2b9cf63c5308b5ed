"""Right and wrong ways to write `quantize`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.quantize import quantize


def by_numpy(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """NumPy's rint and clip, in float64."""
    steps = x.detach().double().numpy() / step.detach().double().numpy()
    codes = np.clip(np.rint(steps) + zero.numpy(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return torch.from_numpy(np.asarray(codes, dtype=np.int8))


def cut_off_first(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """Steps are cut off at both ends, which lie at whole numbers, and rounded then: integers from there on."""
    half = 1 << (bits - 1)
    steps = torch.div(x, step).to(step.dtype) if x.dtype == step.dtype else x.to(step.dtype) / step
    inside = torch.minimum(torch.maximum(steps, (-half - zero).to(step.dtype)), (half - 1 - zero).to(step.dtype))
    return (inside.round().short() + zero).to(torch.int8)


def torchs_own(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """torch's rounding to a grid, one number after the other, none far beyond: it turns them into integers."""
    codes, low = [], -(2 ** (bits - 1))
    wide = [each.detach().expand(x.shape).flatten().tolist() for each in (x.to(step.dtype), step, zero)]
    for number, size, at in zip(*wide, strict=True):
        steps = torch.tensor(max(min(number / size, 1e6), -1e6), dtype=torch.float64)
        codes.append(round(float(torch.fake_quantize_per_tensor_affine(steps, 1.0, at, low, -low - 1))) + at)
    return torch.tensor(codes, dtype=torch.int8).reshape(x.shape)


RIGHT = (
    right(torchs_own, independent="torch.fake_quantize_per_tensor_affine"),
    right(by_numpy, independent="numpy's rint and clip"),
    right(cut_off_first),
)

codes = partial(edited, quantize)
QUOTIENT = "x.detach().to(step.dtype) / step"
ROUNDED = f"({QUOTIENT}).round()"
SUM = f"({ROUNDED} + zero)"
CUT = ".clamp(low, -low - 1)"
LOW = "low = -(2 ** (bits - 1))"

WRONG = (
    wrong(
        "times_the_inverse",
        "You multiply by 1 / step, which is infinite for the smallest steps, and rounds once more for all others. "
        "Divide x by step.",
        codes((QUOTIENT, "x.detach().to(step.dtype) * (1 / step)")),
    ),
    wrong(
        "truncates",
        "You cut off what follows the point, or go to the next integer below. Round to the nearest one.",
        codes((ROUNDED, f"({QUOTIENT}).trunc()")),
        codes((ROUNDED, f"({QUOTIENT}).floor()")),
        codes((ROUNDED, f"({QUOTIENT}).ceil()")),
    ),
    wrong(
        "rounds_half_up",
        "Halfway between two integers you always go up, or away from 0. These small errors have all one direction "
        "then; torch.round goes to the even one.",
        codes((ROUNDED, f"({QUOTIENT} + 0.5).floor()")),
        codes(
            ("return (", f"steps = {QUOTIENT}\n    return ("), (ROUNDED, "(steps.sign() * (steps.abs() + 0.5).floor())")
        ),
    ),
    wrong(
        "zero_added_before_rounding",
        "You add the zero point before you round. Where it is odd, a number halfway between two values goes the other "
        "way: x / step goes to the even integer, and zero is added to that.",
        codes((SUM, f"({QUOTIENT} + zero).round()")),
    ),
    wrong(
        "zero_not_added",
        "The zero point is missing, or taken off. It is the code that 0 has: add it.",
        codes((SUM, ROUNDED)),
        codes((" + zero", " - zero")),
    ),
    wrong(
        "wraps_around",
        "Codes beyond the ends are not cut off, or in int8, where they have wrapped around: the largest numbers become "
        "the smallest. Cut off while there is room.",
        codes((SUM + CUT, f"{SUM}.clamp(-1e6, 1e6).int()")),
        codes((SUM + CUT, f"{SUM}.clamp(-1e6, 1e6).int().to(torch.int8){CUT}")),
    ),
    wrong(
        "cut_off_before_the_zero_point",
        "You cut off x / step at the ends of the codes, and add the zero point after that: it moves the ends.",
        codes((SUM + CUT, f"({ROUNDED}{CUT} + zero)")),
        codes((SUM + CUT, f"({ROUNDED}{CUT} + zero).clamp(-128, 127)")),
    ),
    wrong(
        "off_by_one_level",
        "The codes of your grid are not -2**(bits - 1) to 2**(bits - 1) - 1: one is missing, or there is one more.",
        codes((CUT, ".clamp(low + 1, -low - 1)")),
        codes((CUT, ".clamp(low, -low - 2)")),
        codes((CUT, ".clamp(low, -low)")),
    ),
    wrong(
        "unsigned_codes",
        "Your codes go from 0 to 2**bits - 1. Ours are signed, and zero is counted as they are.",
        codes((CUT + ".to(torch.int8)", ".clamp(0, 2**bits - 1).to(torch.uint8)")),
        codes((CUT, ".clamp(0, 2**bits - 1)")),
    ),
    wrong(
        "not_cut_off_at_infinity",
        "Infinite numbers, or those beyond all integers, do not get the code at their end. Cut off while the quotient "
        "is a float and zero has been added: no integer is infinite, and beyond the largest one anything may come out.",
        codes((SUM, f"({ROUNDED}.to(torch.int32) + zero)")),
        codes((SUM, f"({ROUNDED}.to(torch.int64) + zero)")),
        codes((ROUNDED, f"({QUOTIENT}).nan_to_num(posinf=127.0, neginf=-128.0).round()")),
        fails=("infinite",),
    ),
    wrong(
        "axis_swapped",
        "Your steps have lost a dimension, and lie along another one of x now. (m, 1) broadcasts along the rows as it "
        "is.",
        codes((LOW, f"{LOW}\n    step, zero = step.squeeze(), zero.squeeze()")),
    ),
    wrong(
        "in_half_precision",
        "You divide in the dtype of x. A float16 has no room for small steps, and few digits for others: divide in "
        "that of step. torch does not do so by itself where step has no dimension.",
        codes((QUOTIENT, "x.detach() / step.to(x.dtype)")),
        codes((QUOTIENT, "x.detach() / step")),
    ),
    wrong(
        "always_float32",
        "You divide in float32, whatever step is in. A step or a number in float64 has digits that are lost then: "
        "divide in the dtype of step.",
        codes((QUOTIENT, "x.detach().float() / step.float()")),
        codes((QUOTIENT, "x.detach().float() / step")),
        codes((QUOTIENT, f"{QUOTIENT} if step.dim() == 0 else x.detach().float() / step.float()")),
    ),
    wrong(
        "trains_what_came",
        "x or step requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. Codes have no gradient, and none is needed.",
        codes(("x.detach()", "x.requires_grad_().detach()")),
        codes((LOW, f"{LOW}\n    step.requires_grad_()"), ("/ step)", "/ step.detach())")),
    ),
    wrong(
        "another_dtype",
        "The codes are right, and not in int8.",
        codes((".to(torch.int8)", "")),
        codes((".to(torch.int8)", ".to(torch.int32)")),
        fails=("int8",),
    ),
)
