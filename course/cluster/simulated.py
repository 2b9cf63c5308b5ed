"""Ranks that are threads of this process, one of which runs at a time, on a virtual clock.

    every rank runs up to its next call  -->  the earliest call is made  -->  ranks that it completes go on

Always the call with the smallest virtual time is made next, ties in an order shuffled by the seed, so that a run is the
same for the same seed, whatever the machine does meanwhile. No rank waits for anything but its turn, so that a
deadlock is seen at once: nobody has a call to make.

Each rank has a random state of its own, a copy of the caller's; a gradient mode of its own, as every thread; and its
prints come out with its number. What this is not: parallel, and separate memory. A rank that changes a tensor that
another one can reach changes it for both; inputs are therefore copied for each.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from course.cluster.calls import Call
from course.cluster.communicator import Communicator
from course.cluster.errors import RanksFailed, Stopped
from course.cluster.job import Job, Run, raised
from course.cluster.ledger import Live, Wait
from course.cluster.network import Network
from course.cluster.spoken import Spoken
from course.cluster.standing import RETURNED, RUNNING, deadlock, told
from course.cluster.switch import Switch, Ticket
from course.cluster.topology import Topology, fully_connected
from course.errors import BadArgument
from course.failing import lines_of
from course.meter import KeptBytes, kept_bytes

Tensors = Sequence[Tensor]
CPU = torch.device("cpu")
LEAVING_SECONDS = 1.0  # for threads to end when a run is over
POLL_SECONDS = 0.05  # between looks at what the ranks have printed


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The simulated transport.

    topology  what connects the ranks; None: fully connected by links of 10 microseconds and 10 GB/s
    seed      shuffles what happens at the same time, and who is heard first by a receive from anybody
    clock     "declared": only `comm.compute` takes time; "measured": also the processor time of the ranks' own code,
              which differs from run to run
    memory    whether to write down the bytes of tensors that each rank holds; every operation takes longer then
    """

    topology: Topology | None = None
    seed: int = 0
    clock: Literal["declared", "measured"] = "declared"
    memory: bool = False

    def run(self, job: Job) -> Run:
        """See Transport. Raises BadArgument where the topology has another number of ranks."""
        topology = self.topology or fully_connected(job.ranks)
        if topology.size != job.ranks:
            raise BadArgument(f"the topology must have {job.ranks} ranks, got {topology.name} of {topology.size}")
        return _Simulation(job, topology, self).run()


@dataclass(eq=False)
class _Rank:
    """One rank. turn: held by nobody while it is its turn.

    clock     virtual seconds; its own code has been counted up to `counted` of processor time
    begun     calls that were begun: they are made at the next call, with their tensors as they are then
    waits     the ticket that it waits for
    """

    number: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    clock: float = 0.0
    counted: float = 0.0
    begun: list[_Work] = field(default_factory=list)
    waits: Ticket | None = None
    random_state: Tensor = field(default_factory=torch.get_rng_state)
    thread: threading.Thread | None = None
    returned: bool = False


