"""Formats of floating-point numbers: which number a pattern of bits is, and which pattern is nearest to a number.

    code 0b0_01011_1001100110, fp16 --torch's own reading of the bits--> 0.0999755859375
    number --torch's cast--> code

A code is the bits as an integer, from the sign on. float32 holds every number here exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import torch

WORDS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}
NAN = 0x7FC0_0000  # a nan of float32
TF32_CUT = 13  # bits of a float32 that tf32 drops


@dataclass(frozen=True, kw_only=True)
class Format:
    """A sign bit, `exponent` bits and `mantissa` bits. tf32 has no dtype: it is what products make of a float32."""

    name: str
    exponent: int
    mantissa: int
    dtype: torch.dtype | None

    @property
    def bits(self) -> int:
        """How many a number takes."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent's bits."""
        return int(2 ** (self.exponent - 1) - 1)

    def fields(self, code: int) -> tuple[int, int, int]:
        """Sign, exponent bits and mantissa bits, each as an integer."""
        return code >> (self.bits - 1), code >> self.mantissa & (2**self.exponent - 1), code & (2**self.mantissa - 1)

    def value(self, code: int) -> float:
        """The number that these bits mean."""
        if self.dtype is None:
            return FORMATS["fp32"].value(code << TF32_CUT)
        word = WORDS[self.bits]
        return float(torch.tensor([_signed(code, self.bits)]).to(word).view(self.dtype).float())

    def code(self, number: float) -> int:
        """The bits that a cast of this number gives, from float32 as torch does it."""
        single = torch.tensor([number], dtype=torch.float64).float()
        if self.dtype is None:
            wide = int(single.view(torch.int32)) & 0xFFFF_FFFF
            if math.isnan(number):
                return NAN >> TF32_CUT
            return wide + (1 << TF32_CUT - 1) - 1 + (wide >> TF32_CUT & 1) >> TF32_CUT  # ties to even
        return int(single.to(self.dtype).view(WORDS[self.bits])) & ((1 << self.bits) - 1)

    def kind(self, code: int) -> str:
        """normal, subnormal, zero, inf or nan."""
        value = self.value(code)
        if math.isnan(value) or math.isinf(value):
            return "nan" if math.isnan(value) else "inf"
        _, exponent, mantissa = self.fields(code)
        return "normal" if exponent else "subnormal" if mantissa else "zero"

    def next(self, code: int) -> float | None:
        """The next larger number in size, inf too; None above it, and for nan."""
        above = code + 1
        if self.kind(code) in ("inf", "nan") or math.isnan(self.value(above)):
            return None
        return self.value(above)

    def previous(self, code: int) -> float | None:
        """The next smaller number in size; None for zero and nan."""
        return None if self.kind(code) in ("zero", "nan") else self.value(code - 1)


FORMATS: dict[str, Format] = {
    name: Format(name=name, exponent=exponent, mantissa=mantissa, dtype=dtype)
    for name, exponent, mantissa, dtype in (
        ("fp32", 8, 23, torch.float32),
        ("tf32", 8, 10, None),
        ("bf16", 8, 7, torch.bfloat16),
        ("fp16", 5, 10, torch.float16),
        ("e5m2", 5, 2, torch.float8_e5m2),
        ("e4m3", 4, 3, torch.float8_e4m3fn),
    )
}


def dtypes(*names: str) -> dict[str, torch.dtype]:
    """By name those of FORMATS, in this order; of tf32, which has none, nothing."""
    return {name: dtype for name in names if (dtype := FORMATS[name].dtype) is not None}


def exact(number: float) -> str:
    """All decimal digits of a number, in powers of ten where there would be many zeros."""
    if not math.isfinite(number):
        return str(number)
    size = abs(number)
    return f"{Decimal(number):{'f' if size == 0 or 1e-7 <= size < 1e12 else 'e'}}"


def ranges() -> str:
    """A row for each format that torch has: its ends, and the unit roundoff u, all from torch.finfo."""
    lines = [f"{'format':8}{'largest':>12}{'smallest normal':>18}{'smallest subnormal':>21}{'u':>8}"]
    for each in FORMATS.values():
        if each.dtype is not None:
            info = torch.finfo(each.dtype)
            powers = (info.smallest_normal, info.smallest_normal * info.eps, info.eps / 2)
            normal, subnormal, u = (f"2^{math.log2(power):.0f}" for power in powers)
            lines.append(f"{each.name:8}{info.max:12.5g}{normal:>18}{subnormal:>21}{u:>8}")
    return "\n".join(lines)


def _signed(code: int, bits: int) -> int:
    """The same bits as a signed integer where torch's type of the width has a sign."""
    return code - 2**bits if bits > 8 and code >> (bits - 1) else code
