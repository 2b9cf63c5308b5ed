"""A step of sharded units on the virtual clock: gathered, used and freed; with and without prefetch.

units, ranks, links --a run of tensors without data--> Ledger: its makespan, its timeline, the bytes that were held

Parameters and gradients have 2 bytes. Every rank computes the same; a unit is a few blocks of a transformer. Nothing is
computed: a rank says how long it would take. Optimizer states, and activations, are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course.cluster import Comm, Ledger, Link, Simulated, Topology, Work, fully_connected, run_ranks, two_levels

BLOCKS, BLOCK = 12, 7_087_872  # of GPT-2 small: 12 d^2 + 13 d numbers each, at width d = 768
TOKENS, SPEED = 8 * 1024, 125e12  # of each rank in a step; FLOP/s, 40% of an A100's in bf16
NUMBER = torch.bfloat16
RANKS = 4
LINK = Link(latency=1e-5, bandwidth=2.5e10)
INSIDE, BETWEEN = Link(latency=2e-6, bandwidth=2e11), Link(latency=1e-5, bandwidth=2.5e10)  # of ranks; of whole nodes


@dataclass(frozen=True, kw_only=True)
class Unit:
    """So many numbers, and the seconds of their forward."""

    numbers: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of a step: seconds, bytes at the highest on a rank, bytes that a rank sent, collectives."""

    seconds: float
    peak: int
    sent: int
    collectives: int


def units_of(blocks: int, whole: int = BLOCKS, numbers: int = BLOCK) -> tuple[Unit, ...]:
    """A model cut into units of so many blocks; the last may have fewer."""
    forward = 2 * numbers * TOKENS / SPEED  # two operations for each number and token
    sizes = [min(blocks, whole - start) for start in range(0, whole, blocks)]
    return tuple(Unit(numbers=size * numbers, seconds=size * forward) for size in sizes)


class Life:
    """One rank's step. sharding: over these ranks a unit is sharded; replicas: over these its shards are replicated."""

    def __init__(self, comm: Comm, sharding: Comm, replicas: Comm, units: Sequence[Unit]) -> None:
        self.comm, self.sharding, self.replicas, self.units = comm, sharding, replicas, units
        self.shards = [empty(-(-each.numbers // sharding.size)) for each in units]

    def step(self, *, prefetch: bool) -> list[Tensor]:
        """Forward over all units, then backward: the shards of the gradients."""
        last = len(self.units) - 1
        self._through(range(last + 1), prefetch=prefetch, backward=False)
        return self._through(range(last, -1, -1), prefetch=prefetch, backward=True)

    def _through(self, order: range, *, prefetch: bool, backward: bool) -> list[Tensor]:
        ahead: tuple[Tensor, Work] | None = None
        leaving: list[tuple[Tensor, Tensor, Work]] = []  # one at most: its full gradient lives until it has left
        arrived: list[tuple[Tensor, Work | None]] = []
        for place, number in enumerate(order):
            full, work = ahead or self._gather(number)
            follows = place + 1 < len(order)
            ahead = self._gather(order[place + 1]) if prefetch and follows else None
            work.wait()
            self.comm.compute((1 + backward) * self.units[number].seconds, "backward" if backward else "forward")
            if backward:
                arrived += [self._arrived(*leaving.pop()) for _ in leaving[:1]]
                leaving.append(self._scatter(number))
                arrived += [self._arrived(*leaving.pop()) for _ in leaving[: not prefetch]]
            del full, work  # which knows its tensor, too
        arrived += [self._arrived(*each) for each in leaving]
        for _, reduced in arrived:
            if reduced is not None:
                reduced.wait()
        return [own for own, _ in arrived]

    def _gather(self, number: int) -> tuple[Tensor, Work]:
        full = empty(self.sharding.size * self.shards[number].numel())
        return full, self.sharding.all_gather_single(full, self.shards[number], async_op=True)

    def _scatter(self, number: int) -> tuple[Tensor, Tensor, Work]:
        full = empty(self.sharding.size * self.shards[number].numel())
        own = empty(self.shards[number].numel())
        return full, own, self.sharding.reduce_scatter_single(own, full, async_op=True)

    def _arrived(self, full: Tensor, own: Tensor, work: Work) -> tuple[Tensor, Work | None]:
        work.wait()
        return own, self.replicas.all_reduce(own, async_op=True) if self.replicas.size > 1 else None


def empty(count: int) -> Tensor:
    """So many numbers that are only counted."""
    return torch.empty(count, dtype=NUMBER, device="meta")


def simulated(units: Sequence[Unit], topology: Topology, *, prefetch: bool = True, group: int | None = None) -> Ledger:
    """The account of a step. group: how many ranks, one after another, a unit is sharded over; by default all."""
    size = topology.size

    def rank(comm: Comm) -> None:
        axes = comm.mesh(replicas=size // (group or size), sharding=group or size)
        Life(comm, axes["sharding"], axes["replicas"], units).step(prefetch=prefetch)

    return run_ranks(rank, size, transport=Simulated(topology=topology, memory=True)).ledger


def life(*, blocks: int = 1, prefetch: bool = True, bandwidth: float = LINK.bandwidth) -> Ledger:
    """A step of GPT-2 small on four ranks, in units of so many blocks."""
    link = Link(latency=LINK.latency, bandwidth=bandwidth)
    return simulated(units_of(blocks), fully_connected(RANKS, link), prefetch=prefetch)


@cache
def by_unit_size(sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 12), *, prefetch: bool = True) -> dict[int, Cost]:
    """What a step costs, by the blocks of a unit."""
    return {blocks: cost(life(blocks=blocks, prefetch=prefetch)) for blocks in sizes}


def cost(ledger: Ledger, rank: int = 0) -> Cost:
    """In short."""
    own = [each for each in ledger.events if each.rank == rank and each.call is not None]
    return Cost(
        seconds=ledger.makespan,
        peak=ledger.peak_bytes(rank),
        sent=ledger.bytes_sent(rank),
        collectives=len(own),
    )


def over_nodes(nodes: int = 4, per_node: int = 8) -> dict[str, tuple[Cost, int]]:
    """Sharded over all ranks of several nodes, and over those of each node: the costs, and bytes between nodes."""
    topology = two_levels(nodes, per_node, inside=INSIDE, between=BETWEEN)
    found = {}
    for name, group in (("over all ranks", None), ("inside each node", per_node)):
        ledger = simulated(units_of(1), topology, group=group)
        far = sum(size for (src, dst), size in ledger.sent.items() if src // per_node != dst // per_node)
        found[name] = (cost(ledger), far)
    return found