class _Simulation:
    """One run. Whoever has the turn may touch everything here; the others wait for theirs."""

    def __init__(self, job: Job, topology: Topology, options: Simulated) -> None:
        self._job, self._options = job, options
        self.switch = Switch(job.ranks, network=Network(topology), seed=options.seed)
        self._random = random.Random(options.seed)
        self._ranks = [_Rank(number) for number in range(job.ranks)]
        self._next: list[tuple[float, float, int, Callable[[], Ticket | None]]] = []
        self._waiting: dict[int, _Rank] = {}  # by the id of the ticket
        self._now = self._ranks[0]
        self._values: list[Any] = [None] * job.ranks
        self._over = threading.Event()
        self.failed: BaseException | None = None
        self._spoken = Spoken(job.ranks)

    def run(self) -> Run:
        """All ranks, to their end."""
        deadline = time.monotonic() + self._job.seconds
        before = torch.get_rng_state()
        for rank in self._ranks:
            rank.turn.acquire()
            self._add(rank, lambda: None)
            rank.thread = threading.Thread(target=self._main, args=(rank,), name=f"rank {rank.number}", daemon=True)
        try:
            with self._spoken:
                for rank in self._ranks:
                    _thread(rank).start()
                self._pass_on(None)
                while not self._over.wait(min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))):
                    self._spoken.show()
                    if time.monotonic() > deadline:
                        self._break(self._late())
        except BaseException as error:  # an interrupt, or a time limit of the caller's
            self._break(error)
            raise
        finally:
            self._leave()
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

    def _main(self, rank: _Rank) -> None:
        rank.turn.acquire()
        try:
            self._resume(rank)
            everybody = tuple(range(self._job.ranks))
            comm = Communicator(_Port(self, rank), everybody, rank.number, self._job.verbs)
            with self._memory(rank):
                inputs = tree_map_only(Tensor, _copied, tuple(self._job.inputs[rank.number]))
                self._values[rank.number] = self._job.function(comm, *inputs)
            self.flush(rank)
            self._count(rank)
        except Stopped:
            return
        except BaseException as error:
            self._break(raised(rank.number, error))
            return
        rank.returned = True
        with contextlib.suppress(Stopped):
            self._pass_on(None)

    def _memory(self, rank: _Rank) -> contextlib.AbstractContextManager[object]:
        """Write down the bytes that the rank holds, whenever they change."""
        if not self._options.memory:
            return contextlib.nullcontext()
        live, last = self.switch.ledger.live, [-1]

        def note(meter: KeptBytes) -> None:
            if (count := meter.bytes_alive()) != last[0]:
                last[0] = count
                live.append(Live(rank.number, rank.clock, count))

        return kept_bytes(after=note)

    def make(self, rank: _Rank, action: Callable[[], Ticket | None], *, at: float | None = None) -> None:
        """Make a call when its time has come, and return when the ticket that it waits for is done."""
        if self.failed is not None:
            raise Stopped
        self._count(rank)
        self._add(rank, action, at=at)
        self._pass_on(rank)

    def flush(self, rank: _Rank) -> None:
        """Make the calls that were begun."""
        while rank.begun:
            self.make(rank, rank.begun.pop(0).post)

    def _count(self, rank: _Rank) -> None:
        """Move the clock on by the processor time of the rank's own code."""
        if self._options.clock == "measured":
            now = time.thread_time()
            rank.clock += now - rank.counted
            rank.counted = now

    # --- whose turn it is ---

    def _add(self, rank: _Rank, action: Callable[[], Ticket | None], *, at: float | None = None) -> None:
        when = rank.clock if at is None else at
        heapq.heappush(self._next, (when, self._random.random(), rank.number, action))

    def _pass_on(self, current: _Rank | None) -> None:
        """Make calls, the earliest first, until one lets its rank go on; then it is that rank's turn.

        Returns when it is the turn of `current` again; at once for None, a rank that has ended.
        """
        while self._next:
            _, _, number, action = heapq.heappop(self._next)
            rank = self._ranks[number]
            try:
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

    def _give_turn(self, rank: _Rank, current: _Rank | None) -> None:
        if rank is current:
            return
        if current is not None:
            current.random_state = torch.get_rng_state()
        self._now = rank
        rank.turn.release()
        if current is not None:
            current.turn.acquire()
            self._resume(current)

    def _resume(self, rank: _Rank) -> None:
        """The rank's own state, when it has got its turn. Raises Stopped where the run is over."""
        if self.failed is not None:
            raise Stopped
        torch.set_rng_state(rank.random_state)
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

    def _leave(self) -> None:
        """Wait for the threads; one that computes and never calls is interrupted."""
        deadline = time.monotonic() + LEAVING_SECONDS
        for rank in self._ranks:
            thread = _thread(rank)
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(POLL_SECONDS)  # most end by themselves; one that is just ending must not be interrupted
                if self.failed is not None and rank is self._now and thread.is_alive():
                    _interrupt(thread)

    def _late(self) -> RanksFailed:
        frame = sys._current_frames().get(_thread(self._now).ident or 0)
        where = lines_of(frame)
        at = f" ({where[-1]})" if where else ""
        return RanksFailed(
            f"the ranks must end within {self._job.seconds:g} s, but rank {self._now.number} runs without making a "
            f"call{at}; {told(self.standing())}",
            kind="TimeLimit",
            rank=self._now.number,
            where=where,
        )

    def standing(self) -> dict[int, str]:
        """What each rank does, in words."""
        return {rank.number: self._standing(rank) for rank in self._ranks}

    def _standing(self, rank: _Rank) -> str:
        if rank.returned:
            return RETURNED
        return str(rank.waits or (RUNNING if rank is self._now else "waits for its turn"))


