"""Digits on real processes: a step of one's own, and torch's DDP, beside one process with the whole batch.

parts, workers --run_ranks over gloo--> the losses of the whole batch, step by step
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.cluster import Comm, run_ranks
from course.lessons.data import digits_split
from course.lessons.experiments.assembled import Parts
from course.lessons.experiments.assembled_ddp import broadcast_parameters
from course.lessons.models import mlp

Named = Mapping[str, Callable[..., Any]]

BATCH, STEPS, RATE = 64, 20, 0.2


def shard_indices(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """torch's own sampler."""
    data: Any = range(n)
    sampler = torch.utils.data.DistributedSampler[int](data, size, rank, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def reduce_gradients(comm: Comm, model: nn.Module, weight: float) -> None:
    """Weighed gradients and weights as one vector. Every parameter here has a gradient on every rank."""
    grads = [each.grad for each in model.parameters() if each.grad is not None]
    whole = torch.cat([weight * each.flatten() for each in grads] + [torch.tensor([float(weight)])])
    torch.distributed.all_reduce(whole)
    start = 0
    for each in grads:
        each.copy_(whole[start : start + each.numel()].view_as(each) / whole[-1])
        start += each.numel()


PARTS = Parts(
    torchs={
        "shard_indices": shard_indices,
        "broadcast_parameters": broadcast_parameters,
        "reduce_gradients": reduce_gradients,
    },
    names=("shard_indices", "broadcast_parameters", "reduce_gradients"),
)


def own(comm: Comm, parts: Named) -> list[float]:
    """A worker of one's own: its losses times its samples."""
    model = _model(comm.rank)
    parts["broadcast_parameters"](comm, model)

    def reduce(samples: int) -> None:
        parts["reduce_gradients"](comm, model, samples)

    return _trained(model, _shares(parts, comm.rank, comm.size), reduce)


def torchs(comm: Comm, parts: Named) -> list[float]:
    """A worker with DDP, on the same shards."""
    return _trained(
        DistributedDataParallel(_model(comm.rank)), _shares(parts, comm.rank, comm.size), lambda samples: None
    )


def losses(worker: Callable[..., list[float]], workers: int, parts: Named) -> list[float]:
    """Of the whole batch: the workers' losses together."""
    run = run_ranks(worker, workers, transport="gloo", inputs=[(dict(parts),)] * workers)
    return [sum(each) / BATCH for each in zip(*run.values, strict=True)]


def one_process(workers: int, parts: Named) -> list[float]:
    """The same batches in one process: the shards of each step together."""
    shares = [_shares(parts, rank, workers) for rank in range(workers)]
    batches = [torch.cat(each) for each in zip(*shares, strict=True)]
    return [loss / BATCH for loss in _trained(_model(0), batches, lambda samples: None)]


def _shares(parts: Named, rank: int, size: int) -> list[Tensor]:
    """What a worker reads in each step: its shard of the training digits, a part of a batch at a time."""
    count = len(digits_split()[0].labels)
    indices = torch.as_tensor(parts["shard_indices"](count, rank, size, 0, 0))
    return list(torch.split(indices, BATCH // size)[:STEPS])


def _model(seed: int) -> nn.Module:
    return mlp((64, 32, 10), torch.Generator().manual_seed(seed))


def _trained(model: nn.Module, shares: list[Tensor], reduce: Callable[[int], None]) -> list[float]:
    data = digits_split()[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    found = []
    for own_share in shares:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.images[own_share]), data.labels[own_share])
        torch.autograd.backward(loss)
        reduce(len(own_share))
        optimizer.step()
        found.append(loss.item() * len(own_share))
    return found
