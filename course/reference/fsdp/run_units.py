"""A step through units whose parameters are gathered, used and freed; early, if wanted, so that nobody waits.

    unit          0         1         2         2         1         0
    computes      forward   forward   forward   backward  backward  backward
    meanwhile     gather 1  gather 2  gather 2  gather 1  gather 0  scatter 1    scatter 0
                                                          scatter 2

Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv 2304.11277, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm, Work


def run_units(
    comm: Comm,
    shards: Sequence[Tensor],
    forward: Callable[[int, Tensor, Any], Any],
    backward: Callable[[int, Tensor, Any, Any], tuple[Any, Tensor]],
    x: Any,
    dy: Any,
    prefetch: bool,
) -> tuple[Any, Any, list[Tensor]]:
    """y of the last unit, dx of the first one, and this rank's part of the mean gradients of each."""
    n, xs, dshards = len(shards), [x], [torch.empty_like(shard) for shard in shards]
    visits = [*range(n), *reversed(range(n))]
    ahead: list[tuple[Tensor, Work]] = []
    leaving: Work | None = None  # a work holds its tensors: of the unit before, until it has left
    for place, i in enumerate(visits):
        while len(ahead) <= prefetch and place + len(ahead) < len(visits):
            shard = shards[visits[place + len(ahead)]]
            full = shard.new_empty(comm.size * len(shard))
            ahead.append((full, comm.all_gather_single(full, shard, async_op=True)))
        full, work = ahead.pop(0)
        work.wait()
        if place < n:
            xs.append(forward(i, full, xs[i]))
        else:
            dy, dfull = backward(i, full, xs[i], dy)
            if leaving:
                leaving.wait()
            leaving = comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=prefetch)  # type: ignore[call-overload]
            del dfull
        del full, work
    if leaving:
        leaving.wait()
    return xs[-1], dy, dshards
