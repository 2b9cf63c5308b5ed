"""Right and wrong ways to write `round_to`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.round_to import round_to

DTYPES = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (5, 2): torch.float8_e5m2}


def casts_and_a_table(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Torch's cast where it has the dtype; else the nearest in a list of all numbers, whose place is their code."""
    bits = exponent_bits, mantissa_bits
    if bits in DTYPES:
        return x.to(DTYPES[bits]).float()
    if exponent_bits == 8:  # too many to list; here float32's own bits can be rounded as integers
        drop = 23 - mantissa_bits
        code = x.contiguous().view(torch.int32).long() & 0x7FFF_FFFF
        code = (code + (1 << drop >> 1) - 1 + (code >> drop & 1) if drop else code) >> drop << drop
        rounded = code.clamp(max=0x7F80_0000).int().view(torch.float32).copysign(x)
        return torch.where(x.isnan(), x, rounded)
    bias, one = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    if mantissa_bits == 23:  # too many as well; but normal numbers stay
        small = (x.double() * 2.0 ** (bias + 22)).round() / 2.0 ** (bias + 22)
        kept = torch.where(x.abs() < 2.0 ** (1 - bias), small.copysign(x), x)
        return torch.where(kept.abs() >= 2.0 ** (bias + 1), torch.inf * kept, kept).float()
    values = [k * 2.0 ** (1 - bias - mantissa_bits) for k in range(one)]
    values += [
        k * 2.0 ** (e - bias - mantissa_bits) for e in range(1, 2**exponent_bits - 1) for k in range(one, 2 * one)
    ]
    table = torch.tensor([*values, 2.0 ** (bias + 1)], dtype=torch.float64)  # the last one stands for inf
    size = x.double().abs().clamp(max=float(table[-1]))
    upper = torch.searchsorted(table, size.contiguous()).clamp(1, len(table) - 1)
    to_lower, to_upper = size - table[upper - 1], table[upper] - size
    place = torch.where((to_upper < to_lower) | ((to_upper == to_lower) & (upper % 2 == 0)), upper, upper - 1)
    rounded = torch.where(place == len(table) - 1, torch.inf, table[place]).copysign(x.double())
    return torch.where(x.isnan(), x, rounded.float())


