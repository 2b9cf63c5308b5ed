"""What `zero_traffic` says is what simulated ranks send."""

from __future__ import annotations

import random

import pytest
import torch

from course.cluster import run_ranks
from course.reference.fsdp.zero_traffic import zero_traffic


def step(comm, chunk, stage, micro_batches, keeps_full):
    """The collectives of a step, one after another."""
    full = list(torch.empty(comm.size, chunk, dtype=torch.uint8, device="meta"))
    mine = torch.empty(chunk, dtype=torch.uint8, device="meta")
    for _ in range(micro_batches):
        if stage == 3:
            comm.all_gather(full, mine)  # for forward
            if not keeps_full:
                comm.all_gather(full, mine)  # for backward
        if stage >= 2:
            comm.reduce_scatter(mine, full)
    if stage == 0:
        comm.all_reduce(torch.empty(comm.size * chunk, dtype=torch.uint8, device="meta"))
    elif stage == 1:
        comm.reduce_scatter(mine, full)
    if stage in (1, 2):
        comm.all_gather(full, mine)


@pytest.mark.parametrize("seed", range(20))
def test_zero_traffic_is_that_of_simulated_ranks(seed):
    rng = random.Random(seed)
    ranks, stage = rng.randint(1, 6), seed % 4
    n, often, keeps = rng.randint(0, 10_000), rng.randint(1, 4), rng.random() < 0.5

    run = run_ranks(step, ranks, inputs=[(-(-n // ranks), stage, often, keeps)] * ranks)

    assert {run.ledger.bytes_sent(rank) for rank in range(ranks)} == {zero_traffic(n, ranks, stage, often, keeps)}
