"""Buckets of gradients that are reduced while backward goes on.

    backward   layer 3   layer 2   layer 1   layer 0
    buckets              [3 2] --all_reduce-->       [1 0] --all_reduce-->     wait, wait, write back

S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm, Work


def overlapped_backward(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Parameter]]) -> None:
    """loss.backward(), after which every .grad is the mean over ranks: one all_reduce for each bucket, begun early."""
    bucket_of = {p: number for number, bucket in enumerate(buckets) for p in bucket}
    missing = [len(bucket) for bucket in buckets]
    begun: list[tuple[Tensor, Work]] = []

    def begin(bucket: Sequence[Parameter]) -> None:
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        begun.append((flat, comm.all_reduce(flat, "mean", async_op=True)))

    def arrived(p: Tensor) -> None:
        missing[bucket_of[p]] -= 1  # type: ignore[index]
        while len(begun) < len(buckets) and missing[len(begun)] == 0:
            begin(buckets[len(begun)])

    hooks = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    for bucket in buckets[len(begun) :]:
        begin(bucket)
    for bucket, (flat, work) in zip(buckets, begun, strict=True):
        work.wait()
        for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            p.grad = mean.view_as(p)
