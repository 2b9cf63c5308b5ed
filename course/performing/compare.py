"""Comparing one observed value with a reference computed in float64.

The tolerance is derived, not tuned: a right answer in a dtype with unit spacing eps differs from the exact value
by at most (number of roundings) x eps x (size of the numbers involved), to first order (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., section 3.1). Comparisons are `not (error <= tolerance)`, so nan fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from course.tree import Leaf, Tree, as_float, leaves

EPS = {
    torch.float64: 2.0**-52,
    torch.float32: 2.0**-23,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}
DIGITS, ALL_DIGITS = 6, 17  # shown of a number, and enough to tell any two of float64 apart
LARGEST_CLAIMED_EPS = EPS[torch.float32]  # an answer may compute in float32, but not buy tolerance with float16
MOST_CLAIMED = 2**17  # roundings of float32 in a case in float64: 1/64


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Whether one value equals another, and the worst place if not.

    remark  what the difference looks like: a question to the student, "" where it looks like nothing in particular
    """

    held: bool
    error: float
    tolerance: float
    got: str
    expected: str
    where: str = ""
    remark: str = ""


def tolerance(dtype: torch.dtype, *, roundings: int, scale: float, sensitivity: float = 0.0) -> float:
    """The largest difference that `roundings` roundings explain: `roundings * max(eps * scale, sensitivity)`.

    scale        the largest finite magnitude among the compared values
    sensitivity  how far the value moves when each input moves by one rounding (0 where it was not measured)
    Integers and dtypes without a known eps get 0: they compare exactly.
    """
    allowed = roundings * max(EPS.get(dtype, 0.0) * scale, sensitivity)
    return allowed if math.isfinite(allowed) else 0.0


def case_dtype(inputs: Tree) -> torch.dtype:
    """The coarsest floating dtype among the inputs; float64 where they hold Python numbers only."""
    found = [leaf.dtype for leaf in leaves(inputs) if isinstance(leaf, Tensor) and leaf.dtype in EPS]
    return max(found, key=lambda dtype: EPS[dtype], default=torch.float64)


def as_numbers(leaf: Leaf) -> Tensor | None:
    """The leaf in float64 (complex128 for complex numbers), or None where it holds no numbers that can be read."""
    if isinstance(leaf, (bool, int, float)):
        return torch.tensor(as_float(leaf), dtype=torch.float64)
    if not isinstance(leaf, Tensor) or leaf.is_meta or leaf.layout != torch.strided:
        return None
    if leaf.dtype == torch.float64 and leaf.is_cpu:
        return leaf.detach()
    try:
        return leaf.detach().to("cpu", torch.complex128 if leaf.is_complex() else torch.float64)
    except RuntimeError:  # quantized, or of a dtype that knows no arithmetic
        return None


def shape_of(leaf: Leaf) -> tuple[int, ...]:
    """Of a tensor its shape; of anything else (). To compare these first costs nothing, and numbers take memory."""
    return tuple(leaf.shape) if isinstance(leaf, Tensor) else ()


class Measured(NamedTuple):
    """What two values differ by, before anything is said about it.

    place   the index of a tensor's worst number, () where there is none
    judged  the dtype whose roundings were allowed; None where nothing was computed
    """

    held: bool
    error: float
    tolerance: float
    place: tuple[int, ...] = ()
    judged: torch.dtype | None = None


DIFFERENT, SAME = Measured(False, math.inf, 0.0), Measured(True, 0.0, 0.0)


def measure(got: Leaf, expected: Leaf, dtype: torch.dtype, *, roundings: int, sensitivity: float = 0.0) -> Measured:
    """Whether `got` equals `expected` within the roundings of `dtype`. Total: never raises.

    Shapes must be equal; a Python number and a tensor of shape () are the same thing. Strings, None and integers
    (a count, a number of bytes) compare exactly. Where the reference is nan or infinite, the answer must be the same
    there.
    """
    if shape_of(got) != shape_of(expected):
        return DIFFERENT
    a, b = as_numbers(got), as_numbers(expected)
    if a is None or b is None:
        same = isinstance(got, (str, type(None))) and type(got) is type(expected) and got == expected
        return SAME if same else DIFFERENT
    if a.shape != b.shape or a.is_complex() != b.is_complex():
        return DIFFERENT
    if a.numel() == 0:
        return SAME
    judged, equal = judged_dtype(got, expected, dtype), torch.equal(a, b)
    scale = _size(a) if equal else max(_size(a), _size(b))
    allowed = tolerance(judged, roundings=roundings, scale=scale, sensitivity=sensitivity)
    if roundings > MOST_CLAIMED and judged != dtype:  # so many of a coarser dtype may be more than the values are
        few = tolerance(judged, roundings=MOST_CLAIMED, scale=scale, sensitivity=sensitivity)
        allowed = min(allowed, max(few, tolerance(dtype, roundings=roundings, scale=scale, sensitivity=sensitivity)))
    error, place = (0.0, ()) if equal else _worst(a, b)
    return Measured(error <= allowed, error, allowed, place, judged)


def compare(got: Leaf, expected: Leaf, dtype: torch.dtype, *, roundings: int, sensitivity: float = 0.0) -> Comparison:
    """`measure`, in words."""
    return described(measure(got, expected, dtype, roundings=roundings, sensitivity=sensitivity), got, expected)


