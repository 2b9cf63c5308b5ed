"""One unit backward: parameters are gathered once more, and gradients are scattered as soon as they are there.

    shard --all_gather--> a, b --backward--> da, db --flat--> gradients --reduce_scatter--> this rank's part of the mean

Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv 2304.11277, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from course.cluster import Comm


def unit_backward(
    comm: Comm, shard: Tensor, shapes: Sequence[torch.Size], saved: Mapping[str, Tensor], dy: Tensor
) -> tuple[Tensor, Tensor]:
    """dx, and this rank's part of the mean of the flat gradients."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    grads = torch.zeros_like(full)  # zeros also where the padding is
    n, x, t = shapes[0].numel(), saved["x"], saved["t"]
    a, b = full[:n].view(shapes[0]), full[n : 2 * n].view(shapes[1])
    da, db = grads[:n].view(shapes[0]), grads[n : 2 * n].view(shapes[1])
    dt = (dy @ b.T) * (1 - t * t)
    dx = dy + dt @ a
    torch.mm(dt.T, x, out=da)
    torch.mm(t.T, dy, out=db)
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, grads, "mean")
    return dx, dshard
