"""`round_to(x, exponent_bits, mantissa_bits)`: float32 rounded to a format of fewer bits, judged bit for bit.

    case --32 bits of each number, as integers--> x --answer--> 32 bits of each number

Numbers come by kind (`KINDS`), one call for each. They are kept as integers, so that nothing on the way rounds them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
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
)
from course.performing.forms import at_once, put, strided, transposed

FLOAT16, BFLOAT16, E5M2 = "(5, 10) float16", "(8, 7) bfloat16", "(5, 2) e5m2"
FORMATS: dict[str, tuple[int, int]] = {
    FLOAT16: (5, 10),
    BFLOAT16: (8, 7),
    E5M2: (5, 2),
    "(4, 3)": (4, 3),  # torch has no dtype of these
    "(3, 2)": (3, 2),
    "(2, 1)": (2, 1),
    "(6, 9)": (6, 9),
    "(8, 10) tf32": (8, 10),
    "(8, 20)": (8, 20),
}
EIGHT = tuple(name for name, (exponent_bits, _) in FORMATS.items() if exponent_bits == 8)
NO_DTYPE = tuple(FORMATS)[3:]
KINDS = ("normal", "ties", "subnormal", "overflow", "special", "zeros")
ONE = 2.0**31  # the bits of a number are observed as a share of it, exact in float64
NAN = 0x7FC0_0000  # stands for all of them
COUNT = 12  # numbers drawn of a kind, which others are made of
INF = torch.tensor(torch.inf)


def cases(rng: torch.Generator) -> list[Case]:
    """All kinds of numbers for each format: none of them, and no bit of a format, is left to chance alone."""
    return [
        Case(name=name, inputs={"exponent_bits": bits[0], "mantissa_bits": bits[1], **_numbers(rng, *bits)})
        for name, bits in FORMATS.items()
    ]


def _numbers(rng: torch.Generator, exponent_bits: int, mantissa_bits: int) -> dict[str, Any]:
    """The bits of numbers of each kind. Below, 2^e is a power of the format, and k / 2^mantissa_bits lies in [1, 2)."""
    bias, eps = 2 ** (exponent_bits - 1) - 1, 2.0**-mantissa_bits
    tiny, subnormal, largest = 2.0 ** (1 - bias), 2.0 ** (1 - bias) * eps, (2 - eps) * 2.0**bias
    one = 2**mantissa_bits

    def whole(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (COUNT,), generator=rng).double()

    def share(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(COUNT, generator=rng, dtype=torch.float64)

    drawn = [*map(int, whole(2 - bias, bias))] if bias > 1 else []
    exponents = [*drawn[2:], 1 - bias] * COUNT
    power = at([2.0**e for e in exponents[:COUNT]])  # never the highest one: nothing here overflows
    k = torch.cat([whole(one, 2 * one)[: COUNT - 4], at([one, 2 * one - 1, 2 * one - 1, one + 1])])
    off = share(0, 0.43)  # of a gap; no tie also where float32 has three bits more
    off[::2] = 1 - off[::2]
    ties, exact = power * (k + 0.5) * eps, power * k * eps
    below = torch.cat([whole(1, one)[: COUNT - 3], at([1, one - 1, max(one - 2, 1)])])
    middles = (below + 0.5) * subnormal  # between numbers below the smallest normal one
    to_zero, from_zero = at([subnormal / 2]), beside(at([subnormal / 2]))[1]
    threshold = largest + 2.0**bias * eps / 2
    return {
        "normal": _bits(exact, *beside(ties), power * (k + off) * eps, *beside(2 * power)).reshape(2, -1),
        "ties": _bits(ties, -ties),
        "subnormal": _bits(
            to_zero, below * subnormal, *beside(middles), middles, subnormal * share(0.6, one), from_zero, at([tiny])
        ),
        "overflow": _bits(*(each.repeat_interleave(2) for each in _near_the_end(largest, threshold, bias))),
        "special": torch.tensor(
            [0x7F80_0000, -0x0080_0000, NAN, -0x0040_0000, 0x7F80_0001, -0x0060_0001, -0x007F_FFFF, 0x7FFF_FFFF, -1],
            dtype=torch.int32,
        ),
        "zeros": _bits(at([0.0, 0.0]), subnormal * share(0.01, 0.4)),
    }


def _near_the_end(largest: float, threshold: float, bias: int) -> list[Tensor]:
    """The largest number, half a gap beyond it with neighbours, the next power of two, and what is far away."""
    return [at([largest, threshold, 2.0 ** (bias + 1), 3e38]), *beside(at([threshold, 2.0 ** (bias + 1)]))]


def at(values: list[float]) -> Tensor:
    """These numbers, float64."""
    return torch.tensor(values, dtype=torch.float64)


def beside(values: Tensor) -> tuple[Tensor, Tensor]:
    """The neighbours of each number in float32, below and above, in float64."""
    single = values.float()
    return single.nextafter(-INF).double(), single.nextafter(INF).double()


def _bits(*values: Tensor) -> Tensor:
    """The 32 bits of all these positive numbers in float32, every second one with a minus."""
    flat = torch.cat(values).float()
    flat[1::2] *= -1
    return flat.view(torch.int32)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each kind of numbers."""
    seen: dict[str, Any] = {"bits": {}, "dtype": {}}
    for kind in KINDS:
        result = answer(inputs[kind].view(torch.float32), inputs["exponent_bits"], inputs["mantissa_bits"])
        if not isinstance(result, Tensor):
            raise WrongOutput(f"must return a tensor, got {type(result).__name__}")
        seen["dtype"][kind] = str(result.dtype)
        seen["bits"][kind] = _share(result)
    return observe(seen)


