"""Backward, in which each bucket of gradients is scattered and freed as soon as it is complete.

    backward   layer 3   layer 2   layer 1   layer 0
    buckets           [3] --reduce_scatter--> part of the mean, .grad = None     [2] --reduce_scatter--> ...

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv 1910.02054,
section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm


def zero2_backward(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Parameter]]) -> list[Tensor]:
    """loss.backward(), and this rank's part of the mean gradient of each bucket; no gradient is left."""
    bucket_of = {p: number for number, bucket in enumerate(buckets) for p in bucket}
    missing = [len(bucket) for bucket in buckets]
    shards: list[Tensor] = []

    def scatter(bucket: Sequence[Parameter]) -> None:
        shard = bucket[0].new_empty(-(-sum(p.numel() for p in bucket) // comm.size))
        flat = shard.new_zeros(comm.size * len(shard))
        start = 0
        for p in bucket:
            if p.grad is not None:
                flat[start : start + p.numel()] = p.grad.flatten()
            p.grad = None
            start += p.numel()
        comm.reduce_scatter_single(shard, flat, "mean")
        shards.append(shard)

    def arrived(p: Tensor) -> None:
        missing[bucket_of[p]] -= 1  # type: ignore[index]
        while len(shards) < len(buckets) and missing[len(shards)] == 0:
            scatter(buckets[len(shards)])

    hooks = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    for bucket in buckets[len(shards) :]:
        scatter(bucket)
    return shards
