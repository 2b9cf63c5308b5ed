"""A script for torchrun: pi from random points, an equal share of them on each rank.

    torchrun --standalone --nproc-per-node 4 -m course.cluster.pi

Every process runs this whole file; only `comm.rank` differs. The share of points of the unit square that lie within
the quarter circle tends to pi / 4.
"""

from __future__ import annotations

import math

import torch

from course.cluster.protocol.comm import Comm
from course.cluster.torchrun import comm_of_torchrun

POINTS = 1_000_000  # on each rank


def estimate(comm: Comm) -> float:
    """Pi, from the points of all ranks; each draws others, because its seed is its rank."""
    generator = torch.Generator().manual_seed(comm.rank)
    points = torch.rand(POINTS, 2, generator=generator, device="cpu")
    inside = (points.square().sum(dim=1) < 1).sum().to(comm.device)
    comm.all_reduce(inside)
    return 4 * inside.item() / (POINTS * comm.size)


def main() -> None:
    """One rank."""
    with comm_of_torchrun() as comm:
        pi = estimate(comm)
        if comm.rank == 0:
            print(f"{comm.size} ranks, {POINTS * comm.size:,} points: pi = {pi:.4f}, off by {abs(pi - math.pi):.1e}")


if __name__ == "__main__":
    main()
