"""AdamW whose moments are sharded: ZeRO's first stage.

    gradients  --reduce_scatter, mean-->  of the own shard  --AdamW, own m and v-->  own new shard
    own new shard  --all_gather-->  parameters everywhere

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv:1910.02054),
section 5.1; section 7.2.1 for its traffic with gradients scattered, that of an all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm


@torch.no_grad()
def zero1_step(
    comm: Comm,
    params: Sequence[Parameter],
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """One step of `torch.optim.AdamW` with the mean gradient, in place. None counts as zeros, frozen ones stay.

    state   empty at first, then `step`, and `m` and `v` of this rank's shard, (ceil(n / P),)
    Cost    2 (P - 1) shards sent by each rank
    """
    beta1, beta2 = betas
    trained = [p for p in params if p.requires_grad]
    m = -(-sum(p.numel() for p in trained) // comm.size)
    row = trained[0].new_zeros(comm.size * m)
    for p, part in _parts(trained, row):
        if p.grad is not None:
            part.copy_(p.grad)
    grad = row.new_empty(m)
    comm.reduce_scatter_single(grad, row, "mean")
    for p, part in _parts(trained, row):
        part.copy_(p)
    shard = row[comm.rank * m : (comm.rank + 1) * m].clone()
    if not state:
        state.update(step=0, m=torch.zeros_like(shard), v=torch.zeros_like(shard))
    state["step"] += 1
    shard *= 1 - lr * weight_decay
    state["m"].lerp_(grad, 1 - beta1)
    state["v"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    m_hat = state["m"] / (1 - beta1 ** state["step"])
    v_hat = state["v"] / (1 - beta2 ** state["step"])
    shard -= lr * m_hat / (v_hat.sqrt() + eps)
    comm.all_gather_single(row, shard)
    for p, part in _parts(trained, row):
        p.copy_(part)


def _parts(params: Sequence[Parameter], row: Tensor) -> Iterator[tuple[Parameter, Tensor]]:
    """Each parameter with the view of the row that has its elements."""
    start = 0
    for p in params:
        yield p, row[start : start + p.numel()].view(p.shape)
        start += p.numel()
