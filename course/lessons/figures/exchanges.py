"""Who sent what to whom, step by step, from the account of a run: plain data under the picture of messages.

ledger --steps--> [[Message, Message, Collective, ...], ...]

A step is no time. Every rank begins at most one message or collective in a step, and in a later step than all that it
has received before: the order that L. Lamport calls "happened before" ("Time, clocks, and the ordering of events in a
distributed system", Comm. ACM 21(7), 1978). The steps are therefore those of the algorithm, however long its messages
take.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from course.cluster.account.ledger import Event, Ledger
from course.cluster.calls import POINT_TO_POINT, Call, Communicator

Group: TypeAlias = tuple[int, ...]


class Message(NamedTuple):
    """From one rank to another, both of the whole run. number: which one between the two, from 1."""

    src: int
    dst: int
    bytes: int
    verb: str
    number: int

    @property
    def sent(self) -> Mapping[int, int]:
        """Bytes by the rank that sends them."""
        return {self.src: self.bytes}


class Collective(NamedTuple):
    """A call of all ranks of a group. number: which one of the group, from 1; bytes: what its ranks send in all."""

    group: Group
    sent: dict[int, int]
    verb: str
    number: int
    call: Call

    @property
    def bytes(self) -> int:
        """What its ranks send in all."""
        return sum(self.sent.values())


Step: TypeAlias = list[Message | Collective]


class _Sent(NamedTuple):
    """A message that nobody has received yet."""

    src: int
    end: float
    step: int
    tag: int


def steps(ledger: Ledger) -> list[Step]:
    """What begins in each step; every message and every collective of the ledger once."""
    found: list[Step] = []
    behind: Counter[int] = Counter()  # by rank: how many steps it has behind it
    under_way: defaultdict[tuple[Communicator, int], list[_Sent]] = defaultdict(list)  # by receiver, as they were sent
    collectives = _collectives(ledger)
    for call, event in _calls(ledger):
        if event.verb == "recv":
            sent = _received(under_way[call.communicator, event.rank], call, event)
            behind[event.rank] = max(behind[event.rank], sent + 1)
        elif event.verb == "send":
            message = Message(event.rank, call.named, event.sent, event.verb, event.number)
            step = _put(message, [event.rank], found, behind)
            under_way[call.communicator, message.dst].append(_Sent(event.rank, event.end, step, call.tag))
        elif (collective := collectives.pop((call.communicator, event.number), None)) is not None:
            _put(collective, call.group, found, behind)
    return found


def _calls(ledger: Ledger) -> list[tuple[Call, Event]]:
    """In the order of their effects: a send counts when it is called, a collective at its start, a receive at its end,
    or where it was begun earlier at the end of its wait. Ties stay in the order of the ledger.
    """
    waits = {(each.rank, each.order): each.end for each in ledger.waits}
    calls = [(each.call, each) for each in ledger.events if each.call is not None]
    return sorted(calls, key=lambda pair: _moment(pair[1], waits))


def _moment(event: Event, waits: Mapping[tuple[int, int], float]) -> float:
    if event.verb == "recv":
        return max(event.end, waits.get((event.rank, event.order), 0.0))
    return event.called if event.verb == "send" else event.start


def _collectives(ledger: Ledger) -> dict[tuple[Communicator, int], Collective]:
    """By group and number, with the bytes of all ranks that the ledger knows of."""
    found: dict[tuple[Communicator, int], Collective] = {}
    for event in ledger.events:
        if event.call is not None and event.verb not in POINT_TO_POINT:
            group = event.call.group
            made = Collective(group, dict.fromkeys(group, 0), event.verb, event.number, event.call)
            found.setdefault((event.call.communicator, event.number), made).sent[event.rank] = event.sent
    return found


def _put(each: Message | Collective, ranks: Sequence[int], found: list[Step], behind: Counter[int]) -> int:
    """Into the first step that none of its ranks has behind it. Returns the step, from 0."""
    step = max(behind[rank] for rank in ranks)
    behind.update({rank: step + 1 - behind[rank] for rank in ranks})
    found.extend([] for _ in range(step + 1 - len(found)))
    found[step].append(each)
    return step


def _received(waiting: list[_Sent], call: Call, event: Event) -> int:
    """Take the message out of those that wait, and return its step; -1 where the ledger does not know it.

    A receive from anybody does not say from whom: it is the message whose end fits its own.
    """
    fitting = [each for each in waiting if each.tag == call.tag and call.peer in (None, each.src)]
    heads = {each.src: each for each in reversed(fitting)}
    if not heads:
        return -1
    sent = min(heads.values(), key=lambda each: (abs(max(each.end, event.called) - event.end), each.src))
    waiting.remove(sent)
    return sent.step
