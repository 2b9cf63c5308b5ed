"""Ranks that are threads of this process, one of which runs at a time, on a virtual clock.

    every rank runs up to its next call  -->  the earliest call is made  -->  ranks that it completes go on
    comm.all_reduce(x) --> SimulatedPort.perform --> Simulation.make(post)    returns when it is the rank's turn again

Whose call is the earliest, and who comes first of those at the same time, is the rule of `protocol.virtual_time`: with
the declared clock a run is the same for the same seed, whatever the machine does meanwhile. No rank waits for anything
but its turn, so that a deadlock is seen at once: nobody has a call to make.

Each rank has a random state of its own, a copy of the caller's; a gradient mode of its own, as every thread; and its
prints come out with its number. What this is not: parallel, and separate memory. A rank that changes a tensor that
another one can reach changes it for both; inputs are therefore copied for each.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from types import NoneType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from course.cluster.account.ledger import Live
from course.cluster.account.network import Topology, fully_connected
from course.cluster.calls import Call, Tensors
from course.cluster.protocol.comm import Comm
from course.cluster.protocol.failures import RETURNED, RUNNING, RanksFailed, Stopped, deadlock, late, raised
from course.cluster.protocol.posted import PostedCall
from course.cluster.protocol.rank_output import RankOutput
from course.cluster.protocol.transport import SECONDS, Program, Run, copied
from course.cluster.protocol.virtual_time import Action, Asks, Schedule, run_on
from course.cluster.simulated.ending import leave
from course.errors import BadArgument
from course.failing import lines_of
from course.meter import KeptBytes
from course.meter.kept import Call as OpCall
from course.meter.kept import Recorder

POLL_SECONDS = 0.05  # between looks at what the ranks have printed


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The simulated transport.

    topology  what connects the ranks; None: fully connected by links of 10 microseconds and 10 GB/s
    seed      shuffles what happens at the same time, and who is heard first by a receive from anybody
    clock     "declared": only `comm.compute` takes time; "measured": also the processor time of the ranks' own code,
              which differs from run to run
    send      "eager": a send is over at once, its data copied; "rendezvous": it starts when its receive is there and is
              over with it, as in torch.distributed, so that two ranks that both send first are told as a deadlock
    memory    whether to write down, after each operation of a rank, the bytes of the tensors that it holds, its
              inputs included; every operation takes longer then
    """

    topology: Topology | None = None
    seed: int = 0
    clock: Literal["declared", "measured"] = "declared"
    send: Literal["eager", "rendezvous"] = "eager"
    memory: bool = False

    def __post_init__(self) -> None:
        if self.clock not in ("declared", "measured"):
            raise BadArgument(f"clock must be declared or measured, got {self.clock!r}")
        if self.send not in ("eager", "rendezvous"):
            raise BadArgument(f"send must be eager or rendezvous, got {self.send!r}")
        if not isinstance(self.topology, (Topology, NoneType)):
            raise BadArgument(
                f"topology must be that of a ring, fully_connected, two_levels or a Topology, got {self.topology!r}; "
                "write topology=ring(4)"
            )
        if not isinstance(self.seed, Integral):
            raise BadArgument(f"seed must be a whole number, got {self.seed!r}")

    def run(self, program: Program) -> Run:
        """See Transport. Raises BadArgument where the topology has another number of ranks."""
        topology, ranks = self.topology or fully_connected(program.ranks), program.ranks
        if topology.size != ranks:
            raise BadArgument(f"the topology must have {ranks} ranks, got {topology.name} of {topology.size}")
        return Simulation(program, self, Schedule(topology, seed=self.seed, is_eager=self.send == "eager")).run()


@dataclass(eq=False)
class Rank:
    """One rank. turn: held by nobody while it is its turn.

    begun    calls that were begun: they are made at the next call, with their tensors as they are then
    counted  processor time of its thread that its clock has counted
    recorder of the tensors that it holds, where they are counted
    is_calling  whether one of its threads makes a call, and waits for its turn
    """

    number: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    begun: list[SimulatedWork] = field(default_factory=list)
    counted: float = 0.0
    recorder: _Grown | None = None
    random_state: Tensor = field(default_factory=torch.get_rng_state)
    thread: threading.Thread = field(init=False)
    is_calling: bool = False
    returned: bool = False


class _Grown(Recorder):  # type: ignore[no-untyped-call]
    """Shows the meter after ops that made a tensor. No other adds bytes, and to look takes longer than most ops."""

    def __init__(self, note: Callable[[KeptBytes], object]) -> None:
        super().__init__(KeptBytes())
        self._note = note

    def note(self, call: OpCall) -> None:
        if call.made:
            self.show()

    def show(self) -> None:
        self._note(self._meter)


