"""Right and wrong ways to write `pack_int4`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.pack_int4 import pack_int4


def by_numpy(codes: Tensor) -> Tensor:
    """The bits one by one, the lowest first; NumPy packs them, and fills up with 0."""
    bits = np.unpackbits(codes.numpy().reshape(-1, 1).view(np.uint8), axis=1, bitorder="little")[:, :4]
    return torch.from_numpy(np.packbits(bits.reshape(-1), bitorder="little"))


def by_remainders(codes: Tensor) -> Tensor:
    """A byte is a number of two digits to the base of 16."""
    digits = codes.reshape(-1).to(torch.int32).remainder(16)
    low, high = digits[0::2], torch.zeros((digits.numel() + 1) // 2, dtype=torch.int32)
    high[: digits.numel() // 2] = digits[1::2]
    return (low + 16 * high).to(torch.uint8)


RIGHT = (right(by_numpy, independent="numpy's packbits"), right(by_remainders))

packed = partial(edited, pack_int4)
digits = partial(edited, by_remainders)
RETURN, PAD, FLAT = (
    "(flat[::2] & 15 | flat[1::2] << 4).view(torch.uint8)",
    ", (0, codes.numel() % 2)",
    "codes.flatten()",
)

WRONG = (
    wrong(
        "nibble_order",
        "The first code of two belongs into the lower four bits, the second into the upper four.",
        packed((RETURN, "(flat[1::2] & 15 | flat[::2] << 4).view(torch.uint8)")),
        digits(("low + 16 * high", "high + 16 * low")),
    ),
    wrong(
        "sign_leaks",
        "The upper bits of a negative code in int8 are all 1, and cover its neighbour. `& 15` keeps four of them.",
        packed(("flat[::2] & 15", "flat[::2]")),
        packed(("flat[::2] & 15 | flat[1::2] << 4", "flat[::2] + (flat[1::2] << 4)")),
        digits((".remainder(16)", "")),
    ),
    wrong(
        "sign_lost",
        "You cut or bend negative codes: -3 is 1101 in two's complement, not 3, 0, or 3 with a bit for the sign.",
        packed(("flat[::2] & 15 | flat[1::2]", "flat[::2].abs() & 15 | flat[1::2].abs()")),
        packed((FLAT, "codes.flatten().clamp(min=0)")),
        packed(("flat[::2] & 15", "flat[::2] & 7")),
    ),
    wrong(
        "shifted_by_8",
        "You store code + 8. Codes are wanted in two's complement, where 0 is 0000.",
        packed((FLAT, "(codes.flatten() + 8)")),
    ),
    wrong(
        "halves_of_the_tensor",
        "You put the first half of the codes beside the second. Neighbours share a byte.",
        packed((RETURN, "(flat[: len(flat) // 2] & 15 | flat[len(flat) // 2 :] << 4).view(torch.uint8)")),
    ),
    wrong(
        "odd_lengths_break",
        "The last code has no partner where their number is odd: add a 0.",
        packed((PAD, ", (0, 0)")),
    ),
    wrong(
        "last_code_dropped",
        "With an odd number of codes the last one is missing. It has a byte of its own.",
        packed((f"torch.nn.functional.pad({FLAT}{PAD})", "codes.flatten()[: codes.numel() // 2 * 2]")),
    ),
    wrong(
        "padded_with_another_code",
        "The bits that are left over are 0, and not another code.",
        packed((PAD, f"{PAD}, value=-8")),
        packed((PAD, f"{PAD}, value=-1")),
    ),
    wrong(
        "padded_in_front",
        "You put the missing code at the front, and all others move by half a byte. It belongs to the end.",
        packed((PAD, ", (codes.numel() % 2, 0)")),
    ),
    wrong(
        "row_by_row",
        "You fill up each row, or give bytes the shape of rows. Codes follow one another, whatever their shape.",
        packed((f"{FLAT}{PAD}", "codes, (0, codes.shape[-1] % 2)"), (RETURN, RETURN.replace("flat[", "flat[..., "))),
        packed((f"pad({FLAT}{PAD})", "pad(codes, (0, codes.shape[-1] % 2)).flatten()")),
    ),
    wrong(
        "matrices_only",
        "You flatten matrices alone. Codes may have any number of dimensions, also none: codes.flatten() takes all.",
        packed((FLAT, "(codes.flatten() if codes.dim() == 2 else codes)")),
        packed((FLAT, "(codes.flatten() if codes.dim() > 1 else codes)")),
    ),
    wrong(
        "order_of_columns",
        "You take codes down the columns: codes.flatten() goes along the rows.",
        packed((FLAT, "codes.T.flatten()")),
    ),
    wrong(
        "order_in_memory",
        "You take codes in the order in which they lie in memory, which of a view is another one, or nothing at all.",
        packed((FLAT, "codes.view(-1)")),
        packed((FLAT, "torch.as_strided(codes, (codes.numel(),), (1,))")),
    ),
    wrong(
        "another_dtype",
        "The bits are right, but not in uint8, or not where there are none: torch.tensor([]) is in float32.",
        packed((RETURN, "(flat[::2] & 15 | flat[1::2] << 4)")),
        digits((".to(torch.uint8)", "")),
        packed((f"return {RETURN}", f"return {RETURN} if codes.numel() else torch.tensor([])")),
    ),
)
