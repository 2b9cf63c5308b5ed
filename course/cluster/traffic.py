"""What a collective sends: the messages of the algorithm that we assume, round by round.

    all_reduce of n bytes on P ranks  -->  2 (P - 1) rounds around the ring, a chunk of n / P bytes from each rank

broadcast, reduce    along a chain from (to) the root, cut into pieces that follow one another: every link of the chain
                     carries n bytes once
reduce_scatter, all_gather, all_reduce
                     around a ring in the order of ranks: (P - 1) / P of n bytes for each of the first two, twice that
                     for the third, which is the least that any algorithm can do (P. Patarasuk and X. Yuan, "Bandwidth
                     optimal all-reduce algorithms for clusters of workstations", 2009)
gather, scatter, all_to_all
                     straight from rank to rank
barrier              ceil(log2 P) rounds of empty messages (dissemination)

A simulated or brokered rank is charged for this; on gloo and NCCL it is what the library is assumed to send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeAlias

from course.cluster.calls import Call

Pair: TypeAlias = tuple[int, int]
PIECES = 8  # a chain is pipelined: so many pieces follow one another


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The messages of one collective.

    pairs   bytes from each rank to each other
    counts  messages from each rank to each other
    rounds  how often, and the bytes that each pair sends at once: for the clock
    """

    pairs: Mapping[Pair, int]
    counts: Mapping[Pair, int]
    rounds: tuple[tuple[int, Mapping[Pair, int]], ...]

    @cached_property
    def by_rank(self) -> Mapping[int, int]:
        """Bytes that each rank sends."""
        sent: Counter[int] = Counter()
        for (src, _), size in self.pairs.items():
            sent[src] += size
        return sent


def plan(calls: Sequence[Call]) -> Plan:
    """The messages of a collective, from the calls of its ranks in the order of the group."""
    first = calls[0]
    if first.verb == "all_to_all":
        return _all_to_all(first.group, tuple(tuple(kind.bytes for kind in call.gives) for call in calls))
    return _plan(first.verb, first.group, first.peer, first.kinds[0].bytes if first.kinds else 0)


@lru_cache(maxsize=1024)
def _plan(verb: str, group: tuple[int, ...], root: int | None, size: int) -> Plan:
    """size: bytes of one tensor that a rank gives or takes; of a list, of one of its tensors."""
    count = len(group)
    after = {rank: group[(place + 1) % count] for place, rank in enumerate(group)}
    if verb == "all_reduce":
        chunks = [size // count + (place < size % count) for place in range(count)]
        kept = [chunks[(place + 1) % count] + chunks[(place + 2) % count] for place in range(count)]  # of both halves
        sent = {pair: 2 * size - kept[place] for place, pair in enumerate(after.items())}
        return _steps(sent, 2 * (count - 1), max(chunks))
    if verb in ("reduce_scatter", "all_gather"):
        return _steps(dict.fromkeys(after.items(), (count - 1) * size), count - 1, size)
    if verb in ("broadcast", "reduce"):
        start = group.index(root) if root is not None else 0
        chain = [group[(start + step) % count] for step in range(count)]
        return _chain(pairwise(chain if verb == "broadcast" else chain[::-1]), size)
    if verb in ("gather", "scatter"):
        others = [rank for rank in group if rank != root]
        ways = [(root, rank) if verb == "scatter" else (rank, root) for rank in others]
        return _at_once({(int(src or 0), int(dst or 0)): size for src, dst in ways})
    return _barrier(group)


@lru_cache(maxsize=1024)
def _all_to_all(group: tuple[int, ...], sizes: tuple[tuple[int, ...], ...]) -> Plan:
    return _at_once(
        {
            (src, dst): size
            for src, row in zip(group, sizes, strict=True)
            for dst, size in zip(group, row, strict=True)
            if src != dst
        }
    )


def _steps(pairs: dict[Pair, int], rounds: int, chunk: int) -> Plan:
    """Around the ring: in every round each rank sends a chunk to the next."""
    pairs = {pair: sent for pair, sent in pairs.items() if pair[0] != pair[1]}
    return Plan(
        pairs=pairs,
        counts=dict.fromkeys(pairs, rounds),
        rounds=((rounds, dict.fromkeys(pairs, chunk)),) if pairs else (),
    )


def _chain(links: Iterable[Pair], size: int) -> Plan:
    """Along the chain in pieces: the first piece needs a round for each link, the others follow it."""
    pairs, piece = dict.fromkeys(links, size), -(-size // PIECES)
    rounds = ((len(pairs) + PIECES - 1, dict.fromkeys(pairs, piece)),) if pairs else ()
    return Plan(pairs=pairs, counts=dict.fromkeys(pairs, PIECES), rounds=rounds)


def _at_once(pairs: dict[Pair, int]) -> Plan:
    """Every pair's message in one round, through whatever links they share."""
    return Plan(pairs=pairs, counts=dict.fromkeys(pairs, 1), rounds=((1, pairs),) if pairs else ())


def _barrier(group: tuple[int, ...]) -> Plan:
    """In round k every rank tells the one 2**k further on that it is there."""
    count = len(group)
    jumps = [2**step for step in range((count - 1).bit_length())]
    rounds = [{(rank, group[(place + jump) % count]): 0 for place, rank in enumerate(group)} for jump in jumps]
    pairs = dict.fromkeys((pair for each in rounds for pair in each), 0)
    return Plan(pairs=pairs, counts=dict.fromkeys(pairs, 1), rounds=tuple((1, each) for each in rounds))
