"""Right and wrong ways to write `nf4_quantize`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.nf4 import NF4
from course.reference.quantization.nf4_quantize import nf4_quantize


def by_numpy(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """All 16 distances of each number, block after block, in float64."""
    numbers, values = x.detach().double().numpy().reshape(-1), np.array(NF4)
    codes, scales = np.zeros(numbers.size, dtype=np.uint8), []
    for start in range(0, numbers.size, block):
        part = numbers[start : start + block]
        scales.append(np.max(np.abs(part)))
        distances = np.abs(values[:, None] * scales[-1] - part)
        codes[start : start + block] = distances.argmin(axis=0) if scales[-1] else 7
    return torch.from_numpy(codes.reshape(tuple(x.shape))), torch.tensor(scales, dtype=torch.float32)


def nearest_by_distance(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The list of blocks; argmin over the values."""
    pieces = [piece.to(torch.float32) for piece in torch.split(x.reshape(-1), block) if piece.numel()]
    scales = torch.tensor([float(piece.abs().max()) for piece in pieces], dtype=torch.float32)
    values = torch.tensor(NF4).unsqueeze(0)
    units = [piece / scale if scale else piece for piece, scale in zip(pieces, scales, strict=True)]
    codes = [(unit.unsqueeze(1) - values).abs().argmin(dim=1).byte() for unit in units]
    return torch.cat([*codes, torch.zeros(0, dtype=torch.uint8)]).reshape(x.shape), scales


RIGHT = (right(by_numpy, independent="numpy's argmin over distances"), right(nearest_by_distance))

nf4 = partial(edited, nf4_quantize)
distances = partial(edited, nearest_by_distance)
SCALES = "scales = blocks.abs().amax(1)"
UNITS = "units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]"
CODES = "codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)"
VALUES = "values = torch.tensor(NF4, device=x.device)"
BLOCKS = "blocks = torch.nn.functional.pad(flat, (0, -len(flat) % block)).reshape(-1, block)"
FLAT = "flat = x.detach().flatten().float()"
OUT = ".to(torch.uint8), scales"
NOTHING = "return torch.zeros(x.shape, dtype=torch.uint8), x.new_zeros(0)"

