"""What the launcher knows of ranks that are processes: their calls, which they report before they make them.

    called  --post, without tensors-->  Switch  -->  mismatch, deadlock, leftover; who sent what to whom

A rank waits when it has said that it waits for a call that the others' calls have not completed. Such a rank can say
nothing until others do; so when all ranks wait or have returned, none ever goes on. (A rank with threads of its own
that make calls is outside of this: one rank makes one call after another.)

The ledger is the ranks' claim: bytes and messages are those of the calls that they say they make, as the simulated
transport counts them, and times are seconds of the machine's clock since all were ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from course.cluster.account.ledger import Event, Ledger
from course.cluster.account.traffic import plan
from course.cluster.processes.messages import Called, RankMessage
from course.cluster.processes.torch_own import TorchCall
from course.cluster.protocol.failures import RETURNED, RUNNING, RanksFailed, deadlock
from course.cluster.protocol.matching import Switch
from course.cluster.protocol.posted import PostedCall

TORCH = "torch.distributed"


class Progress:
    """Of one run. started: when all ranks were ready, by time.monotonic.

    answers  (rank, number of its call, sender): receives that asked the launcher; the caller clears it
    """

    def __init__(self, size: int, started: float) -> None:
        self.answers: list[tuple[int, int, int]] = []
        self._started = started
        self._switch = Switch(size)
        self._clocks = [0.0] * size
        self._posted: list[list[PostedCall]] = [[] for _ in range(size)]
        self._waits: list[PostedCall | None] = [None] * size
        self._returned = [False] * size
        self._asking: dict[int, tuple[int, int]] = {}  # rank and number, by the id of the posted call
        self._ends: dict[int, float] = {}  # by the id of the call
        self._begun: defaultdict[int, dict[int, float]] = defaultdict(dict)  # by rank: since when it waits for a call

    def hear(self, rank: int, message: RankMessage) -> None:
        """Take a message of a rank. Raises RanksFailed where its call does not fit the others'."""
        at = message.at - self._started
        self._end(rank, message.ended)
        self._waits[rank] = None
        match message.what:
            case "called":
                self._call(rank, message.data, at)
            case "waits":
                self._waits[rank] = self._posted[rank][message.data]
                self._begun[rank][message.data] = at
            case "gives up":
                self._switch.waited(self._posted[rank][message.data], at, at, in_vain=True)
            case "computes":
                seconds, label = message.data
                self._switch.compute(rank, at, seconds, label)
            case "torch's":
                self._count(rank, *message.data)
            case "returned":
                self._returned[rank] = True
                self._clocks[rank] = at

    @property
    def is_asked(self) -> bool:
        """Whether a receive waits for an answer: it comes with a call of another rank."""
        return bool(self._asking)

    @property
    def all_returned(self) -> bool:
        """Whether every rank has."""
        return all(self._returned)

    def has_returned(self, rank: int) -> bool:
        """Whether this one has."""
        return self._returned[rank]

    def is_running(self, rank: int) -> bool:
        """Whether it neither waits nor has returned."""
        posted = self._waits[rank]
        return not self._returned[rank] and (posted is None or posted.done)

    def statuses(self) -> dict[int, str]:
        """What each rank does, in words."""
        return {rank: self._status(rank) for rank in range(len(self._returned))}

    def broken(self) -> RanksFailed | None:
        """Why the run cannot go on, or has ended with something left over; None where it is well."""
        if self.all_returned:
            return self._switch.leftovers()
        if any(self.is_running(rank) for rank in range(len(self._returned))):
            return None
        return deadlock(self.statuses())

    def ledger(self) -> Ledger:
        """What was called until now, in the order in which it ended."""
        ledger = self._switch.ledger
        timed = [each._replace(end=max(each.end, self._ends.get(id(each.call), 0.0))) for each in ledger.events]
        ledger.events = sorted(timed, key=lambda each: each.end)
        ledger.clocks = self._clocks
        return ledger

    def _status(self, rank: int) -> str:
        if self._returned[rank]:
            return RETURNED
        return RUNNING if self.is_running(rank) else str(self._waits[rank])

    def _call(self, rank: int, called: Called, at: float) -> None:
        call, is_async, is_asking = called
        posted = self._switch.post(call, at=at, is_async=is_async)
        if is_asking:
            self._asking[id(posted)] = (rank, len(self._posted[rank]))
        self._posted[rank].append(posted)
        if not is_async and call.verb != "send":
            self._waits[rank] = posted
        for done in self._switch.done:
            if id(done) in self._asking:
                self.answers.append((*self._asking.pop(id(done)), _sender(done)))
        self._switch.done.clear()

    def _count(self, rank: int, calls: Sequence[TorchCall], lost: int) -> None:
        """What torch.distributed itself has sent for a rank: bytes and messages as of our own calls."""
        ledger = self._switch.ledger
        ledger.uncounted += lost
        for call, at in calls:
            if call.verb == "send":
                pairs, counts = {(rank, call.named): call.gives[0].bytes}, {(rank, call.named): 1}
            else:
                whole = plan([call._replace(rank=each) for each in call.group])
                pairs = {pair: sent for pair, sent in whole.pairs.items() if pair[0] == rank}
                counts = {pair: whole.counts[pair] for pair in pairs}
            ledger.charge(pairs, counts)
            since, sent = at - self._started, sum(pairs.values())
            ledger.events.append(Event(rank, call.verb, since, since, since, sent=sent, call=call, label=TORCH))

    def _end(self, rank: int, ended: tuple[tuple[int, float], ...]) -> None:
        for number, at in ended:
            posted = self._posted[rank][number]
            self._ends[id(posted.call)] = end = at - self._started
            self._switch.waited(posted, self._begun[rank].pop(number, end), end)


def _sender(posted: PostedCall) -> int:
    assert posted.sender is not None
    return posted.call.group[posted.sender]
