"""What a run did and what it cost: plain data, from which figures and grades are made.

    ledger.bytes_sent(rank), ledger.sent[src, dst], ledger.makespan, ledger.events ...
    costs(ledger)  -->  the ledger entries of an observation

Times are seconds of the virtual clock on simulated and brokered ranks, and of a real clock on the others. Bytes of
collectives are those of the algorithm that `traffic.py` assumes.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor

from course.cluster.calls import Call
from course.errors import BadArgument
from course.tree import MAX_TEXT, Leaf

COMPUTE = "compute"


class Event(NamedTuple):
    """One thing that one rank did.

    verb      of its call, or "compute"
    called    when the rank made the call; start: when the transfer began; end: when it was over
    number    which message between the two, or which collective of the group it is, from 1
    sent      bytes that this rank sent for it
    call      None for compute
    is_async  the rank went on at once: it was begun with async_op, isend or irecv, or is an eager send
    label     of what was computed; "torch.distributed" where a script called it without a communicator
    order     which of the rank's events it is, in the order of its calls, from 1
    """

    rank: int
    verb: str
    called: float
    start: float
    end: float
    number: int = 0
    sent: int = 0
    call: Call | None = None
    is_async: bool = False
    label: str = ""
    order: int = 0


class Wait(NamedTuple):
    """A rank waits for something that it had begun: from `start` to `end`, maybe in vain. order: of its Event."""

    rank: int
    start: float
    end: float
    verb: str
    order: int = 0
    in_vain: bool = False


class Live(NamedTuple):
    """Bytes of tensors that a rank holds from `time` on."""

    rank: int
    time: float
    bytes: int


@dataclass(kw_only=True, repr=False)
class Ledger:
    """The account of a run.

    events    in the order in which they came about: a collective when its last rank had called
    waits     for verbs that were begun with async_op, isend or irecv
    live      bytes held over time, where they were measured
    sent      bytes by (from, to); messages: their number by (from, to)
    clocks    when each rank ended
    uncounted collectives of torch.distributed itself that are missing here, because there were too many to hold
    """

    size: int
    events: list[Event] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    messages: Counter[tuple[int, int]] = field(default_factory=Counter)
    clocks: list[float] = field(default_factory=list)
    uncounted: int = 0

    def __repr__(self) -> str:
        messages, sent = sum(self.messages.values()), sum(self.sent.values())
        more = f"; {self.uncounted:,} collectives of torch's own not counted" if self.uncounted else ""
        return f"<{self.size} ranks: {messages:,} messages, {sent:,} bytes, {self.makespan:.3g} s{more}>"

    @property
    def makespan(self) -> float:
        """When the last rank ended, in seconds."""
        return max(self.clocks, default=0.0)

    def bytes_sent(self, rank: int) -> int:
        """Bytes that a rank sent to all others."""
        return sum(size for (src, _), size in self.sent.items() if src == rank)

    def largest(self) -> list[int]:
        """The most bytes that each rank sent in one call."""
        return [max((each.sent for each in self.events if each.rank == rank), default=0) for rank in range(self.size)]

    def messages_sent(self, rank: int) -> int:
        """Messages that a rank sent to all others."""
        return sum(count for (src, _), count in self.messages.items() if src == rank)

    def peers(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank sent messages to."""
        return tuple(sorted(dst for (src, dst), count in self.messages.items() if src == rank and count))

    def calls(self, rank: int) -> list[str]:
        """The verbs that a rank called, in order of the calls."""
        return self.orders()[rank] if 0 <= rank < self.size else []

    def orders(self) -> list[list[str]]:
        """The verbs that each rank called, in order of its calls."""
        found: list[list[str]] = [[] for _ in range(self.size)]
        for each in sorted(self.events, key=lambda each: (each.called, each.order)):
            if each.call is not None:
                found[each.rank].append(each.verb)
        return found

    def peak_bytes(self, rank: int) -> int:
        """The most that a rank held at once; 0 where it was not measured."""
        return max((each.bytes for each in self.live if each.rank == rank), default=0)

    def charge(self, pairs: Mapping[tuple[int, int], int], counts: Mapping[tuple[int, int], int]) -> None:
        """Add bytes and messages by (from, to)."""
        for pair, size in pairs.items():  # for one message Counter.update takes five times as long
            self.sent[pair] += size
        for pair, count in counts.items():
            self.messages[pair] += count