class _Port:
    """What a simulated rank calls."""

    device = CPU

    def __init__(self, simulation: _Simulation, rank: _Rank) -> None:
        self._simulation, self._rank = simulation, rank

    def perform(self, call: Call, gives: Tensors, takes: Tensors) -> int:
        """See Port. Tensors are not copied where the rank waits until they were used."""
        self._simulation.flush(self._rank)
        work = _Work(self._simulation, self._rank, call, gives, takes, is_async=False)
        self._simulation.make(self._rank, work.post)
        return work.take()

    def begin(self, call: Call, gives: Tensors, takes: Tensors) -> _Work:
        """See Port."""
        work = _Work(self._simulation, self._rank, call, gives, takes, is_async=True)
        self._rank.begun.append(work)
        return work

    def compute(self, seconds: float, label: str) -> None:
        """See Port."""
        self._simulation.flush(self._rank)
        rank, switch = self._rank, self._simulation.switch

        def pass_time() -> None:
            switch.compute(rank.number, rank.clock, seconds, label)
            rank.clock += seconds

        self._simulation.make(rank, pass_time)
        self._simulation.make(rank, lambda: None)  # what others do meanwhile comes before what the rank does next


class _Work:
    """See protocol.Work."""

    def __init__(
        self, simulation: _Simulation, rank: _Rank, call: Call, gives: Tensors, takes: Tensors, *, is_async: bool
    ) -> None:
        self._simulation, self._rank, self._call = simulation, rank, call
        self._gives, self._takes, self._is_async = gives, takes, is_async
        self._ticket: Ticket | None = None
        self._at = rank.clock

    def post(self) -> Ticket | None:
        """Make the call, with its tensors as they are. The ticket to wait for; None where the rank goes on at once."""
        goes_on = self._is_async or self._call.verb == "send"
        given = [each.detach().clone() for each in self._gives] if goes_on else self._gives
        self._ticket = self._simulation.switch.post(self._call, given, at=self._at, is_async=self._is_async)
        return None if goes_on else self._ticket

    def take(self) -> int:
        """Write what has come."""
        assert self._ticket is not None
        for tensor, value in zip(self._takes, self._ticket.takes or (), strict=False):
            tensor.detach().copy_(value)
        self._ticket.takes = None
        return self._ticket.sender or 0

    def wait(self) -> None:
        """See Work."""
        self._simulation.flush(self._rank)
        ticket = self._ticket
        assert ticket is not None
        if ticket.takes is None and ticket.done:
            return
        started = self._rank.clock
        self._simulation.make(self._rank, lambda: ticket)
        self._simulation.switch.ledger.waits.append(Wait(self._rank.number, started, self._rank.clock, self._call.verb))
        self.take()

    def is_completed(self) -> bool:
        """See Work. Asking makes the call, and takes no virtual time."""
        self._simulation.flush(self._rank)
        self._simulation.make(self._rank, lambda: None)
        return self._ticket is not None and self._ticket.done and self._ticket.end <= self._rank.clock


def _thread(rank: _Rank) -> threading.Thread:
    assert rank.thread is not None
    return rank.thread


def _copied(tensor: Tensor) -> Tensor:
    """A tensor of the rank's own; a leaf that wants a gradient stays one."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _interrupt(thread: threading.Thread) -> None:
    """End a thread, as soon as it runs Python's own code again. Of SystemExit, threads that end say nothing."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
