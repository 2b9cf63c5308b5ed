"""References of lesson 05 beside torch's own, on processes over gloo: collectives, DDP, its no_sync, batch norm."""

from __future__ import annotations

import pytest
import torch
from gloo_room import by_value, gloo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.reference.ddp.accumulate import accumulate
from course.reference.ddp.broadcast_parameters import broadcast_parameters
from course.reference.ddp.make_buckets import make_buckets
from course.reference.ddp.overlapped_backward import overlapped_backward
from course.reference.ddp.reduce_gradients import reduce_gradients
from course.reference.ddp.ring_all_gather import ring_all_gather
from course.reference.ddp.ring_all_reduce import ring_all_reduce
from course.reference.ddp.ring_reduce_scatter import ring_reduce_scatter
from course.reference.ddp.shard_indices import shard_indices
from course.reference.ddp.sync_batch_norm import sync_batch_norm
from course.reference.ddp.tree_broadcast import tree_broadcast

by_value(__name__)


def model_of(rank):
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Sequential(nn.Linear(5, 4), nn.Tanh()), nn.Linear(4, 2))


def batches_of(rank, count=3):
    torch.manual_seed(10 + rank)
    return [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(count)]


def loss_of(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def grads_of(model):
    return [each.grad for each in model.parameters()]


def collectives(comm):
    """Ours, and torch's, one after the other."""
    from torch import distributed as dist

    x = torch.arange(12.0).view(6, 2) * (comm.rank + 1)
    told, scattered = x.clone(), torch.empty(6 // comm.size, 2)
    dist.broadcast(told, 1)
    dist.reduce_scatter_tensor(scattered, x.clone())
    whole, gathered = x.clone(), torch.empty(6 * comm.size, 2)
    dist.all_reduce(whole)
    dist.all_gather_into_tensor(gathered, x)
    own = x.clone()
    tree_broadcast(comm, own, 1)
    return [
        (own, told),
        (ring_reduce_scatter(comm, x), scattered),
        (ring_all_reduce(comm, x), whole),
        (ring_all_gather(comm, x), gathered),
    ]


def gradients(comm):
    """Of DDP, of two ways of ours, and of micro-batches with and without no_sync."""
    batches = batches_of(comm.rank)
    wrapped = DistributedDataParallel(model_of(comm.rank))
    loss_of(wrapped, batches[0]).backward()
    overlapped, reduced, accumulated = model_of(comm.rank), model_of(comm.rank), model_of(comm.rank)
    for each in (overlapped, reduced, accumulated):
        broadcast_parameters(comm, each)
    overlapped_backward(comm, loss_of(overlapped, batches[0]), make_buckets([*overlapped.parameters()], 60))
    loss_of(reduced, batches[0]).backward()
    reduce_gradients(comm, reduced, 4)
    pairs = [(grads_of(each), grads_of(wrapped)) for each in (overlapped, reduced)]
    pairs = [([each.clone() for each in ours], [each.clone() for each in theirs]) for ours, theirs in pairs]
    wrapped.zero_grad()
    with wrapped.no_sync():
        for batch in batches[:-1]:
            (loss_of(wrapped, batch) / len(batches)).backward()
    (loss_of(wrapped, batches[-1]) / len(batches)).backward()
    accumulate(comm, accumulated, loss_of, batches)
    return [*pairs, (grads_of(accumulated), grads_of(wrapped))]


def normalised(comm):
    """Output and gradient of a shard; the shards are unequal."""
    torch.manual_seed(3)
    shards, slopes = ([each + 100 for each in torch.randn(9, 4).split([5, 4])], torch.randn(9, 4).split([5, 4]))
    x = shards[comm.rank].clone().requires_grad_()
    y = sync_batch_norm(comm, x, 1e-5)
    y.backward(slopes[comm.rank])
    whole = torch.cat(shards).requires_grad_()
    nn.functional.batch_norm(whole, None, None, training=True, eps=1e-5).backward(torch.cat(slopes))
    return y.detach(), x.grad, whole.grad.split([5, 4])[comm.rank]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_give_what_torchs_do(ranks):
    for found in gloo(collectives, ranks).values:
        for ours, theirs in found:
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_those_of_ddp_and_of_its_no_sync(ranks):
    for found in gloo(gradients, ranks).values:
        for ours, theirs in found:
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_batch_norm_over_two_ranks_is_torchs_over_the_whole_batch():
    for y, ours, theirs in gloo(normalised).values:
        assert abs(float(y.mean())) < 1
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("n", "size"), [(10, 4), (3, 4), (8, 2)])
def test_shards_cover_all_samples_in_equal_counts(n, size):
    found = [shard_indices(n, rank, size, 1, 2) for rank in range(size)]
    assert {len(each) for each in found} == {-(-n // size)}
    assert {index for each in found for index in each} == set(range(n))
