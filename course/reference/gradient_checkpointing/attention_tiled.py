"""Attention in tiles, with a softmax that is corrected as more keys come."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def attention_tiled(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(d)) v and the log-sum-exp of each row of scaled scores, one tile of scores at a time."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block must be at least 1, and causal attention needs as many queries as keys")
    rows = [
        _rows(q[..., start : start + block, :], start, k, v, block, causal) for start in range(0, q.shape[-2], block)
    ]
    outs, logs = zip(*rows, strict=True)
    return torch.cat(outs, -2), torch.cat(logs, -1)


def _rows(q: Tensor, start: int, k: Tensor, v: Tensor, block: int, causal: bool) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of a few queries, of which the first has the number `start`."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    x = q.to(dtype) / math.sqrt(q.shape[-1])
    top = x.new_full((*q.shape[:-1], 1), -torch.inf)
    total = torch.zeros_like(top)
    out = x.new_zeros(*q.shape[:-1], v.shape[-1])
    for at in range(0, start + q.shape[-2] if causal else k.shape[-2], block):
        scores = x @ k[..., at : at + block, :].to(dtype).mT
        if causal:
            scores.masked_fill_(above_diagonal(scores, start, at), -torch.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, p = (top - higher).exp(), (scores - higher).exp()
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p @ v[..., at : at + block, :].to(dtype)
        top = higher
    return (out / total).to(q.dtype), (top + total.log()).squeeze(-1)


def above_diagonal(tile: Tensor, query: int, key: int) -> Tensor:
    """Where a tile whose first row and column are this query and this key shows a query a later key."""
    rows, columns = (torch.arange(size, device=tile.device) for size in tile.shape[-2:])
    return key + columns > (query + rows)[:, None]
