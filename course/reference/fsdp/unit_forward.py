"""One unit forward, whose full parameters live only as long as they are used.

    shard --all_gather--> full --views--> a, b --> y        full is freed; x and t stay for backward

Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv 2304.11277, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from course.cluster import Comm


def unit_forward(
    comm: Comm, shard: Tensor, shapes: Sequence[torch.Size], x: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """y = x + tanh(x a') b, and what backward will need of it besides the parameters."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    n = shapes[0].numel()
    a, b = full[:n].view(shapes[0]), full[n : n + shapes[1].numel()].view(shapes[1])
    t = torch.tanh(x @ a.T)
    return x + t @ b, {"x": x, "t": t}