def same_bits(got: Tensor, expected: Tensor) -> bool:
    """Whether both are the same bit for bit, signs of zeros and nan included."""
    ours, theirs = (each.detach().contiguous().flatten().view(torch.uint8) for each in (got, expected))
    return got.shape == expected.shape and torch.equal(ours, theirs)


def described(found: Measured, got: Leaf, expected: Leaf) -> Comparison:
    """What was measured between these two, in words; both with as many digits as show the difference."""
    told = ("", "")
    for digits in range(DIGITS, DIGITS + 1 if found.held else ALL_DIGITS + 1):
        if told[0] == told[1]:
            told = (describe(got, found.place, digits), describe(expected, found.place, digits))
    return Comparison(
        held=found.held,
        error=found.error,
        tolerance=found.tolerance,
        got=told[0],
        expected=told[1],
        where=f"[{', '.join(map(str, found.place))}]" if found.place else "",
        remark="" if found.held or found.judged is None else _looks_coarse(got, expected, found.error, found.judged),
    )


def _is_whole(leaf: Leaf) -> bool:
    if isinstance(leaf, Tensor):
        return not leaf.is_floating_point() and not leaf.is_complex()
    return isinstance(leaf, int)


def judged_dtype(got: Leaf, expected: Leaf, dtype: torch.dtype) -> torch.dtype:
    """The case's dtype, or float32 where the answer computed in it although the case was finer; int64 for integers."""
    if _is_whole(expected):
        return torch.int64
    coarse = isinstance(got, Tensor) and got.dtype in EPS and EPS[got.dtype] > EPS.get(dtype, 0.0)
    if coarse and EPS.get(dtype, 0.0) < LARGEST_CLAIMED_EPS:
        return torch.float32
    return dtype


def _size(numbers: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none."""
    magnitudes = numbers.abs()
    largest = float(magnitudes.max())
    if math.isfinite(largest):
        return largest
    return float(magnitudes.nan_to_num_(nan=0.0, posinf=0.0).max())


def _worst(a: Tensor, b: Tensor) -> tuple[float, tuple[int, ...]]:
    """The largest difference and where it is; inf where one is not finite and the other is not the same."""
    error = (a - b).abs()
    flat = int(error.argmax())
    largest = float(error.reshape(-1)[flat])
    if not math.isfinite(largest):  # or nan, which argmax finds first
        same = (a == b) | (torch.isnan(a) & torch.isnan(b))
        both = torch.isfinite(a) & torch.isfinite(b)
        error = torch.where(same, 0.0, torch.where(both, error, math.inf))
        flat = int(error.argmax())
        largest = float(error.reshape(-1)[flat])
    index = tuple(int(i) for i in np.unravel_index(flat, tuple(a.shape)))  # torch's own imports sympy, for a second
    return largest, index


def _looks_coarse(got: Leaf, expected: Leaf, error: float, judged: torch.dtype) -> str:
    """A question, where the worst difference is about one rounding of a dtype coarser than the case's.

    float16 and bfloat16 are named only where they can hold every value of the answer: a wrong formula may be as close.
    """
    values, right = as_numbers(got), as_numbers(expected)
    if values is None or right is None:
        return ""
    scale = float(right.abs().nan_to_num(nan=0.0, posinf=0.0).max())
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        most = 4 if dtype == torch.float32 else 1
        near = EPS[dtype] / 64 <= error / scale <= most * EPS[dtype] if scale else False
        coarser = EPS[dtype] > EPS.get(judged, math.inf)
        if near and coarser and (dtype == torch.float32 or _can_hold(dtype, values)):
            digits, name = round(-math.log10(error / scale)), str(dtype).removeprefix("torch.")
            return f"agrees to about {digits} digits only: was it computed in {name}?"
    return ""


def _can_hold(dtype: torch.dtype, values: Tensor) -> bool:
    return not values.is_complex() and torch.equal(values.to(dtype).to(values.dtype), values)


def describe(leaf: Leaf, index: tuple[int, ...] = (), digits: int = DIGITS) -> str:
    """A leaf in a few characters: a number with so many digits, or a shape with the value at `index`."""
    if isinstance(leaf, Tensor):
        try:
            return _describe_tensor(leaf.detach(), index, digits)
        except RuntimeError:
            return f"tensor of {leaf.dtype} that cannot be read"
    if isinstance(leaf, str):
        return leaf[:80]
    if leaf is None:
        return "None"
    return number(leaf, digits) if isinstance(leaf, (bool, int, float)) else f"<{type(leaf).__name__}>"


def _describe_tensor(tensor: Tensor, index: tuple[int, ...], digits: int) -> str:
    if tensor.dim() == 0:
        return number(tensor.item(), digits)
    if 0 < tensor.numel() <= 4 and tensor.dim() == 1:
        return "[" + ", ".join(number(value, digits) for value in tensor.tolist()) + "]"
    shape = f"shape {tuple(tensor.shape)}"
    return f"{shape}, {number(tensor[index].item(), digits)}" if index else shape


def number(value: bool | int | float | complex, digits: int = DIGITS) -> str:
    """A number with at most so many significant digits, -0.0 as 0; an integer in full up to 16 digits."""
    if isinstance(value, (bool, complex)):
        return str(value)
    if isinstance(value, int):
        size = abs(value)
        if size < 10**16:
            return str(value)
        about = f"10^{len(str(size)) - 1}" if size < 10**4000 else "10^4000 or more"
        return f"about {'-' if value < 0 else ''}{about}"
    return f"{value + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0