def checked(ledger: Ledger) -> Ledger:
    """The ledger that a figure is to be drawn of. Raises BadArgument where it is none: a Run, for one."""
    if not isinstance(ledger, Ledger):
        raise BadArgument(f"a figure needs the ledger of a run, run.ledger, got {ledger!r}")
    return ledger


def costs(ledger: Ledger) -> dict[str, Leaf]:
    """What a run cost, as plain tensors, numbers and strings by name.

    Messages of no bytes, and which verb, group, tag or peer is chosen, can carry values, too: whoever limits bytes
    should limit messages as well. What a rank computes, and when, is its own claim, and the makespan rests on it.

    bytes, messages       int64, (ranks, ranks): from row to column
    bytes_sent            int64, (ranks,)
    largest               int64, (ranks,): the most bytes that each rank sent in one call
    calls/all_reduce ...  int64, (ranks,): how often each rank called a verb; a verb that nobody called is absent
    order/0 ...           the verbs of each rank in order, "send recv send", cut where it is long
    began/all_reduce ...  float64, (ranks,): when each rank first called a verb, in virtual seconds; inf: it never did
    computed, computed_at float64, (ranks,): seconds that each rank has computed, and when it had done so; 0 without
    open/all_gather ...   int64, (ranks,): the most calls of a verb, begun and not waited for, beside which each rank
                          began to compute; absent where nobody computes, or begins such a call without waiting
    makespan              float: when the last rank ended, in virtual seconds
    live_bytes            int64, (ranks,): the most that each rank held at once; absent where it was not measured
    """
    size = ledger.size
    sent = _matrix(ledger.sent, size)
    found: dict[str, Leaf] = {
        "bytes": sent,
        "messages": _matrix(ledger.messages, size),
        "bytes_sent": sent.sum(1),
        "largest": torch.tensor(ledger.largest()),
        "makespan": ledger.makespan,
    }
    if ledger.live:
        found["live_bytes"] = torch.tensor([ledger.peak_bytes(rank) for rank in range(size)])
    calls = [each for each in ledger.events if each.call is not None]
    computed = [each for each in ledger.events if each.call is None]
    if computed:
        found["computed"] = _by_rank(size, ((each.rank, each.end - each.start) for each in computed), add, 0.0)
        found["computed_at"] = _by_rank(size, ((each.rank, each.end) for each in computed), max, 0.0)
        for verb in sorted({each.verb for each in calls if each.is_async} - {"send"}):
            found[f"open/{verb}"] = torch.tensor([_most_open(ledger, verb, rank) for rank in range(size)])
    orders = ledger.orders()
    counted = [Counter(order) for order in orders]
    for verb in sorted({verb for order in orders for verb in order}):
        found[f"calls/{verb}"] = torch.tensor([each[verb] for each in counted])
        called = ((each.rank, each.called) for each in calls if each.verb == verb)
        found[f"began/{verb}"] = _by_rank(size, called, min, math.inf)
    for rank, order in enumerate(orders):
        found[f"order/{rank}"] = " ".join(order)[:MAX_TEXT]
    return found


def _most_open(ledger: Ledger, verb: str, rank: int) -> int:
    """How many calls of a verb the rank has at most begun, and not yet waited for, when it computes."""
    mine = sorted((each for each in ledger.events if each.rank == rank), key=lambda each: each.order)
    waits = sorted(
        (each.order, each.start) for each in ledger.waits if (each.rank, each.verb) == (rank, verb) and not each.in_vain
    )
    begun, at, most = 0, 0, 0
    waited: list[float] = []  # when it began to wait for those begun before, in order
    for each in mine:
        begun += each.is_async and each.verb == verb
        if each.call is None:
            while at < len(waits) and waits[at][0] < each.order:
                bisect.insort(waited, waits[at][1])
                at += 1
            most = max(most, begun - bisect.bisect_right(waited, each.start))
    return most


def _by_rank(
    size: int, times: Iterable[tuple[int, float]], combine: Callable[[float, float], float], empty: float
) -> Tensor:
    """The times of each rank combined, float64 of shape (ranks,)."""
    found = [empty] * size
    for rank, time in times:
        found[rank] = combine(found[rank], time)
    return torch.tensor(found, dtype=torch.float64)


def _matrix(counts: Mapping[tuple[int, int], int], size: int) -> Tensor:
    matrix = torch.zeros(size, size, dtype=torch.int64)
    for (src, dst), count in counts.items():
        matrix[src, dst] = count
    return matrix
