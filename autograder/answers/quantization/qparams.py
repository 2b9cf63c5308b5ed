"""Right and wrong ways to write `qparams`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.qparams import qparams


def by_numpy(x: Tensor, bits: int, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """NumPy's float64, one channel after the other; the zero point from the other end."""
    numbers = x.detach().double().numpy()
    channels = [numbers.ravel()] if dim is None else list(np.moveaxis(numbers, dim, 0))
    steps, zeros = [], []
    for channel in channels:
        low, high = min(0.0, channel.min()), max(0.0, channel.max())
        steps.append((high - low) / (2**bits - 1) if high > low else 1.0)
        zeros.append(2 ** (bits - 1) - 1 - np.rint(high / steps[-1]) if high > low else -(2 ** (bits - 1)))
    shape = [] if dim is None else [len(channels) if at == dim % x.dim() else 1 for at in range(x.dim())]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.tensor(steps, dtype=dtype).reshape(shape), torch.tensor(zeros, dtype=torch.int32).reshape(shape)


def with_zero_beside(x: Tensor, bits: int, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """Channels in rows, with a 0 more in each; the ends are divided before they are subtracted."""
    wide = x.detach() if x.dtype == torch.float64 else x.detach().to(torch.float32)
    rows = wide.reshape(1, -1) if dim is None else wide.movedim(dim, 0).reshape(x.shape[dim], -1)
    low, high = torch.aminmax(torch.cat([rows, torch.zeros_like(rows[:, :1])], dim=1), dim=1)
    levels = 2**bits - 1
    step = high / levels - low / levels
    step[step == 0] = 1
    zero = (-low / step).round().int() - 2 ** (bits - 1)
    shape = [1] * x.dim() if dim is not None else []
    if dim is not None:
        shape[dim] = -1
    return step.reshape(shape), zero.reshape(shape)


RIGHT = (right(by_numpy, independent="numpy, a channel at a time"), right(with_zero_beside))

params = partial(edited, qparams)
rows = partial(edited, with_zero_beside)
WIDE = "x.detach().to(torch.promote_types(x.dtype, torch.float32))"
DIMS = "dims = [each for each in range(x.dim()) if dim is None or each != dim % x.dim()]"
LOW = "wide.amin(dims, keepdim=dim is not None).clamp(max=0) if dims else wide.clamp(max=0)"
HIGH = "wide.amax(dims, keepdim=dim is not None).clamp(min=0) if dims else wide.clamp(min=0)"
REST_LOW, REST_HIGH = " if dims else wide.clamp(max=0)", " if dims else wide.clamp(min=0)"
STEP = "step = (high - low) / (2**bits - 1)"
ONE = "step = torch.where(step > 0, step, 1.0)"
LEAST = "torch.tensor(-(2 ** (bits - 1)), dtype=torch.int32)"
ZERO = "(-(2 ** (bits - 1)) - (low / step).round()).to(torch.int32)"

WRONG = (
    wrong(
        "off_by_one_level",
        "2**bits codes have 2**bits - 1 steps between the first and the last. You divide the range by another number.",
        params((STEP, "step = (high - low) / 2**bits")),
        params((STEP, "step = (high - low) / (2**bits - 2)")),
    ),
    wrong(
        "zero_outside_of_the_range",
        "Your range goes from the least number to the largest, and where all have one sign 0 is not in it: no code "
        "stands for 0 then, and equal numbers have a range without length. Let the range begin at 0 at the latest, "
        "and end at 0 at the earliest.",
        params((LOW, LOW.replace(".clamp(max=0)", "")), (HIGH, HIGH.replace(".clamp(min=0)", ""))),
    ),
    wrong(
        "one_end_only",
        "You look at one end of the range, or at the largest magnitude, and take the other end for granted. The range "
        "begins at the least number and ends at the largest: a grid that is alike on both sides wastes codes.",
        params((STEP, "step = high / (2**bits - 1)")),
        params(
            (STEP, "step = torch.maximum(high, -low) / (2 ** (bits - 1) - 1)"),
            (ZERO, "torch.zeros_like(step).to(torch.int32)"),
        ),
    ),
    wrong(
        "codes_from_zero_on",
        "Your zero point counts codes from 0 to 2**bits - 1. Ours are signed, and begin at -2**(bits - 1).",
        params((ZERO, "(-(low / step).round()).to(torch.int32)")),
    ),
    wrong(
        "truncates",
        "You cut off what follows the point of -low / step. Round to the nearest integer.",
        params((ZERO, "(-(2 ** (bits - 1)) - low / step).to(torch.int32)")),
        params((ZERO, ZERO.replace(".round()", ".floor()"))),
        params((ZERO, ZERO.replace(".round()", ".ceil()"))),
    ),
    wrong(
        "axis_swapped",
        "You reduce over dim itself. It is the dimension that is kept: reduce over all others.",
        params((DIMS, "dims = [each for each in range(x.dim()) if dim is None or each == dim % x.dim()]")),
    ),
    wrong(
        "dimensions_lost",
        "Step and zero point have lost the dimensions over which you reduced. With keepdim they broadcast to x.",
        params(
            (LOW, LOW.replace("keepdim=dim is not None", "keepdim=False")),
            (HIGH, HIGH.replace("keepdim=dim is not None", "keepdim=False")),
        ),
    ),
    wrong(
        "negative_dim",
        "A negative dim counts from the last dimension on, and you compare it with numbers from 0 on.",
        params((DIMS, DIMS.replace("dim % x.dim()", "dim"))),
    ),
    wrong(
        "another_default",
        "dim may be left out, which means None: one grid for all of x.",
        params(("dim: int | None = None", "dim: int | None")),
        params(("dim: int | None = None", "dim: int | None = 0")),
        params(("dim: int | None = None", "dim: int | None = -1")),
    ),
    wrong(
        "no_other_dimension",
        "Where x has no dimension but dim, you reduce over an empty list, which torch takes for all dimensions. Each "
        "number has a grid of its own there.",
        params((LOW, LOW.removesuffix(REST_LOW)), (HIGH, HIGH.removesuffix(REST_HIGH))),
    ),
    wrong(
        "zeros_divided",
        "Where all numbers are 0, 0 / 0 is nan, and the step is to be 1. An eps that is added, or a least step, does "
        "not make it 1, and changes true small steps.",
        params((ONE, "pass")),
        params((ONE, "step = step.clamp(min=1e-8)")),
        params((ONE, "step = step + 5e-8")),
    ),
    wrong(
        "small_steps_become_one",
        "You take a short range for one without length. Weights may be as small as they like: only where the step "
        "itself is 0 is it to be 1.",
        params((ONE, ONE.replace("> 0", "> 1e-8"))),
        params((ONE, ONE.replace("> 0", "> 1e-30"))),
    ),
    wrong(
        "view_of_a_view",
        "`.view` raises where the numbers of x do not lie side by side. `.reshape` and `.flatten()` copy them then.",
        rows(("wide.reshape(1, -1)", "wide.view(1, -1)")),
    ),
    wrong(
        "in_half_precision",
        "You compute in the dtype of x. A float16 has three digits and ends at 65,504; the step is in float32 at "
        "least.",
        params((WIDE, "x.detach()")),
        params((WIDE, f"{WIDE} if dim is None else x.detach()")),
        params(*((rest, rest.replace("wide", "x.detach()")) for rest in (REST_LOW, REST_HIGH))),
    ),
    wrong(
        "another_dtype",
        "The numbers are right, and step or zero comes in another dtype. step is in float32, or in float64 where x is; "
        "zero is in int32.",
        params((ZERO, ZERO.replace(".to(torch.int32)", ""))),
        params((ZERO, ZERO.replace("int32", "int64"))),
        params((ZERO, ZERO.replace("int32", "int8"))),
        params((WIDE, "x.detach().double()")),
        params((ZERO, ZERO.replace("int32", "int32 if dim is None else low.dtype"))),
        params((DIMS, f"if dim is None and not x.any():\n        return torch.tensor(1.0), {LEAST}\n    {DIMS}")),
        params((DIMS, f"if dim is None and not x.any():\n        return x.new_ones(()), {LEAST}\n    {DIMS}")),
        params(("return step", "return step if dim is None else step.float()")),
        fails=("dtypes",),
    ),
    wrong(
        "trains_what_came",
        "x requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        params((WIDE, WIDE.replace("x.detach", "x.requires_grad_().detach"))),
    ),
)
