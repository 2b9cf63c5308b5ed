"""Where the ranks' calls meet: who has to wait for whom, what fits together, and what can never come.

    post(call) --> Ticket --(all calls that it needs have come)--> done, with what the rank takes

One state machine for every transport. Simulated ranks and the broker of graded ranks give it tensors, and get
tensors back; the launcher of real processes gives it the calls alone, to tell a mismatch or a deadlock while the
processes are stuck in it. It holds no thread, socket or clock of its own: `at` is the time of a call.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque

from course.cluster.calls import Call, Tensors
from course.cluster.combine import combined
from course.cluster.errors import RanksFailed
from course.cluster.ledger import COMPUTE, Event, Ledger, Wait
from course.cluster.mismatch import compare, never_joined, never_received, never_sent, never_waited, not_what_was_sent
from course.cluster.network import Network
from course.cluster.posted import Boxes, Message, Ticket
from course.cluster.traffic import plan

Group = tuple[int, ...]


class Switch:
    """The calls of `size` ranks so far.

    network  gives the times; None: every transfer takes none
    seed     decides which of several senders a receive from anybody gets
    done     tickets that were completed since the caller last looked; the caller clears it
    """

    def __init__(self, size: int, *, network: Network | None = None, seed: int = 0) -> None:
        self.ledger = Ledger(size=size)
        self.done: list[Ticket] = []
        self._network = network
        self._random = random.Random(seed)
        self._boxes: defaultdict[tuple[Group, int], Boxes] = defaultdict(Boxes)
        self._numbers: Counter[tuple[object, ...]] = Counter()
        self._met: dict[tuple[Group, int], dict[int, Ticket]] = {}
        self._begun: dict[int, Ticket] = {}  # by id: what was begun and not waited for

    def post(self, call: Call, given: Tensors | None = None, *, at: float = 0.0, is_async: bool = False) -> Ticket:
        """Begin a call. Never blocks; tickets that it completes are in `done`. Raises RanksFailed on a mismatch.

        given  the tensors of `call.gives`; they are read when the call completes, so a caller who goes on gives copies
        """
        if call.verb == "send":
            return self._send(call, given, at)
        is_received = call.verb == "recv"
        ticket = self._receive(call, at, is_async) if is_received else self._meet(call, given, at, is_async)
        if is_async:
            self._begun[id(ticket)] = ticket
        return ticket

    def waited(self, ticket: Ticket, start: float, end: float) -> None:
        """Write down that a rank waited for what it had begun."""
        if self._begun.pop(id(ticket), None) is not None:
            self.ledger.waits.append(Wait(ticket.call.rank, start, end, ticket.call.verb, ticket.order))

    def compute(self, rank: int, at: float, seconds: float, label: str) -> None:
        """Write down that a rank computes."""
        end = at + seconds
        order = self._number(rank)
        self.ledger.events.append(Event(rank, COMPUTE, called=at, start=at, end=end, label=label, order=order))

    # --- from one to another ---

    def _send(self, call: Call, given: Tensors | None, at: float) -> Ticket:
        """Done at once: it is eager."""
        src, dst = call.rank, call.named
        size = call.gives[0].bytes
        start, end = self._network.transfer(src, dst, size, at) if self._network else (at, at)
        number = self._number("send", call.group, src, dst)
        ticket = Ticket(call, at, number, self._number(src), True, given, done=True, end=at)
        self.ledger.charge({(src, dst): size}, {(src, dst): 1})
        self._write(ticket, start, end, size)
        self.done.append(ticket)
        boxes, message = self._boxes[call.group, dst], Message(ticket, start, end)
        for waiting in boxes.waiting:
            if waiting.call.peer in (None, src):
                boxes.waiting.remove(waiting)
                self._deliver(message, waiting)
                return ticket
        boxes.come.setdefault(src, deque()).append(message)
        return ticket

    def _receive(self, call: Call, at: float, is_async: bool) -> Ticket:
        ticket = Ticket(call, at, 0, self._number(call.rank), is_async, None)  # its message brings the number
        boxes = self._boxes[call.group, call.rank]
        senders = sorted(src for src, queue in boxes.come.items() if queue and call.peer in (None, src))
        if senders:
            self._deliver(boxes.come[self._random.choice(senders)].popleft(), ticket)
        else:
            boxes.waiting.append(ticket)
        return ticket

    def _deliver(self, message: Message, to: Ticket) -> None:
        sent = message.ticket
        if sent.call.gives != to.call.takes:
            raise not_what_was_sent(sent, to)
        to.sender, to.number = to.call.group.index(sent.call.rank), sent.number
        self._finish(to, sent.given, max(to.at, message.start), max(to.at, message.end), 0)

    # --- collectives ---

    def _meet(self, call: Call, given: Tensors | None, at: float, is_async: bool) -> Ticket:
        number = self._number("meet", call.group, call.rank)
        ticket = Ticket(call, at, number, self._number(call.rank), is_async, given)
        met = self._met.setdefault((call.group, number), {})
        for other in met.values():
            compare(other, ticket)
            if call.verb != "all_to_all":
                break  # the others agree with one another
        met[call.rank] = ticket
        if len(met) == len(call.group):
            del self._met[call.group, number]
            self._complete([met[rank] for rank in call.group])
        return ticket

    def _complete(self, tickets: list[Ticket]) -> None:
        """All have come: in the order of the group."""
        messages = plan([each.call for each in tickets])
        at = max(each.at for each in tickets)
        start, end = self._network.collective(messages, at) if self._network else (at, at)
        self.ledger.charge(messages.pairs, messages.counts)
        given = {each.call.rank: each.given for each in tickets if each.given is not None}
        takes = combined(tickets[0].call, given) if len(given) == len(tickets) else {}
        sent = messages.by_rank
        for each in tickets:
            self._finish(each, takes.get(each.call.rank), start, end, sent.get(each.call.rank, 0))

    def _finish(self, ticket: Ticket, takes: Tensors | None, start: float, end: float, sent: int) -> None:
        ticket.done, ticket.end, ticket.takes, ticket.given = True, end, takes, None
        self._write(ticket, start, end, sent)
        self.done.append(ticket)

    def _write(self, ticket: Ticket, start: float, end: float, sent: int) -> None:
        call = ticket.call
        self.ledger.events.append(
            Event(
                *(call.rank, call.verb, ticket.at, start, end, ticket.number, sent, call, ticket.is_async),
                order=ticket.order,
            )
        )

    def _number(self, *what: object) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    # --- what is left ---

    def leftovers(self) -> RanksFailed | None:
        """What was sent or begun and never came to anything, when all ranks have returned."""
        for boxes in self._boxes.values():
            for queue in boxes.come.values():
                if queue:
                    return never_received(queue)
            if boxes.waiting:
                return never_sent(boxes.waiting[0])
        for (group, _), met in self._met.items():
            return never_joined(next(iter(met.values())), [rank for rank in group if rank not in met])
        return never_waited(next(iter(self._begun.values()))) if self._begun else None
