"""What a simulated rank calls: its verbs go to the simulation, each at its virtual time.

comm.all_reduce(x) --> Port.perform --> Simulation.make(post)    the rank's thread returns when its turn has come
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course.cluster.calls import Call, Tensors
from course.cluster.posted import Ticket

if TYPE_CHECKING:
    from course.cluster.simulation import Simulation

CPU = torch.device("cpu")


@dataclass(eq=False)
class Rank:
    """One rank. turn: held by nobody while it is its turn.

    clock     virtual seconds; its own code has been counted up to `counted` of processor time
    begun     calls that were begun: they are made at the next call, with their tensors as they are then
    waits     the ticket that it waits for
    """

    number: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    clock: float = 0.0
    counted: float = 0.0
    begun: list[SimulatedWork] = field(default_factory=list)
    waits: Ticket | None = None
    random_state: Tensor = field(default_factory=torch.get_rng_state)
    thread: threading.Thread | None = None
    returned: bool = False


class SimulatedPort:
    """What a simulated rank calls."""

    device = CPU

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
        """See Port."""
        self._simulation.flush(self._rank)
        rank, switch = self._rank, self._simulation.switch

        def pass_time() -> None:
            switch.compute(rank.number, rank.clock, seconds, label)
            rank.clock += seconds

        self._simulation.make(rank, pass_time)
        self._simulation.make(rank, lambda: None)  # what others do meanwhile comes before what the rank does next


class SimulatedWork:
    """See protocol.Work."""

    def __init__(
        self, simulation: Simulation, rank: Rank, call: Call, gives: Tensors, takes: Tensors, *, is_async: bool
    ) -> None:
        self._simulation, self._rank, self._call = simulation, rank, call
        self._gives, self._takes, self._is_async = gives, takes, is_async
        self._ticket: Ticket | None = None
        simulation.count(rank)
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
        self._simulation.count(self._rank)
        started = self._rank.clock
        self._simulation.make(self._rank, lambda: ticket)
        self._simulation.switch.waited(ticket, started, self._rank.clock)
        self.take()

    def is_completed(self) -> bool:
        """See Work. Asking makes the call, and takes no virtual time."""
        self._simulation.flush(self._rank)
        self._simulation.make(self._rank, lambda: None)
        return self._ticket is not None and self._ticket.done and self._ticket.end <= self._rank.clock
