"""The trusted side of ranks that are strangers to one another: it does their collectives, and counts them.

    rank 0 --calls--> broker <--calls-- rank 1          each has a socket, and nothing else in common
             <--what it takes--     --what it takes-->

As on simulated ranks the call with the smallest virtual time is made next, and only when every rank that is not
waiting has said something: so that neither values nor costs depend on which process was faster. A rank that waits must
be silent. One that lies, floods, drips, stalls or dies ends the run with a sentence that names it; others are told.
"""

from __future__ import annotations

import heapq
import random
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from autograder.sandbox.outside.connection import Connection, stop
from autograder.sandbox.wire.rank_messages import Computed, Posted, Waits
from course.cluster.errors import RanksFailed
from course.cluster.job import rank_raised
from course.cluster.ledger import Ledger
from course.cluster.network import Network
from course.cluster.posted import Ticket
from course.cluster.rank_output import numbered
from course.cluster.rank_status import RETURNED, RUNNING, deadlock, late
from course.cluster.switch import Switch
from course.cluster.topology import fully_connected
from course.performing.exercise import Observation

MAX_CALLS = 20_000  # of all ranks together; to compute is one, too
MAX_BYTES = 256 * 2**20  # that all ranks together may send; of tensors, wherever one stands in a message


@dataclass(eq=False)
class _Rank:
    """One rank.

    clock    virtual seconds
    tickets  its calls, by number; None where it has got, or waits for, what it takes
    waits    the ticket that it waits for
    made     how many calls it has made; gave: bytes of the tensors that it gave
    """

    line: Connection
    clock: float = 0.0
    tickets: list[Ticket | None] = field(default_factory=list)
    waits: Ticket | None = None
    made: int = 0
    gave: int = 0

    @property
    def runs(self) -> bool:
        """Whether its next word is awaited: it neither waits nor has ended, nor was heard already."""
        return self.waits is None and self.line.seen is None and not self.line.said

    @property
    def listens(self) -> bool:
        """Whether it reads: it waits, or has said that it will."""
        return self.waits is not None or any(isinstance(said, Waits) for said in self.line.said)

    @property
    def standing(self) -> str:
        """What it does, in words; a call that was heard is not made before every rank has spoken."""
        if self.line.seen is not None:
            return RETURNED
        calls = [said.call for said in self.line.said if isinstance(said, Posted)]
        return str(self.waits or (f"has called {calls[0]}{calls[0].details()}" if calls else RUNNING))


