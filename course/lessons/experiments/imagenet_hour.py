"""ImageNet in an hour: the scaling of a published run, on simulated ranks.

8 GPUs --29 hours--> 90 epochs;  256 GPUs, 32 servers --1 hour--> the same      P. Goyal et al., arXiv 1706.02677

A GPU's images per second are those of the run with 8. What is left is the network: gradients of ResNet-50 in groups,
begun during backward, on servers that share one card of 50 Gbit/s each.
"""

from __future__ import annotations

from functools import partial

from course.cluster import Comm, Link, Simulated, Topology, run_ranks, two_levels
from course.lessons.experiments.worker_step import CAP, Gradient, step

EPOCHS, IMAGES = 90, 1_281_167
HOURS = {8: 29.0, 256: 1.0}
PARAMETERS, PARTS = 25_557_032, 32  # of ResNet-50; in equal parts
BATCH = 32  # images of a GPU
INSIDE = Link(latency=1e-6, bandwidth=2e10)  # between the GPUs of a server
BETWEEN = Link(latency=1e-5, bandwidth=6.25e9)  # 50 Gbit/s, of a server


def published() -> float:
    """How much of 32 times the speed of 8 GPUs the 256 have."""
    return HOURS[8] / HOURS[256] / (256 / 8)


def gradients() -> tuple[Gradient, ...]:
    """Of equal parts, by the time of a step with 8 GPUs, two thirds of which is backward."""
    seconds = HOURS[8] * 3600 * 8 * BATCH / (EPOCHS * IMAGES)
    return tuple(
        Gradient(name=f"part {place}", numbers=PARAMETERS // PARTS, seconds=2 / 3 * seconds / PARTS)
        for place in range(PARTS)
    )


def seconds(servers: int, *, overlaps: bool = True) -> float:
    """Of a step on so many servers of 8 GPUs."""
    topology: Topology = two_levels(servers, 8, inside=INSIDE, between=BETWEEN)
    return run_ranks(
        partial(_step, overlaps=overlaps), 8 * servers, transport=Simulated(topology=topology)
    ).ledger.makespan


def _step(comm: Comm, *, overlaps: bool) -> None:
    step(comm, gradients(), CAP, overlaps=overlaps)


def simulated(*, overlaps: bool = True) -> float:
    """The same share as `published`."""
    return seconds(1, overlaps=overlaps) / seconds(32, overlaps=overlaps)
