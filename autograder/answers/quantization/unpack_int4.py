"""Right and wrong ways to write `unpack_int4`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.unpack_int4 import unpack_int4


def by_numpy(packed: Tensor, count: int) -> Tensor:
    """The bits one by one, the lowest first; the fourth of a code counts -8."""
    bits = np.unpackbits(packed.numpy(), bitorder="little")[: 4 * count].reshape(count, 4)
    return torch.from_numpy((bits.astype(np.int8) @ np.array([1, 2, 4, -8], dtype=np.int8)).astype(np.int8))


def by_remainders(packed: Tensor, count: int) -> Tensor:
    """Two digits to the base of 16; from 8 on they stand for negative codes."""
    wide = packed.int()
    codes = torch.empty(2 * wide.numel(), dtype=torch.int32)
    codes[0::2] = wide % 16
    codes[1::2] = wide // 16
    codes = torch.where(codes > 7, codes - 16, codes)
    return codes[:count].to(torch.int8)


RIGHT = (right(by_numpy, independent="numpy's unpackbits"), right(by_remainders))

unpacked = partial(edited, unpack_int4)
digits = partial(edited, by_remainders)
STACK = "torch.stack([signed << 4 >> 4, signed >> 4], 1).flatten()"

WRONG = (
    wrong(
        "nibble_order",
        "The code in the lower four bits of a byte is the first, that in the upper four the second.",
        unpacked((STACK, "torch.stack([signed >> 4, signed << 4 >> 4], 1).flatten()")),
        digits(("codes[0::2] = wide % 16\n    codes[1::2] =", "codes[1::2] = wide % 16\n    codes[0::2] =")),
    ),
    wrong(
        "sign_lost",
        "Your codes run from 0 to 15. They are signed: where bit 3 is set, a code is 16 less.",
        digits(("codes - 16", "codes")),
    ),
    wrong(
        "sign_of_one_half_lost",
        "One half of a byte gets its sign and the other not: `>>` repeats the sign of an int8, and a uint8 has none.",
        unpacked(("signed << 4 >> 4", "signed & 15")),
        unpacked(("signed >> 4]", "signed >> 4 & 15]")),
    ),
    wrong(
        "less_8",
        "You take 8 off. That is right where codes were stored with 8 added; these are in two's complement.",
        digits(("torch.where(codes > 7, codes - 16, codes)", "codes - 8")),
    ),
    wrong(
        "ends_at_6_or_8",
        "One code has the wrong sign: codes run from -8 to 7, so that 7 is positive and 8 is -8.",
        digits(("codes > 7", "codes > 8")),
        digits(("codes > 7", "codes > 6")),
    ),
    wrong(
        "bit_for_the_sign",
        "You read bit 3 as a sign before a number of three bits. In two's complement 1101 is -3, not -5.",
        digits(("codes - 16", "8 - codes")),
    ),
    wrong(
        "lower_codes_first",
        "You return all lower codes, and then all upper ones. The codes of a byte are neighbours.",
        unpacked((STACK, "torch.cat([signed << 4 >> 4, signed >> 4])")),
        unpacked((", 1).flatten()", ", 0).flatten()")),
    ),
    wrong(
        "count_ignored",
        "With an odd count the upper bits of the last byte are no code: stop after `count`.",
        unpacked(("[:count]", "")),
    ),
    wrong(
        "last_code_dropped",
        "With an odd count your last code is missing.",
        unpacked(("[:count]", "[: count // 2 * 2]")),
    ),
    wrong(
        "another_dtype",
        "The codes are right, but not in int8, or not where there are none: torch.tensor([]) is in float32.",
        digits((".to(torch.int8)", "")),
        unpacked(("[:count]", "[:count].long()")),
        unpacked((f"return {STACK}[:count]", f"return {STACK}[:count] if count else torch.tensor([])")),
    ),
)