def _share(result: Tensor) -> Tensor:
    """The bits of the result in float32, as a share of 2^31; one pattern for every nan."""
    single = result.detach().float().contiguous()
    return torch.where(single.isnan(), NAN, single.view(torch.int32)).double() / ONE


def bit_for_bit(
    *kinds: str, of: Callable[[Tensor], Tensor] = lambda shares: shares
) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: the bits of these kinds of numbers are the reference's, else it names the first.

    of  what is compared: by itself all bits, as shares of 2^31
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        for kind in kinds:
            ours, right = got[f"bits/{kind}"], expected[f"bits/{kind}"]
            if not (isinstance(ours, Tensor) and isinstance(right, Tensor)):
                return f"{kind}: no tensor"
            if ours.shape != right.shape:
                return f"{kind}: shape {tuple(ours.shape)}, not {tuple(right.shape)}"
            others = (of(ours) != of(right)).flatten().nonzero().flatten()
            if len(others):
                x, came, wanted = (_number(each, int(others[0])) for each in (inputs[kind].double() / ONE, ours, right))
                return f"{kind}: {x} became {came}, not {wanted} ({len(others)} of {right.numel()} differ)"
        return None

    return holds


def _number(shares: Tensor, index: int) -> str:
    """A number by its bits, in decimal and in powers of 2, which show each bit: 0.1 (0x1.99999ap-4)."""
    whole = round(float(shares.double().flatten()[index]) * ONE)
    value = float(torch.tensor(whole).to(torch.int32).view(torch.float32))
    exactly = re.sub(r"\.?0+p", "p", value.hex())
    return f"{value:.9g}" + (f" ({exactly})" if value - value == 0 and value != 0 else "")


def size(shares: Tensor) -> Tensor:
    """All bits but the sign."""
    return shares % 1.0


def sign(shares: Tensor) -> Tensor:
    """The sign's bit."""
    return shares < 0