class Broker:
    """One run of ranks over their sockets; each has got its part of the case, with `token`.

    verbs     that the ranks may use
    seed      shuffles what happens at the same time, as on simulated ranks
    deadline  on the monotonic clock
    """

    def __init__(
        self, socks: Sequence[socket.socket], token: str, *, verbs: Sequence[str], seed: int, deadline: float
    ) -> None:
        size = len(socks)
        self._ranks = [_Rank(Connection(number, size, sock, token)) for number, sock in enumerate(socks)]
        self._verbs, self._deadline, self._seconds = verbs, deadline, round(deadline - time.monotonic(), 3)
        self._switch = Switch(size, network=Network(fully_connected(size)), seed=seed)
        self._random = [random.Random(f"{seed} {number}") for number in range(size)]  # whoever speaks first
        self._next: list[tuple[float, float, int]] = []

    @property
    def ledger(self) -> Ledger:
        """What was sent so far."""
        self._switch.ledger.clocks = [rank.clock for rank in self._ranks]
        return self._switch.ledger

    @property
    def printed(self) -> str:
        """What the ranks that have ended had printed, line by line with their numbers."""
        said = [(number, rank.line.seen.printed) for number, rank in enumerate(self._ranks) if rank.line.seen]
        return "".join(numbered(number, line) for number, text in said for line in text.splitlines())

    @property
    def stuck(self) -> list[int]:
        """After a run that failed: ranks that did not stop when they were told to."""
        return [number for number, rank in enumerate(self._ranks) if rank.line.seen is None]

    def run(self) -> list[Observation]:
        """What each rank saw. Raises RanksFailed, after the others were told why."""
        try:
            while self.stuck:
                self._hear()
                while self._next and not any(rank.runs for rank in self._ranks):
                    self._make_next()
            left = self._switch.leftovers()
            if left is not None:
                raise left
        except RanksFailed as failure:
            failure.ledger = self.ledger
            waiting = [rank.line for rank in self._ranks if rank.listens]
            stop([rank.line for rank in self._ranks], waiting, str(failure))
            raise
        return [rank.line.seen for rank in self._ranks if rank.line.seen is not None]

    # --- hearing ---

    def _hear(self) -> None:
        """Read until every rank that runs has said something. Raises RanksFailed where none runs, or one breaks off."""
        if not any(rank.runs for rank in self._ranks):
            raise deadlock(self._standing())
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                if rank.runs or rank.waits is not None:
                    selector.register(rank.line.sock, selectors.EVENT_READ, number)
            while running := [number for number, rank in enumerate(self._ranks) if rank.runs]:
                if time.monotonic() > self._deadline:
                    raise late(self._seconds, running[0], (), self._standing())
                for key, _ in selector.select(max(0.0, self._deadline - time.monotonic())):
                    if self._listen(key.data):
                        selector.unregister(key.fileobj)

    def _listen(self, number: int) -> bool:
        """Read what has come from one rank; whether it has said something."""
        rank = self._ranks[number]
        if rank.waits is not None:
            raise rank.line.broke_silence()
        if not rank.line.hear():
            return False
        self._check_limits()
        self._announce(number)
        return bool(rank.line.said)

    def _announce(self, number: int) -> None:
        """What a rank has said comes at its time; ties in an order shuffled by the seed."""
        rank = self._ranks[number]
        if rank.line.said and rank.waits is None:
            heapq.heappush(self._next, (rank.clock, self._random[number].random(), number))

    # --- making calls ---

    def _make_next(self) -> None:
        number = heapq.heappop(self._next)[-1]
        rank = self._ranks[number]
        said = rank.line.said.popleft()
        if isinstance(said, Posted):
            self._post(rank, said)
        elif isinstance(said, Computed):
            rank.made += 1
            self._check_limits()
            self._switch.compute(number, rank.clock, said.seconds, said.label)
            rank.clock += said.seconds
        elif isinstance(said, Waits):
            self._wait(rank, said)
        else:
            rank.line.seen = said.seen
            if (error := said.seen.error) is not None:
                raise rank_raised(number, error.type, error.message, error.where)
        self._announce(number)

    def _post(self, rank: _Rank, said: Posted) -> None:
        if said.call.verb not in self._verbs:
            raise rank.line.failed("BadReply", f"may use only {', '.join(self._verbs)}, but calls {said.call.verb}")
        rank.made += 1
        rank.gave += sum(kind.bytes for kind in said.call.gives)
        self._check_limits()
        rank.tickets.append(self._switch.post(said.call, said.gives, at=rank.clock, is_async=said.is_async))
        self._wake()

    def _wait(self, rank: _Rank, said: Waits) -> None:
        ticket = rank.tickets[said.number] if said.number < len(rank.tickets) else None
        if ticket is None:
            raise rank.line.failed("BadReply", f"must wait for a call of its own, once, but waits for #{said.number}")
        if said.asks:
            rank.line.reply({"done": ticket.done and ticket.end <= rank.clock}, self._deadline)
            return
        rank.waits, rank.tickets[said.number] = ticket, None
        self._wake()

    def _wake(self) -> None:
        """Ranks that wait for a ticket that is done get what they take."""
        self._switch.done.clear()
        for rank in self._ranks:
            ticket = rank.waits
            if ticket is None or not ticket.done:
                continue
            rank.waits, since = None, rank.clock
            rank.clock = max(rank.clock, ticket.end)
            if ticket.is_async:
                self._switch.waited(ticket, since, rank.clock)
            rank.line.reply({"takes": list(ticket.takes or ()), "sender": ticket.sender or 0}, self._deadline)
            ticket.takes = None

    # --- what breaks ---

    def _check_limits(self) -> None:
        """Raises RanksFailed where all together do too much; it names the one that did most of it."""
        sent, made = [max(rank.line.bytes, rank.gave) for rank in self._ranks], [rank.made for rank in self._ranks]
        bytes_, calls = f"send more than {MAX_BYTES >> 20} MiB", f"make more than {MAX_CALLS} calls"
        for counts, most, what in ((sent, MAX_BYTES, bytes_), (made, MAX_CALLS, calls)):
            if sum(counts) > most:
                line = self._ranks[counts.index(max(counts))].line
                raise line.failed("Flood", f"and the others must not {what} together; it did most of it")

    def _standing(self) -> dict[int, str]:
        return {number: rank.standing for number, rank in enumerate(self._ranks)}