class Simulation:
    """One run. Whoever has the turn may touch everything here; the others wait for theirs."""

    def __init__(self, program: Program, settings: Simulated, schedule: Schedule) -> None:
        self.schedule = schedule
        self._program, self._measured, self._memory = program, settings.clock == "measured", settings.memory
        self._ranks = [Rank(number) for number in range(program.ranks)]
        self._now = self._ranks[0]
        self._values: list[Any] = [None] * program.ranks
        self._over = threading.Event()
        self._failed: BaseException | None = None
        self._output = RankOutput(program.ranks)
        self._left = False
        # the meter counts nothing of what is done for another rank
        self._next_turn = _disable_current_modes()(schedule.next_turn) if self._memory else schedule.next_turn

    def run(self) -> Run:
        """All ranks, to their end."""
        seconds = self._program.seconds or SECONDS
        deadline = time.monotonic() + seconds
        before = torch.get_rng_state()
        for rank in self._ranks:
            rank.turn.acquire()
            self.schedule.add(rank.number, run_on)
            rank.thread = threading.Thread(target=self._main, args=(rank,), name=f"rank {rank.number}", daemon=True)
        with self._output:
            try:
                for rank in self._ranks:
                    rank.thread.start()
                self._pass_on(None)
                while not self._over.wait(min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))):
                    self._output.show()
                    if time.monotonic() > deadline:
                        where = lines_of(sys._current_frames().get(self._now.thread.ident or 0))
                        by_default = self._program.seconds is None
                        self._break(late(seconds, self._now.number, where, self._statuses(), by_default=by_default))
            except BaseException as error:  # an interrupt, or a time limit of the caller's
                self._break(error)
                raise
            finally:
                leave([rank.thread for rank in self._ranks], interrupt=self._failed is not None)
                self._left = True
                torch.set_rng_state(before)
        return self._result()

    def _result(self) -> Run:
        ledger, failed = self.schedule.ledger, self._failed or self.schedule.switch.leftovers()
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
            everybody = tuple(range(self._program.ranks))
            comm = Comm(SimulatedPort(self, rank), everybody, rank.number, self._program.verbs)
            with self._metered(rank):
                inputs = copied(self._program.inputs[rank.number])
                self._values[rank.number] = self._program.function(comm, *inputs)
            self.flush(rank)
            self.count(rank)
        except BaseException as error:
            if self._failed is None:
                self._break(raised(rank.number, error))
            return
        rank.returned = True
        with contextlib.suppress(Stopped):
            self._pass_on(None)

    def _metered(self, rank: Rank) -> contextlib.AbstractContextManager[object]:
        """Write down the bytes that the rank holds, whenever they change."""
        if not self._memory:
            return contextlib.nullcontext()
        live, last = self.schedule.switch.ledger.live, [-1]

        def note(meter: KeptBytes) -> None:
            if (count := meter.bytes_alive()) != last[0]:
                last[0] = count
                live.append(Live(rank.number, self.clock(rank), count))

        rank.recorder = _Grown(note)
        return rank.recorder

    def make(self, rank: Rank, action: Action | Asks, *, is_call: bool = True) -> None:
        """Make a call when its time has come, or wait for one that was made. Returns when the rank runs on."""
        if self._failed is not None:
            self._refuse()
        if rank.is_calling:
            raise BadArgument(
                "a rank must make one call after another, but two of its threads call at once; let one thread make all "
                "calls, and begin with isend, irecv or async_op=True what it need not wait for"
            )
        rank.is_calling = True
        try:
            if rank.recorder is not None:
                rank.recorder.show()
            self.count(rank)
            self.schedule.add(rank.number, action, is_call=is_call)
            self._pass_on(rank)
        finally:
            rank.is_calling = False

    def flush(self, rank: Rank) -> None:
        """Make the calls that were begun."""
        while rank.begun:
            self.make(rank, rank.begun.pop(0).post)

    def count(self, rank: Rank) -> None:
        """Move the clock on by the processor time of the rank's own code."""
        if self._measured:
            now = time.thread_time()
            self.schedule.clocks[rank.number] += now - rank.counted
            rank.counted = now

    def clock(self, rank: Rank) -> float:
        """Its virtual seconds."""
        return self.schedule.clocks[rank.number]

    # --- whose turn it is ---

    # One rank runs at a time, though threads could run beside one another: torch's random generator and the streams
    # are the process's own, so that two ranks that ran at once would draw and print in an order that nobody could
    # repeat. The rank that makes a call therefore looks itself for who comes next, and hands on the turn. A thread in
    # between that decided would cost two switches of threads for each call instead of one or none.

    def _pass_on(self, current: Rank | None) -> None:
        """Make calls, the earliest first, until a rank is to run on; then it is that rank's turn.

        Returns when it is the turn of `current` again; at once for None, a rank that has ended.
        """
        try:
            number = self._next_turn()
        except RanksFailed as failure:
            self._break(failure)
            raise Stopped from None
        if number is not None:
            self._give_turn(self._ranks[number], current)
        elif all(rank.returned for rank in self._ranks):
            self._over.set()
        else:
            self._break(deadlock(self._statuses()))
            raise Stopped

    def _give_turn(self, rank: Rank, current: Rank | None) -> None:
        """From the thread of `current`, which waits until it is its turn again.

        A lock that was released stays so until somebody takes it. So it does no harm that the other rank may run, and
        even give the turn back, before this one has come to wait: a condition would forget the signal.
        """
        if rank is current:
            return
        if current is not None:  # before the other rank runs, which draws from the same generator
            current.random_state = torch.default_generator.get_state()
        self._now = rank
        try:
            rank.turn.release()
        except RuntimeError:  # the run was broken off this moment: everybody has a turn
            raise Stopped from None
        if current is not None:
            current.turn.acquire()
            self._resume(current)

    def _resume(self, rank: Rank) -> None:
        """The rank's own state, when it has got its turn. Raises Stopped where the run is over."""
        if self._failed is not None:  # `_break` has let everybody go: this is no turn
            raise Stopped
        torch.default_generator.set_state(rank.random_state)
        if self._measured:
            rank.counted = time.thread_time()

    # --- the end ---

    def _break(self, failure: BaseException) -> None:
        """End the run: every rank raises Stopped at its next call."""
        if self._failed is None:
            self._failed = failure
        self._over.set()
        for rank in self._ranks:
            with contextlib.suppress(RuntimeError):  # it has the turn already
                rank.turn.release()

    def _refuse(self) -> None:
        """Answer a call when the run is over. A thread that outlived even `leave` sleeps from its next call on."""
        if self._left:
            threading.Event().wait()
        raise Stopped

    def _statuses(self) -> dict[int, str]:
        """What each rank does, in words."""
        return {rank.number: self._status(rank) for rank in self._ranks}

    def _status(self, rank: Rank) -> str:
        if rank.returned:
            return RETURNED
        return self.schedule.doing(rank.number) or (RUNNING if rank is self._now else "waits for a turn")


