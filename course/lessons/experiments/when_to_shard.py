"""When sharding pays: a step of data parallelism beside one of sharded units, on the virtual clock.

model, ranks, tokens, link --two runs of tensors without data--> seconds of each, and the share that a rank waits

Blocks are those of `unit_life`. In data parallelism the gradients of each block leave during backward, as in lesson 05;
sharded units are gathered one ahead. Numbers that travel have 2 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from course.cluster import Comm, Ledger, Link, Simulated, fully_connected, run_ranks
from course.lessons.experiments.unit_life import SPEED, Life, Unit, empty
from course.planner.memory import GB, RECIPES
from course.planner.sharding import sharded_state_bytes

RANKS = 8
NETWORK, NVLINK = Link(latency=1e-5, bandwidth=1.25e10), Link(latency=2e-6, bandwidth=2e11)  # 100 Gbit/s; in a server
SMALL, LARGE = 124_000_000, 13_000_000_000  # parameters
BLOCKS = {SMALL: 12, LARGE: 40}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Of data parallelism and of sharded units: seconds of a step; compute is the same."""

    replicated: float
    sharded: float
    compute: float

    @property
    def waiting(self) -> tuple[float, float]:
        """The shares of a step in which a rank does not compute."""
        return 1 - self.compute / self.replicated, 1 - self.compute / self.sharded


def steps(parameters: int, tokens: int, link: Link, ranks: int = RANKS) -> Pair:
    """Both steps, with so many tokens for each rank."""
    numbers = parameters // BLOCKS[parameters]
    units = [Unit(numbers=numbers, seconds=2 * numbers * tokens / SPEED)] * BLOCKS[parameters]
    replicated, sharded = (_run(each, units, link, ranks).makespan for each in (_replicated, _sharded))
    return Pair(replicated=replicated, sharded=sharded, compute=3 * sum(each.seconds for each in units))


def gigabytes(parameters: int, stage: int, ranks: int = RANKS) -> float:
    """Parameters, gradients and states of a rank, mixed precision with Adam."""
    return sum(sharded_state_bytes(parameters, RECIPES["fp16"], ranks=ranks, stage=stage).values()) / GB


def table() -> Iterator[str]:
    """Line by line: how much longer the sharded step takes, and why one would."""
    yield f"{'':44}{'replicated':>12}{'sharded':>10}  longer"
    for words, link in (("between servers", NETWORK), ("inside a server", NVLINK)):
        for tokens in (1024, 4096, 16384):
            found = steps(SMALL, tokens, link)
            name = f"124 million, {tokens:6,} tokens, {words}"
            yield (
                f"{name:44}{found.replicated * 1e3:9.1f} ms{found.sharded * 1e3:7.1f} ms "
                f"{found.sharded / found.replicated - 1:+7.0%}"
            )
    for parameters, words in ((SMALL, "124 million: kept"), (LARGE, "13 billion: kept")):
        yield f"{words:44}{gigabytes(parameters, 0):9.1f} GB{gigabytes(parameters, 3):7.1f} GB"


def _run(step: object, units: list[Unit], link: Link, ranks: int) -> Ledger:
    transport = Simulated(topology=fully_connected(ranks, link))
    return run_ranks(step, ranks, transport=transport, inputs=[(units,)] * ranks).ledger  # type: ignore[arg-type]


def _sharded(comm: Comm, units: list[Unit]) -> None:
    Life(comm, comm, comm.subgroup([comm.rank]), units).step(prefetch=True)


def _replicated(comm: Comm, units: list[Unit]) -> None:
    comm.compute(sum(each.seconds for each in units), "forward")
    works = []
    for each in reversed(units):
        comm.compute(2 * each.seconds, "backward")
        works.append(comm.all_reduce(empty(each.numbers), async_op=True))
    for work in works:
        work.wait()
