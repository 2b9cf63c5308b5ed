"""What a collective sends: the messages of the algorithm that we assume, round by round.

    all_reduce of n bytes on P ranks  -->  2 (P - 1) rounds around the ring, a chunk of n / P bytes from each rank

broadcast, reduce    along a chain from (to) the root, through which the n bytes stream: each link carries n
reduce_scatter, all_gather, all_reduce
                     around a ring in the order of ranks. With n bytes in all pieces together, (P - 1) / P of n bytes
                     from each rank for the first two, twice that for the third: where only ranks add, no algorithm lets
                     the busiest rank send less (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
                     clusters of workstations", J. Parallel Distrib. Comput. 69(2), 2009)
gather, scatter, all_to_all
                     straight from rank to rank
barrier              ceil(log2 P) rounds of empty messages (dissemination: D. Hensgen, R. Finkel and U. Manber, "Two
                     algorithms for barrier synchronization", Int. J. Parallel Programming 17(1), 1988)

Chunks of an all_reduce are whole elements, those of `torch.tensor_split`. Rank i sends chunk i first, so that it never
sends chunk i + 1 in the first half, nor i + 2 in the second; a ring that begins elsewhere sends the same in total,
spread differently over the ranks where the chunks are not equal.

A simulated or brokered rank is charged for this, and so is the account of gloo and NCCL: it is this model, not what the
library sends, which chooses among algorithms by itself.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The messages of one collective. Equal calls have the same plan.

    pairs   bytes from each rank to each other
    counts  messages from each rank to each other
    rounds  how often, and the bytes that each pair sends at once: for the clock
    chain   the pairs of a round follow one another, and the bytes stream through all of them
    """

    pairs: Mapping[Pair, int]
    counts: Mapping[Pair, int]
    rounds: tuple[tuple[int, Mapping[Pair, int]], ...]
    chain: bool = False

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
    size, item = (first.kinds[0].bytes, first.kinds[0].dtype.itemsize) if first.kinds else (0, 1)
    return _plan(first.verb, first.group, first.peer, size, item)


@lru_cache(maxsize=1024)
def _plan(verb: str, group: tuple[int, ...], root: int | None, size: int, item: int) -> Plan:
    """size, item: bytes of one tensor that a rank gives or takes (of a list: of one in it), and of an element."""
    count = len(group)
    after = {rank: group[(place + 1) % count] for place, rank in enumerate(group)}
    if verb == "all_reduce":
        elements = size // item
        chunks = [item * (elements // count + (place < elements % count)) for place in range(count)]
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
    pairs = dict.fromkeys(links, size)
    rounds = ((1, pairs),) if pairs else ()
    return Plan(pairs=pairs, counts=dict.fromkeys(pairs, 1), rounds=rounds, chain=True)


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
