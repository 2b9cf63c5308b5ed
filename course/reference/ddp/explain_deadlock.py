"""Whose program is not that of the others, from what all ranks had called when nothing moved any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def explain_deadlock(trace: Sequence[Sequence[dict[str, Any]]]) -> tuple[int, int, str]:
    """Lists are compared place by place, as rank 0 would have made the calls; then what follows tells the reason."""
    size = len(trace)
    lists = [[_from_rank_0(call, rank, size) for call in calls] for rank, calls in enumerate(trace)]
    for index, calls in enumerate(zip(*lists, strict=False)):
        usual = Counter(calls).most_common(1)[0][0]  # of two that differ it is the first, rank 0's
        for rank, call in enumerate(calls):
            if call != usual:
                return rank, index, _reason(lists[rank][index:], lists[calls.index(usual)][index:])
    raise ValueError("the ranks must differ in a call that all have come to, but make the same ones")


def _reason(mine: list[Any], right: list[Any]) -> str:
    """From the first call that differs on."""
    if mine[:2] == [right[1], right[0]] and _agree(mine[2:], right[2:]):  # b a c, not b a: a may be left out of a b a
        return "wrong order"
    if _agree(mine, right[1:]):
        return "missing call"
    if _agree(mine[1:], right):
        return "extra call"
    parts = ("verb", "peer", "root", "shape", "op")
    return next(f"wrong {name}" for name, a, b in zip(parts, mine[0], right[0], strict=True) if a != b)


def _agree(some: list[Any], others: list[Any]) -> bool:
    """As far as both go."""
    return all(a == b for a, b in zip(some, others, strict=False))


def _from_rank_0(call: dict[str, Any], rank: int, size: int) -> tuple[Any, ...]:
    """Verb, peer as a distance on the ring, root, shape and op."""
    peer, is_message = call["peer"], call["verb"] in ("send", "recv")
    distance = (peer - rank) % size if is_message else None
    shape = None if call["shape"] is None else tuple(call["shape"])
    return call["verb"], distance, None if is_message else peer, shape, call["op"]