def frexp_in_float64(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """The power of two from frexp; float64 holds each gap and its inverse."""
    bias = 2 ** (exponent_bits - 1) - 1
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
    wide = x.double()
    exponent = torch.frexp(wide).exponent - 1
    exponent = exponent.clamp(min=1 - bias)
    step = torch.exp2((exponent - mantissa_bits).double())
    rounded = (wide / step).round() * step
    beyond = rounded.abs() > largest
    rounded = torch.where(beyond, torch.full_like(rounded, torch.inf).copysign(rounded), rounded)
    return rounded.float()


def large_number_added(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """|x| + c - c, where float64's own gap at c is the format's: the processor rounds to nearest even."""
    bias = 2 ** (exponent_bits - 1) - 1
    smallest_normal = 2.0 ** (1 - bias)
    size = x.double().abs()
    power = size.view(torch.int64).bitwise_and(0x7FF << 52).view(torch.float64)
    c = power.clamp(smallest_normal, 2.0**128) * 1.5 * 2.0 ** (52 - mantissa_bits)
    rounded = (size + c) - c
    rounded[rounded >= 2.0 ** (bias + 1)] = torch.inf
    return rounded.copysign(x).float()


def in_integers(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Fields cut out of the bits; what is dropped is compared with half of what it could be."""
    bias = 2 ** (exponent_bits - 1) - 1
    bits = x.view(torch.int32).long()
    field = bits >> 23 & 0xFF
    whole = (bits & 0x7FFFFF) + (field > 0) * (1 << 23)
    exponent = field.clamp(min=1) - 127
    drop = 23 - mantissa_bits + (1 - bias - exponent).clamp(0, 25)
    kept = whole >> drop
    rest = 2 * (whole - (kept << drop))
    odd = kept % 2 == 1
    kept = kept + ((rest > 1 << drop) | ((rest == 1 << drop) & odd))
    size = kept * torch.exp2((exponent - 23 + drop).double())
    size = torch.where(size >= 2.0 ** (bias + 1), torch.inf, size)
    return torch.where(x.isnan() | x.isinf(), x, size.copysign(x).float())


def logarithm(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """The power of two from a logarithm, in float64; what has none is put back."""
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = torch.floor(torch.log2(x.double().abs()))
    exponent = exponent.clamp(min=1 - bias)
    gap = 2.0 ** (exponent - mantissa_bits)
    rounded = torch.round(x / gap) * gap
    rounded = torch.where(rounded.abs() > (2 - 2.0**-mantissa_bits) * 2.0**bias, torch.inf * x.sign(), rounded)
    return torch.where(x.isfinite(), rounded, x).copysign(x).float()


RIGHT = (
    right(casts_and_a_table, independent="torch's casts, and a list of all numbers of a format"),
    right(frexp_in_float64),
    right(large_number_added),
    right(in_integers),
    right(logarithm),
)

referred = partial(edited, round_to)
doubled = partial(edited, frexp_in_float64)
added = partial(edited, large_number_added)
cast = partial(edited, casts_and_a_table)
fields = partial(edited, in_integers)
by_log = partial(edited, logarithm)

ROUND, WHOLE = "(wide / step).round()", "wide / step"
EXPONENT = "torch.frexp(wide).exponent - 1"
CLAMP = "    exponent = exponent.clamp(min=1 - bias)\n"
BOUND, PUT_BACK, SINGLE = "exponent.clamp(min=1 - bias)", "torch.where(x.isfinite(), rounded, x)", "x.double().abs()"
BEYOND = "rounded.abs() > largest"
TO_INF = "torch.full_like(rounded, torch.inf).copysign(rounded)"
RETURN = "return rounded.float()"
INF = f"    rounded = torch.where(beyond, {TO_INF}, rounded)\n"
E5M2, E4M3 = "(5, 2): torch.float8_e5m2", "return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()"
UP = "kept = kept + ((rest > 1 << drop) | ((rest == 1 << drop) & odd))"


def bits_of_the_mantissa_alone(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """The well-known trick for bfloat16, with another number of bits."""
    drop = 23 - mantissa_bits
    bits = x.contiguous().view(torch.int32).long()
    bits = bits + ((1 << drop) // 2 - 1) + (bits >> drop & 1) if drop else bits
    rounded = (bits >> drop << drop).int().view(torch.float32)
    return torch.where(x.isnan() | x.isinf(), x, rounded)


def half_a_gap_added(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Half of what is cut off is added to the bits before."""
    drop = 23 - mantissa_bits
    bits = x.contiguous().view(torch.int32)
    rounded = ((bits + (1 << drop >> 1)) >> drop << drop).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x)


with_half = partial(edited, half_a_gap_added)


WRONG = (
    wrong(
        "rounds_one_way",
        "You cut off what does not fit, or always round in one direction. Each number then moves by up to a whole gap, "
        "and all of them the same way, which adds up. Take the nearest: torch.round(x / gap).",
        doubled((ROUND, f"({WHOLE}).trunc()")),
        doubled((ROUND, f"({WHOLE}).floor()")),
        doubled((ROUND, f"({WHOLE}).ceil()")),
        doubled((ROUND, f"({WHOLE} + 0.5).trunc()")),
        fields((UP, "pass")),
    ),
    wrong(
        "ties_not_to_even",
        "Right but for numbers halfway between two others: you round these up, or away from zero, or down. The format "
        "takes the neighbour whose last bit is 0, so that ties do not all go one way. torch.round does so.",
        doubled((ROUND, f"({WHOLE} + 0.5).floor()")),
        doubled((ROUND, f"({WHOLE} - 0.5).ceil()")),
        doubled((ROUND, f"(({WHOLE}).abs() + 0.5).floor().copysign(wide)")),
        fields((" & odd", "")),
        fields((UP, "kept = kept + (rest > 1 << drop)")),
        fields((" & odd", " & ~odd")),
        fields((" & odd", " & (odd | (x.abs() >= 2.0 ** (1 - bias)))")),
    ),
    wrong(
        "flushes_subnormals",
        "Numbers below the smallest normal one become 0, or that number, in your answer. A format goes on below it, "
        "with the gap that it has there, down to the smallest subnormal number, 2^(1 - bias - mantissa_bits).",
        doubled((BEYOND, f"{BEYOND}\n    rounded = rounded * (rounded.abs() >= 2.0 ** (1 - bias))")),
        doubled((BEYOND, f"{BEYOND}\n    rounded = torch.where(wide.abs() < 2.0 ** (1 - bias), 0 * wide, rounded)")),
        doubled((BEYOND, f"{BEYOND}\n    rounded[wide.abs() < 2.0 ** (1 - bias)] = 0.0")),
        doubled(("exponent - mantissa_bits)", "exponent - mantissa_bits * (wide.abs() >= 2.0 ** (1 - bias)))")),
    ),
    wrong(
        "exponents_without_a_lower_end",
        "Below the smallest normal number, 2^(1 - bias), your gap goes on shrinking with x. The exponent ends there: "
        "bound the power of two from below by 2^(1 - bias).",
        doubled((CLAMP, "")),
        doubled((CLAMP, ""), ("wide = x.double()", "wide = x"), ("mantissa_bits).double()", "mantissa_bits).float()")),
        by_log((CLAMP, "")),
        by_log((CLAMP, ""), (PUT_BACK, "rounded")),
        by_log((CLAMP, ""), (f"{PUT_BACK}.copysign(x)", "rounded")),
        by_log((CLAMP, ""), (SINGLE, "x.abs()")),
        by_log((CLAMP, ""), (SINGLE, "x.abs()"), (PUT_BACK, "rounded")),
        by_log((CLAMP, ""), (SINGLE, "x.abs()"), (f"{PUT_BACK}.copysign(x)", "rounded")),
        by_log((CLAMP, "    exponent = torch.where(x == 0, 0, exponent)\n")),
        by_log((CLAMP, "    exponent = torch.where(x == 0, 0, exponent)\n"), (SINGLE, "x.abs()")),
    ),
    wrong(
        "float32_left_as_it_is",
        "With 23 mantissa bits you return x. That is right for 8 exponent bits alone: with fewer, numbers end at a "
        "largest one, and below the smallest normal one the gap stays the same.",
        doubled(("    wide = x", "    if mantissa_bits == 23:\n        return x.clone()\n    wide = x")),
    ),
    wrong(
        "smallest_normal_off_by_one",
        "The smallest normal number is 2^(1 - bias), with bias = 2^(exponent_bits - 1) - 1: the exponent bits 00...0 "
        "mean subnormal numbers, with the same power of two as 00...1.",
        doubled(("min=1 - bias", "min=-bias")),
        doubled(("min=1 - bias", "min=2 - bias")),
        added(("smallest_normal = 2.0 ** (1 - bias)", "smallest_normal = 2.0 ** -bias")),
    ),
    wrong(
        "another_bias",
        "The bias is 2^(exponent_bits - 1) - 1: 15 for 5 bits, 127 for 8. The largest exponent is the bias, the "
        "smallest of a normal number is 1 - bias.",
        doubled(("bias = 2 ** (exponent_bits - 1) - 1", "bias = 2 ** (exponent_bits - 1)")),
        doubled(("bias = 2 ** (exponent_bits - 1) - 1", "bias = 2 ** (exponent_bits - 1) - 2")),
    ),
    wrong(
        "saturates",
        "What is too large becomes the largest number in your answer. Here it becomes inf, so that an overflow is "
        "seen. (Torch's cast to e4m3 saturates, but that format has no inf.)",
        doubled((TO_INF, "torch.full_like(rounded, largest).copysign(rounded)")),
        doubled((TO_INF, "torch.full_like(rounded, largest).copysign(rounded)"), (BEYOND, "wide.abs() > largest")),
        doubled((BEYOND, f"{BEYOND} & wide.isfinite()"), (TO_INF, "largest * rounded.sign()")),
        doubled((INF, "    rounded = rounded.clamp(-largest, largest)\n")),
    ),
    wrong(
        "inf_right_beyond_the_largest",
        "You compare x itself with the largest number. What lies less than half a gap beyond it is nearest to it, and "
        "is rounded down to it: round first, then compare what came out.",
        doubled((BEYOND, "wide.abs() > largest")),
    ),
    wrong(
        "inf_too_late",
        "inf begins half a gap beyond the largest number, (2 - eps) 2^bias. You let numbers through that the format "
        "does not have, such as 2^(bias + 1): the exponent bits 11...1 are kept for inf and nan.",
        doubled((BEYOND, "rounded.abs() > 2.0 ** (bias + 1)")),
        doubled((BEYOND, "wide.abs() >= 2.0 ** (bias + 1)")),
        doubled((BEYOND, "wide.abs() > largest + 2.0 ** (bias - mantissa_bits) / 2")),
        doubled((BEYOND, "rounded.abs() > 2 * largest")),
        doubled((INF, "")),
    ),
    wrong(
        "inf_without_its_sign",
        "Too large a negative number becomes -inf, not inf: torch.copysign(inf, x), or x * inf.",
        doubled((TO_INF, "torch.full_like(rounded, torch.inf)")),
    ),
    wrong(
        "sign_of_zero_lost",
        "-0 becomes 0 in your answer, or a small negative number does. The sign bit stays whatever the size becomes. "
        "torch.sign(-0.0) is 0, and -0.0 + 0.0 is 0.0: put the sign back with torch.copysign(rounded, x).",
        doubled((RETURN, "return rounded.float() + 0.0")),
        doubled((RETURN, "return torch.where(rounded == 0, 0.0, rounded).float()")),
        added(("rounded.copysign(x)", "(rounded * x.sign())")),
        added(("rounded.copysign(x)", "torch.where(x < 0, -rounded, rounded)")),
    ),
    wrong(
        "nan_lost",
        "nan becomes a number or inf in your answer. Each comparison with nan is False, so `not (x <= largest)` holds "
        "for nan; and the bits of a nan cannot be rounded like a number's. Keep it: torch.where(x.isnan(), x, ...).",
        doubled((BEYOND, "~(rounded.abs() <= largest)")),
        doubled((RETURN, "return rounded.nan_to_num(0.0, posinf=torch.inf, neginf=-torch.inf).float()")),
        fields(("x.isnan() | x.isinf()", "x.isinf()")),
    ),
    wrong(
        "inf_becomes_nan",
        "inf becomes nan, as inf - inf and inf / inf are. Keep what is not finite: torch.where(x.isfinite(), ..., x).",
        added(("power.clamp(smallest_normal, 2.0**128)", "power.clamp(min=smallest_normal)")),
        doubled(("    beyond", "    rounded = rounded + 0 * wide\n    beyond")),
    ),
    wrong(
        "carry_lost",
        "Just below a power of two the mantissa 1.11...1 is rounded up to 10.00...0, which is the next power of two. "
        "In your answer that carry is lost or held back: the exponent must go up with it.",
        fields((UP, f"{UP}\n    kept = kept.clamp(max=2 ** (mantissa_bits + 1) - 1)")),
        fields((UP, f"{UP}\n    kept = torch.where(kept == 2 ** (mantissa_bits + 1), kept // 2, kept)")),
        fields((UP, f"{UP}\n    kept = kept & (2 ** (mantissa_bits + 1) - 1)")),
    ),
    wrong(
        "one_bit_too_few_or_too_many",
        "Your gap is twice what it should be, or half of it. Between 2^e and 2^(e+1) it is 2^(e - mantissa_bits), "
        "because the leading 1 is not stored. torch.frexp gives a mantissa in [0.5, 1), and so e + 1.",
        doubled((EXPONENT, "torch.frexp(wide).exponent")),
        doubled(("exponent - mantissa_bits", "exponent - mantissa_bits + 1")),
        doubled(("exponent - mantissa_bits", "exponent - mantissa_bits - 1")),
        doubled((EXPONENT, "wide.abs().log2().ceil()")),
        doubled((EXPONENT, "wide.abs().log2().round()")),
    ),
    wrong(
        "logarithm_in_float32",
        "Right but for numbers close to a power of two, in formats of many mantissa bits: the logarithm of a number "
        "just below 2^100 is rounded to 100 in float32. torch.frexp, or the exponent's bits, give e exactly.",
        doubled((EXPONENT, "x.abs().log2().floor()")),
        doubled((EXPONENT, "x.abs().clamp(min=2.0**-149).log2().floor()")),
        by_log((SINGLE, "x.abs()")),
    ),
    wrong(
        "scale_overflows",
        "Right but for 8 exponent bits: near 2^-126 the gap is so small that its inverse is inf in float32. Divide by "
        "the gap instead of multiplying by 2^(mantissa_bits - e), or compute in float64.",
        doubled((ROUND, "(x * torch.exp2((mantissa_bits - exponent).float())).round()")),
        doubled((ROUND, "(x * (1 / step).float()).round()")),
    ),
    wrong(
        "subnormals_rounded_twice",
        "Small numbers are first rounded to mantissa_bits, then to the gap of subnormal numbers. The first rounding "
        "can make a tie of what was none. Bound the exponent first, then round once.",
        doubled(
            (CLAMP, ""),
            (
                BEYOND,
                f"{BEYOND}\n    rounded = (rounded / 2.0 ** (1 - bias - mantissa_bits)).round()"
                " * 2.0 ** (1 - bias - mantissa_bits)",
            ),
        ),
    ),
    wrong(
        "mantissa_alone",
        "You round the mantissa and leave the exponent as it is in float32. A format with fewer exponent bits has a "
        "largest number, beyond which lies inf, and a smallest normal one, below which the gap stays the same.",
        bits_of_the_mantissa_alone,
        doubled((CLAMP, ""), (INF, "")),
    ),
    wrong(
        "half_a_gap_added_to_the_bits",
        "You add half a gap to the bits, and cut off. So a tie goes away from zero: add one less where the last bit "
        "that stays is 0. And the exponent is still float32's: a format with fewer exponent bits has a largest "
        "number, beyond which lies inf, and a smallest normal one, below which the gap stays the same.",
        half_a_gap_added,
        with_half(("torch.where(x.isfinite(), rounded, x)", "rounded")),
        with_half(("torch.where(x.isfinite(), rounded, x)", "torch.where(x.isnan(), x, rounded)")),
        with_half(
            (
                "torch.where(x.isfinite(), rounded, x)",
                "torch.where(rounded.abs() >= 2.0 ** 2 ** (exponent_bits - 1), torch.inf * rounded.sign(), rounded)",
            )
        ),
    ),
    wrong(
        "torchs_e4m3",
        "For (4, 3) you cast to torch.float8_e4m3fn, another format: it has no inf, goes up to 448, and the cast "
        "saturates. With IEEE 754's rules, which hold here, 4 exponent bits end at 240, and inf follows.",
        cast((E5M2, f"{E5M2}, (4, 3): torch.float8_e4m3fn")),
        cast(("    bits = exponent_bits", f"    if exponent_bits == 4:\n        {E4M3}\n    bits = exponent_bits")),
    ),
    wrong(
        "bits_of_float16",
        "You use the numbers of one format where the bits that were asked for are others. Bias, gap and largest number "
        "follow from exponent_bits and mantissa_bits.",
        doubled(("bias = 2 ** (exponent_bits - 1) - 1", "bias = 15")),
        doubled(("    largest = (2", "    mantissa_bits = 10\n    largest = (2")),
    ),
    wrong(
        "not_float32",
        "The numbers are right, but they do not come in float32: convert what you computed in float64 back with "
        ".float().",
        doubled((RETURN, "return rounded")),
        fails=("float32",),
    ),
    wrong(
        "one_shape_only",
        "Right for some shapes and ways to lie in memory, and an exception, or another shape, for the others. x may be "
        "a single number, empty, or a view: operations on whole tensors need no loop, and `reshape` copies where "
        "`view` cannot.",
        doubled((RETURN, "return torch.stack([each.float() for each in rounded.flatten()]).reshape(x.shape)")),
        doubled((RETURN, "return torch.tensor([each.tolist() for each in rounded.float()])")),
        doubled((RETURN, "return rounded.float().reshape(-1)")),
        doubled(("wide = x.double()", "wide = x.view(-1).double().view(x.shape)")),
    ),
)