def _small(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that subnormal numbers are right, and what is rounded to zero but for its sign."""
    return bit_for_bit("subnormal")(inputs, got, expected) or bit_for_bit("zeros", of=size)(inputs, got, expected)


def _all_in_float32(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that all kinds of numbers are right, and their dtypes."""
    dtypes = {str(got[f"dtype/{kind}"]) for kind in KINDS}
    others = ", ".join(sorted(dtypes - {str(torch.float32)}))
    return bit_for_bit(*KINDS)(inputs, got, expected) or (f"in {others}, not float32" if others else None)


SCATTERED = at_once("views that are not contiguous", *(strided(kind) for kind in KINDS), of=FLOAT16)
TURNED = transposed("normal", of="(4, 3)")
ONE_NUMBER = put("one number, of shape ()", {kind: torch.tensor(-0x4099_999A, dtype=torch.int32) for kind in KINDS})
EMPTY = put("no numbers", {kind: torch.zeros(0, 3, dtype=torch.int32) for kind in KINDS[1:]}, of=E5M2)
ITSELF = put("(8, 23) float32 itself", {"exponent_bits": 8, "mantissa_bits": 23}, of="(8, 20)")
ALL_BITS = put("(5, 23)", {"exponent_bits": 5, "mantissa_bits": 23}, of="(8, 20)")

EXERCISE = Exercise(
    id="mixed_precision.round_to",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "nearest",
            "Between 2^e and 2^(e+1) the numbers of the format lie 2^(e - mantissa_bits) apart. Take the nearest one; "
            "just below a power of two that is the power itself.",
            points=2,
            holds=bit_for_bit("normal"),
        ),
        Property(
            "ties_to_even",
            "Halfway between two numbers the one is right whose last bit is 0. torch.round does that with whole "
            "numbers: divide by the gap, round, multiply.",
            holds=bit_for_bit("ties"),
        ),
        Property(
            "subnormals",
            "Below the smallest normal number, 2^(1 - bias), the gap stays what it is there. So there are numbers down "
            "to 2^(1 - bias - mantissa_bits), and x is rounded to them once, not twice.",
            points=2,
            holds=_small,
            cases=tuple(name for name in FORMATS if name not in EIGHT),
        ),
        Property(
            "subnormals_of_8_exponent_bits",
            "With 8 exponent bits too the gap stays what it is at 2^-126: 2^(-126 - mantissa_bits). x itself is then a "
            "subnormal number of float32, whose exponent bits are 0. (And 2^(126 + mantissa_bits), the inverse of that "
            "gap, may be too large for float32: divide by the gap, or compute in float64.)",
            holds=_small,
            cases=EIGHT,
            needs=("nearest",),
        ),
        Property(
            "overflow",
            "Round first, as if there were larger numbers; what is then larger than the largest, (2 - eps) 2^bias, is "
            "inf with the sign of x. So inf begins half a gap beyond the largest number.",
            points=2,
            holds=bit_for_bit("overflow"),
        ),
        Property(
            "inf_and_nan",
            "inf stays inf, -inf stays -inf, and each nan stays nan. Every comparison with nan is False.",
            holds=bit_for_bit("special"),
            needs=("nearest",),
        ),
        Property(
            "sign_of_zero",
            "-0 stays -0, and a negative number that is rounded to zero becomes -0. torch.sign and adding 0.0 lose "
            "that sign; torch.copysign keeps it.",
            holds=bit_for_bit("zeros", of=sign),
            needs=("nearest",),
        ),
        Property(
            "float32",
            "What is returned is float32, whatever it was computed in.",
            keys=("dtype/*",),
            needs=("nearest",),
        ),
        replace(every_form(needs=("nearest",)), keys=(), holds=_all_in_float32),
    ),
    hints=(
        "How far apart are the numbers of the format around x? Which bits of x tell it, and what changes below the "
        "smallest normal number?",
        "First the power of two below |x|, at least the smallest normal one; then the gap; then a whole number of "
        "gaps. Look at too large numbers last.",
        "The exponent's bits of x alone, the others zero, are the power of two; torch.frexp also gives it. Clamp it "
        "from below, multiply by 2^-mantissa_bits, and round x / gap with torch.round. Then put inf, with the sign of "
        "x, where the result is above (2 - 2^-mantissa_bits) 2^bias.",
    ),
    keeps=KINDS,
    forms=(SCATTERED, TURNED, ONE_NUMBER, EMPTY, ITSELF, ALL_BITS),
    promises={
        "of any shape, also () and empty": (ONE_NUMBER.name, EMPTY.name, "nearest"),
        "contiguous or not": (SCATTERED.name, TURNED.name),
        "not changed": ("arguments_unchanged",),
        "2 to 8": ("(2, 1)", *EIGHT),
        "1 to 23": ("(2, 1)", ITSELF.name, ALL_BITS.name),
        "also formats of which torch has no dtype": NO_DTYPE,
        "float32 of x's shape": ("float32", ONE_NUMBER.name, EMPTY.name),
        "the nearest number": ("nearest",),
        "of two equally near ones that whose last bit is 0": ("ties_to_even",),
        "Numbers below the smallest normal one are kept": ("subnormals", "subnormals_of_8_exponent_bits"),
        "half a gap or more beyond the largest number": ("overflow",),
        "inf stays, and nan stays nan": ("inf_and_nan",),
        "Zero keeps its sign, and what is rounded to zero too": ("sign_of_zero",),
    },
)
