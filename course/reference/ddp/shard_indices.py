"""One shuffled order for all ranks, dealt out like cards.

    order 3 0 4 1 2 | 3      two ranks:  rank 0 gets 3 4 2, rank 1 gets 0 1 3
                      begins again

As torch.utils.data.DistributedSampler, but for the number that seeds the generator.
"""

from __future__ import annotations

import torch


def shard_indices(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """The ceil(n / size) samples of one rank, of a permutation that (seed, epoch) determines."""
    # seed + epoch would give seed 2 the orders of seed 1, one epoch later
    generator = torch.Generator().manual_seed(10_007 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    places = torch.arange(rank, -(-n // size) * size, size)
    return order[places % n].tolist()
