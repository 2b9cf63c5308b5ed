"""Whose call is made next where time is virtual: one rule for simulated and for brokered ranks.

    add(rank, action)  -->  make_next(): the earliest is done  -->  ranks that go on, each at its time
    next_turn()        -->  the same until a rank is to run on, where one runs at a time

The earliest comes first. At the same time ranks first run on, until each has said what it does next; then their calls
are made in an order that the seed shuffles: every rank draws a number from a generator of its own, the smallest goes
first, and whose call was made draws anew. What a rank draws thus depends on the seed and on how many calls it has made,
and on nothing that a transport does differently: whether ranks take turns or run beside one another, and which was
faster. So a program has the same ledger on simulated and on brokered ranks, ties or not.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TypeAlias

from course.cluster.account.ledger import Ledger
from course.cluster.account.network import Network, Topology
from course.cluster.protocol.matching import Switch
from course.cluster.protocol.posted import PostedCall

# What a rank does when its time has come. It returns the call that the rank waits for then; None: it goes on at once.
Action: TypeAlias = Callable[[], PostedCall | None]


def run_on() -> None:
    """The action of a rank that runs on, up to its next call."""


class Schedule:
    """What the ranks of a run do next. Each has one action at most in here.

    clocks  virtual seconds, by rank
    waits   the call that each rank waits for; None where it does not
    """

    def __init__(self, topology: Topology, *, seed: int) -> None:
        size = topology.size
        self.switch = Switch(size, network=Network(topology), seed=seed)
        self.clocks = [0.0] * size
        self.waits: list[PostedCall | None] = [None] * size
        self._generators = [random.Random(f"{seed} {rank}") for rank in range(size)]
        self._draws = [each.random() for each in self._generators]
        self._next: list[tuple[float, bool, float, int, Action]] = []
        self._waiting: dict[int, int] = {}  # rank by the id of the call that it waits for

    @property
    def is_empty(self) -> bool:
        """Whether nobody has anything to do."""
        return not self._next

    @property
    def ledger(self) -> Ledger:
        """What was called until now."""
        self.switch.ledger.clocks = list(self.clocks)
        return self.switch.ledger

    def add(self, rank: int, action: Action, *, is_call: bool = False) -> None:
        """Have something done at the rank's time. A call may be seen by others: it waits until they have run on."""
        heapq.heappush(self._next, (self.clocks[rank], is_call, self._draws[rank], rank, action))

    def make_next(self) -> list[tuple[int, PostedCall | None]]:
        """Do what comes first. The ranks that go on then, each with the call that it has waited for.

        Raises RanksFailed where a call does not fit.
        """
        _, is_call, _, rank, action = heapq.heappop(self._next)
        if is_call:
            self._draws[rank] = self._generators[rank].random()
        waits = self.waits[rank] = action()
        if waits is not None:
            self._waiting[id(waits)] = rank
        going_on: list[tuple[int, PostedCall | None]] = [(rank, None)] if waits is None else []
        for done in (*self.switch.done, *([waits] if waits is not None and waits.done else [])):
            if (other := self._waiting.pop(id(done), None)) is not None:
                self._end_wait(other, done)
                going_on.append((other, done))
        self.switch.done.clear()
        return going_on

    def next_turn(self) -> int | None:
        """Do what comes first until it is that a rank runs on: which one. None: nobody has anything to do."""
        while self._next:
            *_, rank, action = self._next[0]
            if action is run_on:
                heapq.heappop(self._next)
                return rank
            for other, _ in self.make_next():
                self.add(other, run_on)
        return None

    def compute(self, rank: int, seconds: float, label: str) -> None:
        """A rank computes: its clock moves on."""
        self.switch.compute(rank, self.clocks[rank], seconds, label)
        self.clocks[rank] += seconds

    def _end_wait(self, rank: int, done: PostedCall) -> None:
        since, self.waits[rank] = self.clocks[rank], None
        self.clocks[rank] = max(since, done.end)
        self.switch.waited(done, since, self.clocks[rank])
