"""Gradients that travel together: buckets in the order in which backward completes them.

    forward uses a b c d  -->  backward completes d c b a  -->  buckets [d c], [b a], the first one ready first

S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, sections 3.2.2 and
3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import Parameter


def make_buckets(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """Buckets of one dtype and at most `cap` bytes, in the order in which their gradients are complete."""
    order = [p for p in reversed(dict.fromkeys(params)) if p.requires_grad]  # a tied one: where it is used first
    buckets: list[list[Parameter]] = []
    still_open: dict[torch.dtype, list[Parameter]] = {}
    for p in order:
        bucket = still_open.get(p.dtype)
        if bucket is None or sum(each.nbytes for each in bucket) + p.nbytes > cap:
            bucket = still_open[p.dtype] = []
            buckets.append(bucket)
        bucket.append(p)
    place = {p: number for number, p in enumerate(order)}
    return sorted(buckets, key=lambda bucket: place[bucket[-1]])
