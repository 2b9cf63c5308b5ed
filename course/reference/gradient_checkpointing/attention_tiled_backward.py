"""Backward of attention in tiles: the probabilities come back from what one row of them sums to."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course.reference.gradient_checkpointing.attention_tiled import above_diagonal


def attention_tiled_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, from those of `out`, one tile of probabilities at a time."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block must be at least 1, and causal attention needs as many queries as keys")
    dtype = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1])
    along = (dout.to(dtype) * out.to(dtype)).sum(-1, keepdim=True)
    dq, dk, dv = (torch.zeros_like(x, dtype=dtype, memory_format=torch.contiguous_format) for x in (q, k, v))
    for at in range(0, k.shape[-2], block):
        keys = slice(at, at + block)
        k_at, v_at = k[..., keys, :].to(dtype), v[..., keys, :].to(dtype)
        for start in range(at if causal else 0, q.shape[-2], block):
            rows = slice(start, start + block)
            q_at, dout_at = q[..., rows, :].to(dtype), dout[..., rows, :].to(dtype)
            scores = q_at @ k_at.mT * scale
            if causal:
                scores.masked_fill_(above_diagonal(scores, start, at), -torch.inf)
            p = (scores - lse[..., rows, None]).exp()
            ds = p * (dout_at @ v_at.mT - along[..., rows, :]) * scale
            dq[..., rows, :] += ds @ k_at
            dk[..., keys, :] += ds.mT @ q_at
            dv[..., keys, :] += p.mT @ dout_at
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
