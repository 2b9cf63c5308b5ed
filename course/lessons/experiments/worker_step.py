"""A training step of many workers on the virtual clock: forward, backward, and the gradients on their way meanwhile.

gradients, cap, workers, link  --a run of tensors without data-->  Ledger: its makespan, its timeline, its bytes

Every worker computes the same; gradients travel in groups of at least `cap` bytes, each as one all-reduce around a
ring, begun as soon as the group's last gradient is there. Nothing is computed: a worker says how long it would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from course.cluster import Comm, Ledger, Link, Simulated, Work, fully_connected, run_ranks
from course.lessons.models import GPT, GPTConfig

GPT2_SMALL = GPTConfig(vocabulary=50257, context=1024, width=768, heads=12, layers=12)
TOKENS = 8 * 1024  # of each worker in a step
SPEED = 125e12  # FLOP/s that a worker reaches: 40% of an A100's 312e12 in bf16
NUMBER = 4  # bytes of a gradient's number
CAP = 25e6  # bytes: DDP's own default is 25 MiB


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """One parameter's: how many numbers it has, and the seconds of backward that make it."""

    name: str
    numbers: int
    seconds: float

    @property
    def bytes(self) -> int:
        """What is sent of it."""
        return NUMBER * self.numbers


def gradients_of(config: GPTConfig = GPT2_SMALL, *, tokens: int = TOKENS, speed: float = SPEED) -> tuple[Gradient, ...]:
    """Of every parameter, in the order of forward: 4 FLOPs for each number and token, attention's own not counted.

    The embedding of tokens is also the head's matrix (`tied`). The work for it stands at the head, where backward
    begins; its gradient is complete at the embedding, where it ends.
    """
    with torch.device("meta"):
        sizes = [(name, each.numel()) for name, each in GPT(config).named_parameters()]
    (tied, size), *others = sizes
    found = [Gradient(name=name, numbers=count, seconds=4 * count * tokens / speed) for name, count in others]
    head = Gradient(name="head", numbers=0, seconds=4 * size * tokens / speed)
    return (Gradient(name=tied, numbers=size, seconds=0.0), *found, head)


def step(comm: Comm, gradients: Sequence[Gradient], cap: float, *, overlaps: bool = True) -> None:
    """Forward, backward and reduction of one worker.

    cap       bytes of a group, at least; 0: a group for each gradient; infinite: one group
    overlaps  whether a group leaves while backward goes on
    """
    comm.compute(sum(each.seconds for each in gradients) / 2, "forward")
    begun, spent, filled = [], 0.0, 0
    late: list[int] = []
    for place, each in enumerate(reversed(gradients), 1):
        spent, filled = spent + each.seconds, filled + each.bytes
        if filled and (filled >= cap or place == len(gradients)):
            comm.compute(spent, "backward")
            if overlaps:
                begun.append(_sent(comm, filled))
            else:
                late.append(filled)
            spent, filled = 0.0, 0
    for work in begun + [_sent(comm, size) for size in late]:
        work.wait()


def _sent(comm: Comm, size: int) -> Work:
    return comm.all_reduce(torch.empty(size // NUMBER, device="meta"), async_op=True)


def simulated(
    workers: int, link: Link, *, cap: float = CAP, gradients: Sequence[Gradient] | None = None, overlaps: bool = True
) -> Ledger:
    """The account of one step of so many workers, each with a link of its own to one switch."""
    known = gradients_of() if gradients is None else gradients
    transport = Simulated(topology=fully_connected(workers, link))
    return run_ranks(lambda comm: step(comm, known, cap, overlaps=overlaps), workers, transport=transport).ledger


def data_parallel(workers: int, link: Link, *, gradients: Sequence[Gradient] | None = None) -> Ledger:
    """The same with torch's DataParallel, a rank for each GPU: rank 0's model goes to all, and gradients come to it.

    Samples, outputs and the time of the one Python interpreter are left out. Sums are taken when backward is over.
    """
    known = gradients_of() if gradients is None else gradients

    def replica(comm: Comm) -> None:
        numbers = torch.empty(sum(each.numbers for each in known), device="meta")
        backward = sum(each.seconds for each in known)
        comm.broadcast(numbers, 0)
        comm.compute(backward / 2, "forward")
        comm.compute(backward, "backward")
        comm.reduce(numbers, 0)

    return run_ranks(replica, workers, transport=Simulated(topology=fully_connected(workers, link))).ledger


@cache
def seconds(workers: int, link: Link, cap: float = CAP, *, overlaps: bool = True) -> float:
    """Of a step of GPT-2 small."""
    return simulated(workers, link, cap=cap, overlaps=overlaps).makespan