WRONG = (
    wrong(
        "one_scale_for_all",
        "All blocks have the same scale, that of the largest number anywhere. A block of smaller numbers then has a "
        "few codes around 0.",
        nf4((SCALES, "scales = blocks.abs().amax().expand(len(blocks)) if len(blocks) else blocks.sum(1)")),
        nf4(
            (SCALES, f"{SCALES}\n    largest = scales.max() if len(scales) else scales"),
            ("torch.where(scales > 0, scales, 1.0)[:, None]", "largest.clamp(min=1e-30)"),
        ),
    ),
    wrong(
        "evenly_spaced",
        "You round to 16 values at equal distances. NF4's are dense near 0, where most weights are.",
        nf4((CODES, "codes = ((units + 1) * 7.5).round().long()")),
        nf4((CODES, "codes = (units * 7).round().long() + 7")),
    ),
    wrong(
        "next_below",
        "You take the next value below, or above: the nearest one changes at the midpoints.",
        nf4((CODES, "codes = torch.bucketize(units, values, right=True) - 1")),
        nf4((CODES, "codes = torch.bucketize(units, values)")),
    ),
    wrong(
        "without_magnitude",
        "The scale is the largest number of a block, and not the largest magnitude.",
        nf4((SCALES, "scales = blocks.amax(1)")),
    ),
    wrong(
        "another_scale",
        "The scale is another measure of the block's size. With the largest magnitude -1 and 1 are in use, and nothing "
        "leaves them.",
        nf4((SCALES, "scales = blocks.square().mean(1).sqrt()")),
        nf4((SCALES, "scales = blocks.abs().mean(1)")),
    ),
    wrong(
        "range_in_two",
        "You shift each block so that its least number becomes -1 and its largest 1. Then 0 is no value any more; NF4 "
        "divides by one scale.",
        nf4(
            (
                UNITS,
                "low = blocks.amin(1, keepdim=True)\n"
                "    units = (blocks - low) / (blocks.amax(1, keepdim=True) - low).clamp(min=1e-30) * 2 - 1",
            )
        ),
    ),
    wrong(
        "scale_inverted",
        "You return 1 / scale. What comes back is code's value times scale.",
        nf4((OUT, ".to(torch.uint8), 1 / scales")),
    ),
    wrong(
        "ragged_block_left_out",
        "Numbers beyond the last full block are left out, or get no scale of their own.",
        nf4(
            (
                BLOCKS,
                "whole = max(len(flat) // block * block, min(len(flat), block))\n"
                "    blocks = flat[:whole].reshape(-1, min(block, max(whole, 1)))",
            ),
            (CODES, f"{CODES}\n    codes = torch.nn.functional.pad(codes.flatten(), (0, len(flat) - codes.numel()))"),
        ),
    ),
    wrong(
        "ragged_block_repeats",
        "You fill up the last block with other numbers of x. They may be larger than its own.",
        nf4(
            (
                BLOCKS,
                "more = (flat.abs().sort(descending=True).values.repeat(block) if len(flat) else flat)\n"
                "    blocks = torch.cat([flat, more[: -len(flat) % block]]).reshape(-1, block)",
            )
        ),
    ),
    wrong(
        "blocks_of_columns",
        "Your blocks run across: number 1 of each block first. Blocks are of neighbours in row-major order.",
        nf4(
            (BLOCKS, "blocks = torch.nn.functional.pad(flat, (0, -len(flat) % block)).reshape(block, -1).T"),
            ("codes.flatten()", "codes.T.flatten()"),
        ),
    ),
    wrong(
        "zeros_divided",
        "A block of zeros is divided by 0. nan has no nearest value: its code is 7.",
        nf4((UNITS, "units = blocks / scales[:, None]")),
    ),
    wrong(
        "zeros_with_a_scale",
        "A block of zeros has scale 0, the largest magnitude in it. Put something else in its place for the division "
        "only.",
        *(
            nf4((UNITS, f"scales = torch.where(scales > 0, scales, {scale})\n    units = blocks / scales[:, None]"))
            for scale in (1.0, 1e-12)
        ),
    ),
    wrong(
        "small_scales_raised",
        "You raise small scales for the division, or add to them. Numbers may be smaller than any bound of yours: put "
        "something else in the place of 0 alone.",
        nf4(("torch.where(scales > 0, scales, 1.0)[:, None]", "scales.clamp(min=1e-12)[:, None]")),
        nf4(("torch.where(scales > 0, scales, 1.0)[:, None]", "scales.clamp(min=1e-30)[:, None]")),
        nf4(("torch.where(scales > 0, scales, 1.0)[:, None]", "(scales + 1e-30)[:, None]")),
    ),
    wrong(
        "times_the_inverse",
        "You multiply by 1 / scale, which is infinite for a scale below 2**-128. Divide by the scale.",
        nf4((UNITS, "units = blocks * (1 / torch.where(scales > 0, scales, 1.0))[:, None]")),
    ),
    wrong(
        "codes_from_minus_eight",
        "Codes are indices into NF4, from 0 to 15. Yours are counted from another place.",
        nf4((OUT, ".sub(8).to(torch.int8), scales")),
        nf4((OUT, ".add(1).to(torch.uint8), scales")),
        nf4(
            (VALUES, "values = torch.tensor(NF4, device=x.device).flip(0)"),
            (CODES, "codes = (units[:, :, None] - values).abs().argmin(2)"),
        ),
    ),
    wrong(
        "another_dtype",
        "The numbers are right, and in another dtype: codes are uint8, scales float32.",
        nf4((OUT, ", scales")),
        nf4((OUT, ".to(torch.int8), scales")),
        nf4((OUT, ".to(torch.uint8), scales.to(x.dtype)")),
        nf4((FLAT, f"if not x.numel():\n        {NOTHING}\n    {FLAT}")),
    ),
    wrong(
        "computed_in_half",
        "You divide in the dtype of x, or round quotients, NF4's values or their midpoints to half precision. In "
        "bfloat16 they are off by up to a part in 512, in float16 by up to one in 4,096, and near a midpoint that is "
        "another code: compute in float32.",
        nf4(
            (FLAT, "flat = x.detach().flatten()"),
            (VALUES, f"{VALUES}.to(x.dtype)"),
            (OUT, ".to(torch.uint8), scales.float()"),
        ),
        nf4(
            (FLAT, f"{FLAT} if x.dtype == torch.bfloat16 else x.detach().flatten()"),
            (OUT, ".to(torch.uint8), scales.float()"),
        ),
        nf4((VALUES, f"{VALUES}.half().float()")),
        nf4((CODES, CODES.replace("(values[1:] + values[:-1]) / 2", "((values[1:] + values[:-1]) / 2).bfloat16()"))),
        nf4((UNITS, f"{UNITS}\n    units = units.half().float()")),
        fails=("least_error",),
    ),
    wrong(
        "codes_in_one_row",
        "The codes have lost the shape of x.",
        nf4((".reshape(x.shape)", "")),
    ),
    wrong(
        "trains_what_came",
        "x requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        nf4((FLAT, FLAT.replace("x.", "x.requires_grad_()."))),
    ),
)
