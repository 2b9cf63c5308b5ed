"""A matrix product of 8-bit numbers, each with a float32 scale that it shares with a whole tensor or with a block.

x --/ scale--> at most the format's largest --cast--> q        scale = amax / largest, amax = max |x|
q_a @ q_b in float32, block by block along the inner dimension --times scale_a scale_b--> sum over the blocks
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from course.errors import BadArgument

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2  # 3 mantissa bits, up to 448; 2 mantissa bits, up to 57,344
STEPS = 16  # of which a history keeps the amax
Histories: TypeAlias = tuple[list[float], list[float]]


def scaled_fp8_matmul(
    a: Tensor,
    b: Tensor,
    scales: Histories | None,
    *,
    formats: tuple[torch.dtype, torch.dtype] = (E4M3, E4M3),
    block: int | None = None,
) -> Tensor:
    """a (m, k) @ b (k, n), float32 (m, n), of both in 8 bits.

    scales   None: each tensor, or each block, is scaled by its own amax. Else the amax of a and of b in the last steps,
             oldest first: the largest scales the tensor, its own where there is none yet. Its own is appended
             afterwards, and the last 16 stay. So the scale is known before the tensor is, which is read once
    formats  of a and b, E4M3 or E5M2
    block    so many numbers along k share a scale, in each row of a and in each column of b; the last may be shorter
    A product of two 8-bit numbers is exact in float32, in which they are added. All products of blocks are alive at
    once: 4 m n bytes for each block; a kernel adds them up as it goes.
    Raises BadArgument where a and b are no matrices that can be multiplied, for a block below 1 or beside `scales`.
    Source: NVIDIA, Transformer Engine, recipe.DelayedScaling with amax_compute_algo="max", where the history has 1,024
    steps and the first tensor is scaled by 1; blocks of 128: DeepSeek-V3 (arXiv:2412.19437), section 3.3.2.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise BadArgument(f"a must be (m, k) and b (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if block is not None and (block < 1 or scales is not None):
        raise BadArgument(f"block must be at least 1, and with it scales must be None, got {block} and {scales}")
    of_a, of_b = (None, None) if scales is None else (next_amax(a, scales[0]), next_amax(b, scales[1]))
    q_a, scale_a = quantize(a, formats[0], block=block, amax=of_a)  # (m, blocks, block)
    q_b, scale_b = quantize(b.T, formats[1], block=block, amax=of_b)  # (n, blocks, block)
    products = torch.einsum("mjk,njk->jmn", q_a.float(), q_b.float())
    return (products * scale_a.permute(1, 0, 2) * scale_b.permute(1, 2, 0)).sum(dim=0)


def next_amax(x: Tensor, history: list[float]) -> float:
    """What to scale x by. Its own amax counts from the next call on."""
    own = float(x.detach().abs().max())
    amax = max(history, default=own)
    history.append(own)
    del history[:-STEPS]
    return amax


def quantize(
    x: Tensor, dtype: torch.dtype, *, block: int | None = None, amax: float | None = None
) -> tuple[Tensor, Tensor]:
    """q and scale, whose product is near x (rows, k).

    q      (rows, blocks, block) in `dtype`, E4M3 or E5M2; the last block is filled up with zeros
    scale  float32, (1, 1, 1) for the whole tensor; or (rows, blocks, 1), if `block` numbers of a row share one
    amax   None: that of x, or of each block. Else what a history expects of the whole tensor; larger numbers become the
           dtype's largest
    A number is off by at most eps / 2 of itself, or, nearer to zero, by smallest_normal eps / 2 times its scale.
    Source: Micikevicius et al., FP8 Formats for Deep Learning (arXiv:2209.05433), section 2.
    """
    x = x.detach().float()
    size = block or x.shape[1]
    blocks = torch.nn.functional.pad(x, (0, -x.shape[1] % size)).reshape(len(x), -1, size)
    if amax is None:
        amaxes = blocks.abs().amax(dim=-1 if block else (0, 1, 2), keepdim=True)
    else:
        amaxes = x.new_full((1, 1, 1), amax)
    largest = torch.finfo(dtype).max
    scale = torch.where(amaxes > 0, amaxes / largest, 1.0)
    q = (blocks / scale).clamp(-largest, largest).to(dtype)  # clamped, because in e5m2 the cast would give inf
    return q, scale
