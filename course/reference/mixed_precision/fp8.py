"""A matrix product of 8-bit numbers, each with a float32 scale that it shares with a whole tensor or with a block.

x --/ scale--> at most the dtype's largest --cast--> q        scale = amax / largest, amax = max |x|
q_a @ q_b in float32, block by block along the inner dimension --times scale_a scale_b--> sum over the blocks
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

import torch
from torch import Tensor

from course.errors import BadArgument

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2  # 3 mantissa bits, up to 448; 2 mantissa bits, up to 57,344
SMALLEST_SCALE = torch.finfo(torch.float32).tiny
Amaxes: TypeAlias = tuple[Tensor | None, Tensor | None]


class AmaxHistory:
    """Delayed scaling: the largest magnitudes of a tensor in the last steps, the maximum of which scales the next.

    So the scale is known before the tensor is, which is read once in place of twice. What has grown since is clipped.
    Source: NVIDIA, Transformer Engine, recipe.DelayedScaling with amax_history_len=1024 and amax_compute_algo="max".
    Unlike there, the first tensor is scaled by its own amax, not by 1.
    """

    def __init__(self, steps: int = 1024) -> None:
        if steps < 1:
            raise BadArgument(f"a history must hold at least 1 step, got {steps}")
        self._seen: deque[Tensor] = deque(maxlen=steps)

    def next_amax(self, x: Tensor) -> Tensor:
        """What to scale x by, float32 (1, 1, 1). x itself counts from the next call on, but not with inf or nan."""
        own = x.detach().abs().amax().float().reshape(1, 1, 1)
        amax = torch.stack([*self._seen]).amax(dim=0) if self._seen else own
        if own.isfinite():
            self._seen.append(own)
        return amax


def quantize(
    x: Tensor, dtype: torch.dtype, *, block: int | None = None, amax: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """q and scale, whose product is near x (rows, k).

    q      (rows, blocks, block) in `dtype`, E4M3 or E5M2; the last block is filled up with zeros
    scale  float32, (1, 1, 1) for the whole tensor; or (rows, blocks, 1), if `block` numbers of a row share one
    amax   None: that of x, or of each block. Else what a history expects of the whole tensor, (1, 1, 1), and larger
           numbers, inf too, become the dtype's largest
    A number is off by at most eps / 2 of itself, or, nearer to zero, by smallest_normal eps / 2 times its scale.
    Raises BadArgument for a block below 1, and for both block and amax.
    Source: Micikevicius et al., FP8 Formats for Deep Learning (arXiv:2209.05433), section 2; blocks in a row, of 128:
    DeepSeek-V3 (arXiv:2412.19437), section 3.3.2.
    """
    if block is not None and (block < 1 or amax is not None):
        raise BadArgument(f"block must be at least 1, and with it amax must be None, got {block} and {amax}")
    size = block or x.shape[1]
    blocks = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % size)).reshape(len(x), -1, size)
    if amax is None:
        amax = blocks.abs().amax(dim=-1 if block else (0, 1, 2), keepdim=True)
    largest = torch.finfo(dtype).max
    scale = (amax / largest).clamp(min=SMALLEST_SCALE)  # of zeros too
    q = (blocks / scale).clamp(-largest, largest).to(dtype)  # clamped, because in e5m2 the cast would give inf
    return q, scale


def fp8_product(
    a: Tensor,
    b: Tensor,
    *,
    dtypes: tuple[torch.dtype, torch.dtype] = (E4M3, E4M3),
    block: int | None = None,
    amaxes: Amaxes = (None, None),
) -> Tensor:
    """a (m, k) @ b (k, n), float32 (m, n), of both in 8 bits; dtypes, block and amaxes as in `quantize`.

    A product of two 8-bit numbers is exact in float32, in which they are added. All products of blocks are alive at
    once: 4 m n bytes for each block; a kernel adds them up as it goes.
    Raises BadArgument where a and b are no matrices that can be multiplied.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise BadArgument(f"a must be (m, k) and b (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    q_a, scale_a = quantize(a, dtypes[0], block=block, amax=amaxes[0])  # (m, blocks, block)
    q_b, scale_b = quantize(b.T, dtypes[1], block=block, amax=amaxes[1])  # (n, blocks, block)
    products = torch.einsum("mjk,njk->jmn", q_a.float(), q_b.float())
    return (products * scale_a.permute(1, 0, 2) * scale_b.permute(1, 2, 0)).sum(dim=0)


def scaled_fp8_matmul(
    a: Tensor,
    b: Tensor,
    *,
    block: int | None = None,
    histories: tuple[AmaxHistory, AmaxHistory, AmaxHistory] | None = None,
) -> Tensor:
    """a (m, k) @ b (k, n), float32 (m, n): values in e4m3; in its backward pass the incoming gradient in e5m2.

    block      None: one scale for a tensor; else `block` numbers along the inner dimension of each product share one
    histories  of a, b and the gradient: delayed scaling. None: each tensor is scaled by its own amax
    Gradients have the dtypes of a and b. Raises BadArgument as `fp8_product` and `quantize` do.
    Source: Micikevicius et al. (arXiv:2209.05433), section 3, for which format serves what.
    """
    amaxes = (None, None) if histories is None else (histories[0].next_amax(a), histories[1].next_amax(b))
    product: Tensor = _Matmul.apply(a, b, block, amaxes, histories and histories[2])  # type: ignore[no-untyped-call]
    return product


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, block: int | None, amaxes: Amaxes, history: AmaxHistory | None
    ) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.block, ctx.amaxes, ctx.history = block, amaxes, history
        return fp8_product(a, b, block=block, amaxes=amaxes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a, of_b = ctx.amaxes
        of_grad = ctx.history.next_amax(grad) if ctx.history else None
        grad_a = fp8_product(grad, b.T, dtypes=(E5M2, E4M3), block=ctx.block, amaxes=(of_grad, of_b))
        grad_b = fp8_product(a.T, grad, dtypes=(E4M3, E5M2), block=ctx.block, amaxes=(of_a, of_grad))
        return grad_a.to(a.dtype), grad_b.to(b.dtype), None, None, None