class SimulatedPort:
    """See Port."""

    device = torch.device("cpu")
    needs_data = False

    def __init__(self, simulation: Simulation, rank: Rank) -> None:
        self._simulation, self._rank = simulation, rank

    def perform(self, call: Call, gives: Tensors, takes: Tensors) -> int:
        """See Port. Tensors are not copied where the rank waits until they were used."""
        self._simulation.flush(self._rank)
        work = SimulatedWork(self._simulation, self._rank, call, gives, takes, is_async=False)
        self._simulation.make(self._rank, work.post)
        return work.take()

    def begin(self, call: Call, gives: Tensors, takes: Tensors) -> SimulatedWork:
        """See Port."""
        work = SimulatedWork(self._simulation, self._rank, call, gives, takes, is_async=True)
        self._rank.begun.append(work)
        return work

    def compute(self, seconds: float, label: str) -> None:
        """See Port. What others do meanwhile comes before what the rank does next."""
        self._simulation.flush(self._rank)
        self._simulation.make(self._rank, lambda: self._simulation.schedule.compute(self._rank.number, seconds, label))


class SimulatedWork:
    """See protocol.work.Pending."""

    def __init__(
        self, simulation: Simulation, rank: Rank, call: Call, gives: Tensors, takes: Tensors, *, is_async: bool
    ) -> None:
        self._simulation, self._rank, self._call = simulation, rank, call
        self._gives, self._takes, self._is_async = gives, takes, is_async
        self._posted: PostedCall | None = None
        self.sender = 0
        simulation.count(rank)
        self._at = simulation.clock(rank)

    def post(self) -> PostedCall | None:
        """Make the call, with its tensors as they are. What the rank waits for; None where it goes on at once."""
        switch, is_send = self._simulation.schedule.switch, self._call.verb == "send"
        goes_on = self._is_async or (is_send and switch.is_eager)
        given = [_dense(each) for each in self._gives] if self._call.has_data else None
        if given is not None and (goes_on or is_send):
            given = [each.clone() for each in given]
        self._posted = switch.post(self._call, given, at=self._at, is_async=self._is_async)
        return None if goes_on else self._posted

    def take(self) -> int:
        """Write what has come."""
        posted = self._made()
        for tensor, value in zip(self._takes, posted.takes or (), strict=False):
            tensor.detach().copy_(value)
        posted.takes, self.sender = None, posted.sender or 0
        return self.sender

    def wait(self, seconds: float | None = None) -> bool:
        """See Pending."""
        if seconds is not None and not self._is_done(seconds):
            return False
        self._simulation.flush(self._rank)
        self._simulation.make(self._rank, lambda: self._posted, is_call=False)
        self.take()
        return True

    def is_completed(self) -> bool:
        """See Pending. Asking makes the call."""
        return self._is_done(None) and self.wait()

    def _is_done(self, seconds: float | None) -> bool:
        self._simulation.flush(self._rank)
        self._simulation.make(self._rank, Asks(self._made, seconds))
        posted = self._made()
        return posted.done and posted.end <= self._simulation.clock(self._rank)

    def _made(self) -> PostedCall:
        assert self._posted is not None
        return self._posted


def _dense(tensor: Tensor) -> Tensor:
    """Its values alone: a class that each rank has defined for itself is another one for the other ranks."""
    values = tensor.detach()
    return values if type(values) is Tensor else values.as_subclass(Tensor)
