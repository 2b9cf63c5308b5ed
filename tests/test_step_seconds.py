"""What `step_seconds` says is what simulated ranks take and send."""

from __future__ import annotations

import random

import pytest
import torch

from course.cluster import Link, Simulated, fully_connected, run_ranks
from course.reference.ddp.step_seconds import step_seconds


def step(comm, backward, sizes, buckets):
    """Backward layer by layer; a bucket begins in its turn, when all its layers have been gone through."""
    works, gone = [], set()
    for layer in reversed(range(len(backward))):
        comm.compute(backward[layer])
        gone.add(layer)
        while len(works) < len(buckets) and gone.issuperset(buckets[len(works)]):
            size = sum(sizes[each] for each in buckets[len(works)])
            gradients = torch.empty(size, dtype=torch.uint8, device="meta")
            works.append(comm.all_reduce(gradients, async_op=True))
    for work in works:
        work.wait()


@pytest.mark.parametrize("seed", range(20))
def test_step_seconds_are_those_of_simulated_ranks(seed):
    rng = random.Random(seed)
    ranks, layers = rng.randint(1, 6), rng.randint(1, 8)
    backward = [rng.uniform(0.0, 1e-3) for _ in range(layers)]
    sizes = [ranks * rng.randint(1, 500_000) for _ in range(layers)]
    reduced = rng.sample(range(layers), rng.randint(1, layers))
    size = rng.randint(1, 3)
    buckets = [reduced[start : start + size] for start in range(0, len(reduced), size)]
    link = Link(latency=rng.choice((0.0, 1e-5, 1e-4)), bandwidth=10 ** rng.uniform(8, 10))

    cluster = Simulated(topology=fully_connected(ranks, link), seed=seed)
    run = run_ranks(step, ranks, inputs=[(backward, sizes, buckets)] * ranks, transport=cluster)

    said = step_seconds(backward, sizes, buckets, ranks=ranks, latency=link.latency, bandwidth=link.bandwidth)
    assert said == pytest.approx((run.ledger.makespan, run.ledger.bytes_sent(0)))
