"""Whose call is made next where time is virtual: one rule for simulated and for brokered ranks.

    add(rank, action)  -->  make_next(): the earliest is done  -->  ranks that go on, each at its time
    next_turn()        -->  the same until a rank is to run on, where one runs at a time

The earliest comes first. At the same time ranks first run on, until each has said what it does next; then their calls
are made in an order that the seed shuffles: every rank draws a number from a generator of its own, the smallest goes
first, and whose call was made draws anew. What a rank draws thus depends on the seed and on how many calls it has made,
and on nothing that a transport does differently: whether ranks take turns or run beside one another, and which was
faster. So a program has the same ledger on simulated and on brokered ranks, ties or not.

A question whether a call is done takes no time. Who asks again, and has done nothing meanwhile that others can see,
has nothing to do: its clock moves on to the next time at which something happens, so that a loop that asks until a call
is done ends. Where nothing can happen any more, a thousand such questions are answered, and then it is a deadlock.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from course.cluster.account.ledger import Ledger
from course.cluster.account.network import Network, Topology
from course.cluster.protocol.matching import Switch
from course.cluster.protocol.posted import PostedCall

# What a rank does when its time has come. It returns the call that the rank waits for then; None: it goes on at once.
Action: TypeAlias = Callable[[], PostedCall | None]
IN_VAIN = 1_000  # questions that are answered where nobody can do anything else; a loop that gives up sooner goes on


class Asks(NamedTuple):
    """What a rank does that asks whether a call is done.

    which    that call, when the rank's time has come
    seconds  that it waits for a yes; None: it wants to know at once
    """

    which: Callable[[], PostedCall]
    seconds: float | None = None


def run_on() -> None:
    """The action of a rank that runs on, up to its next call."""


class Schedule:
    """What the ranks of a run do next. Each has one action at most in here.

    clocks  virtual seconds, by rank
    waits   the call that each rank waits for; None where it does not
    """

    def __init__(self, topology: Topology, *, seed: int, is_eager: bool = True) -> None:
        size = topology.size
        self.switch = Switch(size, network=Network(topology), seed=seed, is_eager=is_eager)
        self.clocks = [0.0] * size
        self.waits: list[PostedCall | None] = [None] * size
        self._generators = [random.Random(f"{seed} {rank}") for rank in range(size)]
        self._draws = [each.random() for each in self._generators]
        self._next: list[tuple[float, bool, float, int, Action | Asks]] = []
        self._waiting: dict[int, int] = {}  # rank by the id of the call that it waits for
        self._asked: dict[int, dict[int, PostedCall]] = {}  # by rank: in vain, since it did something else
        self._rests: dict[int, float] = {}  # ranks that ask again: until when at the latest, inf where nobody knows
        self._patience: dict[int, tuple[PostedCall, float, float]] = {}  # those that wait for a yes: since, until
        self._in_vain = 0  # how often in a row those that rest have asked again, and nothing else was done

    @property
    def is_empty(self) -> bool:
        """Whether nobody has anything to do."""
        return not self._next and (not self._rests or self._in_vain >= IN_VAIN)

    @property
    def ledger(self) -> Ledger:
        """What was called until now."""
        self.switch.ledger.clocks = list(self.clocks)
        return self.switch.ledger

    def drop(self) -> None:
        """Forget what ranks were to do next: they do nothing more."""
        self._next.clear()

    def is_waiting(self, rank: int) -> bool:
        """Whether it waits for a call, or for an answer to its question."""
        return self.waits[rank] is not None or rank in self._rests

    def doing(self, rank: int) -> str:
        """`waits in recv(src=1)`, `asks whether recv(src=1) is completed`; "" where it does neither."""
        if rank in self._patience:
            return str(self._patience[rank][0])
        if rank in self._rests:
            return f"asks whether {next(iter(self._asked[rank].values())).name} is completed"
        return str(self.waits[rank] or "")

    def add(self, rank: int, action: Action | Asks, *, is_call: bool = False) -> None:
        """Have something done at the rank's time. A call may be seen by others: it waits until they have run on."""
        heapq.heappush(self._next, (self.clocks[rank], is_call, self._draws[rank], rank, action))

    def make_next(self) -> list[tuple[int, PostedCall | None]]:
        """Do what comes first. The ranks that go on then, each with the call that it has waited for.

        Raises RanksFailed where a call does not fit.
        """
        if self._rests and (until := min(self._rests.values())) <= (self._next[0][0] if self._next else math.inf):
            self._in_vain = self._in_vain + 1 if until == math.inf else 0
            return self._wake([rank for rank in self._rests if self._rests[rank] == until], until)
        at, is_call, _, rank, action = heapq.heappop(self._next)
        if is_call:
            self._draws[rank] = self._generators[rank].random()
        if isinstance(action, Asks):
            return [] if self._must_rest(rank, action.which(), action.seconds) else [(rank, None)]
        self._asked.pop(rank, None)
        waits = self.waits[rank] = action()
        if waits is not None:
            self._waiting[id(waits)] = rank
        going_on: list[tuple[int, PostedCall | None]] = [(rank, None)] if waits is None else []
        if waits is not None and waits.done:
            self.switch.done.append(waits)
        for done in self.switch.done:
            if (other := self._waiting.pop(id(done), None)) is not None:
                self._end_wait(other, done)
                going_on.append((other, done))
        self.switch.done.clear()
        if is_call:
            self._in_vain = 0
            going_on += self._rouse(at) if self._rests else []
        return going_on

    def _rouse(self, at: float) -> list[tuple[int, PostedCall | None]]:
        """Something has happened: those that rest ask again, and those that wait for a yes may have it soon."""
        for rank, (posted, _, until) in self._patience.items():
            self._rests[rank] = min(until, posted.end) if posted.done else until
        return self._wake([rank for rank in self._rests if rank not in self._patience], at)

    def next_turn(self) -> int | None:
        """Do what comes first until it is that a rank runs on: which one. None: nobody has anything to do."""
        while self._next or not self.is_empty:
            if self._next and self._next[0][-1] is run_on:
                *_, rank, _ = heapq.heappop(self._next)
                return rank
            for other, _ in self.make_next():
                self.add(other, run_on)
        return None

    def compute(self, rank: int, seconds: float, label: str) -> None:
        """A rank computes: its clock moves on."""
        self.switch.compute(rank, self.clocks[rank], seconds, label)
        self.clocks[rank] += seconds

    def _must_rest(self, rank: int, posted: PostedCall, seconds: float | None) -> bool:
        """Whether a rank asks in vain what it has asked before, or waits for a yes; it rests then."""
        now = self.clocks[rank]
        if posted.done and posted.end <= now:
            return False
        if seconds is not None:
            self._patience[rank] = posted, now, now + seconds
            self._rests[rank] = min(now + seconds, posted.end) if posted.done else now + seconds
            return True
        asked = self._asked.setdefault(rank, {})
        is_again, asked[id(posted)] = id(posted) in asked, posted
        if is_again:
            ends = [each.end for each in asked.values() if each.done and each.end > now]
            self._rests[rank] = min(ends, default=math.inf)
        return is_again

    def _wake(self, ranks: list[int], at: float) -> list[tuple[int, PostedCall | None]]:
        """Ranks that rest ask again at a time; at their own where nothing ever happens."""
        for rank in ranks:
            del self._rests[rank]
            if at < math.inf:
                self.clocks[rank] = max(self.clocks[rank], at)
            if rank in self._patience:
                posted, since, _ = self._patience.pop(rank)
                now = self.clocks[rank]
                self.switch.waited(posted, since, now, in_vain=not posted.done or posted.end > now)
        return [(rank, None) for rank in ranks]

    def _end_wait(self, rank: int, done: PostedCall) -> None:
        since, self.waits[rank] = self.clocks[rank], None
        self.clocks[rank] = max(since, done.end)
        self.switch.waited(done, since, self.clocks[rank])
