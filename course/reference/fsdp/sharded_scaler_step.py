"""One step under a loss scale, of a model whose gradients lie in shards.

    is any number of this rank inf or nan  --one all-reduce, max-->  of any rank
    yes: all skip, the scale is halved        no: gradients / scale, all step, and after `interval` of them it doubles

The rule is that of P. Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, section 3.2, and of torch's
GradScaler; torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler makes this all-reduce too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course.cluster import Comm


def sharded_scaler_step(
    comm: Comm, grads: list[Tensor], step: Callable[[], object], scale: float, good_steps: int, interval: int
) -> tuple[float, int]:
    """Unscales and steps on all ranks, or on none; returns the next scale and the number of good steps in a row."""
    broken = torch.tensor(float(any(not bool(grad.isfinite().all()) for grad in grads))).to(comm.device)
    comm.all_reduce(broken, "max")
    if broken.item():
        return scale / 2, 0
    for grad in grads:
        grad.div_(scale)
    step()
    return (scale * 2, 0) if good_steps + 1 == interval else (scale, good_steps + 1)
