"""Both halves of tiled attention as one operation of autograd's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.reference.gradient_checkpointing.attention_tiled import attention_tiled
from course.reference.gradient_checkpointing.attention_tiled_backward import attention_tiled_backward


class TiledAttention(torch.autograd.Function):
    """`TiledAttention.apply(q, k, v, block, causal)`: keeps q, k, v, the output and one number for each query."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> Tensor:
        out, lse = attention_tiled(q, k, v, block, causal)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.block, ctx.causal = block, causal
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        return *attention_tiled_backward(q, k, v, out, lse, dout, ctx.block, ctx.causal), None, None
