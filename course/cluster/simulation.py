"""Ranks that are threads of this process, one of which runs at a time, on a virtual clock.

    every rank runs up to its next call  -->  the earliest call is made  -->  ranks that it completes go on

Always the call with the smallest virtual time is made next, ties in an order shuffled by the seed, so that with the
declared clock a run is the same for the same seed, whatever the machine does meanwhile. No rank waits for anything but
its turn, so that a deadlock is seen at once: nobody has a call to make.

Each rank has a random state of its own, a copy of the caller's; a gradient mode of its own, as every thread; and its
prints come out with its number. What this is not: parallel, and separate memory. A rank that changes a tensor that
another one can reach changes it for both; inputs are therefore copied for each.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from course.cluster.communicator import Communicator
from course.cluster.ending import leave
from course.cluster.errors import RanksFailed, Stopped
from course.cluster.job import Job, Run, copied, raised
from course.cluster.ledger import Live
from course.cluster.network import Network
from course.cluster.posted import Ticket
from course.cluster.rank_output import Spoken
from course.cluster.rank_status import RETURNED, RUNNING, deadlock, late
from course.cluster.simulated_port import Rank, SimulatedPort
from course.cluster.switch import Switch
from course.cluster.topology import Topology
from course.failing import lines_of
from course.meter import KeptBytes, kept_bytes

POLL_SECONDS = 0.05  # between looks at what the ranks have printed


class Simulation:
    """One run. Whoever has the turn may touch everything here; the others wait for theirs."""

    def __init__(self, job: Job, topology: Topology, *, seed: int, measured: bool, memory: bool) -> None:
        self._job, self._measured, self._memory = job, measured, memory
        self.switch = Switch(job.ranks, network=Network(topology), seed=seed)
        self._random = random.Random(seed)
        self._ranks = [Rank(number) for number in range(job.ranks)]
        self._next: list[tuple[float, float, int, Callable[[], Ticket | None]]] = []
        self._waiting: dict[int, Rank] = {}  # by the id of the ticket
        self._now = self._ranks[0]
        self._values: list[Any] = [None] * job.ranks
        self._over = threading.Event()
        self.failed: BaseException | None = None
        self._spoken = Spoken(job.ranks)
        self._left = False
        self._unmetered = _disable_current_modes if memory else contextlib.nullcontext

    def run(self) -> Run:
        """All ranks, to their end."""
        deadline = time.monotonic() + self._job.seconds
        before = torch.get_rng_state()
        for rank in self._ranks:
            rank.turn.acquire()
            self._add(rank, lambda: None)
            rank.thread = threading.Thread(target=self._main, args=(rank,), name=f"rank {rank.number}", daemon=True)
        with self._spoken:
            try:
                for rank in self._ranks:
                    _thread(rank).start()
                self._pass_on(None)
                while not self._over.wait(min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))):
                    self._spoken.show()
                    if time.monotonic() > deadline:
                        frame = sys._current_frames().get(_thread(self._now).ident or 0)
                        self._break(late(self._job.seconds, self._now.number, lines_of(frame), self.standing()))
            except BaseException as error:  # an interrupt, or a time limit of the caller's
                self._break(error)
                raise
            finally:
                leave([_thread(rank) for rank in self._ranks], interrupt=self.failed is not None)
                self._left = True
                torch.set_rng_state(before)
        return self._result()

    def _result(self) -> Run:
        ledger = self.switch.ledger
        ledger.clocks = [rank.clock for rank in self._ranks]
        failed = self.failed or self.switch.leftovers()
        if failed is not None:
            if isinstance(failed, RanksFailed):
                failed.ledger = ledger
            raise failed
        return Run(values=self._values, ledger=ledger)

    # --- one rank's thread ---

    def _main(self, rank: Rank) -> None:
        rank.turn.acquire()
        try:
            self._resume(rank)
            everybody = tuple(range(self._job.ranks))
            comm = Communicator(SimulatedPort(self, rank), everybody, rank.number, self._job.verbs)
            with self._metered(rank):
                inputs = copied(self._job.inputs[rank.number])
                self._values[rank.number] = self._job.function(comm, *inputs)
            self.flush(rank)
            self.count(rank)
        except BaseException as error:
            if self.failed is None:
                self._break(raised(rank.number, error))
            return
        rank.returned = True
        with contextlib.suppress(Stopped):
            self._pass_on(None)

    def _metered(self, rank: Rank) -> contextlib.AbstractContextManager[object]:
        """Write down the bytes that the rank holds, whenever they change."""
        if not self._memory:
            return contextlib.nullcontext()
        live, last = self.switch.ledger.live, [-1]

        def note(meter: KeptBytes) -> None:
            if (count := meter.bytes_alive()) != last[0]:
                last[0] = count
                live.append(Live(rank.number, rank.clock, count))

        return kept_bytes(after=note)

    def make(self, rank: Rank, action: Callable[[], Ticket | None]) -> None:
        """Make a call when its time has come, and return when the ticket that it waits for is done."""
        if self.failed is not None:
            self._refuse()
        self.count(rank)
        self._add(rank, action)
        self._pass_on(rank)

    def flush(self, rank: Rank) -> None:
        """Make the calls that were begun."""
        while rank.begun:
            self.make(rank, rank.begun.pop(0).post)

    def count(self, rank: Rank) -> None:
        """Move the clock on by the processor time of the rank's own code."""
        if self._measured:
            now = time.thread_time()
            rank.clock += now - rank.counted
            rank.counted = now

    # --- whose turn it is ---

    def _add(self, rank: Rank, action: Callable[[], Ticket | None]) -> None:
        heapq.heappush(self._next, (rank.clock, self._random.random(), rank.number, action))

    def _pass_on(self, current: Rank | None) -> None:
        """Make calls, the earliest first, until one lets its rank go on; then it is that rank's turn.

        Returns when it is the turn of `current` again; at once for None, a rank that has ended.
        """
        while self._next:
            _, _, number, action = heapq.heappop(self._next)
            rank = self._ranks[number]
            try:
                with self._unmetered():
                    ticket = action()
            except RanksFailed as failure:
                self._break(failure)
                raise Stopped from None
            if ticket is not None and not ticket.done:
                rank.waits = ticket
                self._waiting[id(ticket)] = rank
            self._wake()
            if ticket is None or ticket.done:
                if ticket is not None:
                    rank.clock = max(rank.clock, ticket.end)
                self._give_turn(rank, current)
                return
        if all(rank.returned for rank in self._ranks):
            self._over.set()
        else:
            self._break(deadlock(self.standing()))
            raise Stopped

    def _wake(self) -> None:
        """Ranks whose tickets are done may go on, each at its time."""
        for ticket in self.switch.done:
            rank = self._waiting.pop(id(ticket), None)
            if rank is not None:
                rank.waits = None
                rank.clock = max(rank.clock, ticket.end)
                self._add(rank, lambda: None)
        self.switch.done.clear()

    def _give_turn(self, rank: Rank, current: Rank | None) -> None:
        if rank is current:
            return
        if current is not None:
            current.random_state = torch.default_generator.get_state()
        self._now = rank
        with contextlib.suppress(RuntimeError):  # the run was broken off this moment: everybody has a turn
            rank.turn.release()
        if current is not None:
            current.turn.acquire()
            self._resume(current)

    def _resume(self, rank: Rank) -> None:
        """The rank's own state, when it has got its turn. Raises Stopped where the run is over."""
        if self.failed is not None:
            raise Stopped
        torch.default_generator.set_state(rank.random_state)
        rank.counted = time.thread_time()

    # --- the end ---

    def _break(self, failure: BaseException) -> None:
        """End the run: every rank raises Stopped at its next call."""
        if self.failed is None:
            self.failed = failure
        self._over.set()
        for rank in self._ranks:
            with contextlib.suppress(RuntimeError):  # it has the turn already
                rank.turn.release()

    def _refuse(self) -> None:
        """Answer a call when the run is over. A thread that outlived even `leave` sleeps from its next call on."""
        if self._left:
            threading.Event().wait()
        raise Stopped

    def standing(self) -> dict[int, str]:
        """What each rank does, in words."""
        return {rank.number: self._standing(rank) for rank in self._ranks}

    def _standing(self, rank: Rank) -> str:
        if rank.returned:
            return RETURNED
        return str(rank.waits or (RUNNING if rank is self._now else "waits for its turn"))


def _thread(rank: Rank) -> threading.Thread:
    assert rank.thread is not None
    return rank.thread
