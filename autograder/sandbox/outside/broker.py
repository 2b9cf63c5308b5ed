"""The trusted side of ranks that are strangers to one another: it does their collectives, and counts them.

    rank 0 --calls--> broker <--calls-- rank 1          each has a socket, and nothing else in common
             <--what it takes--     --what it takes-->

Whose call is made next is the rule of `course.cluster.protocol.virtual_time`, as on simulated ranks. A call is made
only when every rank that is not waiting has said something: so that neither values nor costs depend on which process
was faster. A rank that waits must be silent. One that lies, floods, drips, stalls or dies ends the run with a sentence
that names it; others are told.
"""

from __future__ import annotations

import functools
import selectors
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from autograder.sandbox.outside.connection import Connection, stop
from autograder.sandbox.outside.kept import Kept
from autograder.sandbox.wire.rank_messages import CallMessage, Computed, Waits
from course.cluster.account.ledger import Ledger
from course.cluster.account.network import fully_connected
from course.cluster.calls import offers_groups
from course.cluster.protocol.failures import RETURNED, RUNNING, RanksFailed, deadlock, late, rank_raised
from course.cluster.protocol.posted import PostedCall
from course.cluster.protocol.rank_output import numbered
from course.cluster.protocol.virtual_time import Asks, Schedule
from course.performing.exercise import Observation
from course.tree import MAX_TEXT, Tree

MAX_CALLS = 20_000  # of all ranks together; to compute is one, too
# Bytes here at once, of what has begun to come and of what nobody has received yet: all buckets of a measured case, as
# some begin them together (three of 12 MiB on each of four ranks), and a little more.
MAX_HELD = 160 * 2**20
CALL = 4096  # bytes that a call, or what it gives, takes besides its numbers
LOOK = 8 * 2**20  # bytes that are given between two looks at what is held; equal tensors of one message come once
LOOK_SECONDS = 0.02  # between two looks at what the ranks hold
# That all ranks together may send; of tensors, wherever one stands in a message. Twice as many as a right answer in a
# measured case (240 MiB), so that one by other calls, which send more, is judged for that and no more.
MAX_BYTES = 512 * 2**20


@dataclass(eq=False)
class _Rank:
    """One rank.

    posted  its calls, by number; None where it has got, or waits for, what it takes
    asks    the call of which it asks whether it is done
    made    how many calls it has made; gave: bytes of the tensors that it gave
    value   what it returned, where it belongs to no exercise
    """

    connection: Connection
    posted: list[PostedCall | None] = field(default_factory=list)
    asks: PostedCall | None = None
    made: int = 0
    gave: int = 0
    value: Tree = None


class Broker:
    """One run of ranks over their sockets; each has got its part of the case, with `token`.

    verbs     that the ranks may use
    seed      shuffles what happens at the same time, as on simulated ranks
    deadline  on the monotonic clock; later: asked for another one when it has passed
    look      called now and then when calls are made: the ranks wait then
    kept      counts what ranks give that have ended
    returns   whether they run a function that belongs to no exercise: what it returns is in `values` then
    """

    def __init__(
        self,
        socks: Sequence[socket.socket],
        token: str,
        *,
        verbs: Sequence[str],
        seed: int,
        deadline: float,
        later: Callable[[], float],
        look: Callable[[], object] = lambda: None,
        kept: Kept,
        returns: bool = False,
    ) -> None:
        size = len(socks)
        self._ranks = [
            _Rank(Connection(number, size, sock, token, kept, returns=returns)) for number, sock in enumerate(socks)
        ]
        self._verbs, self._deadline, self._seconds = verbs, deadline, round(deadline - time.monotonic(), 3)
        self._later, self._look, self._next_look = later, look, 0.0
        self._given, self._looked = weakref.WeakValueDictionary[int, Tensor](), 0
        self._schedule = Schedule(fully_connected(size), seed=seed)

    @property
    def ledger(self) -> Ledger:
        """What was sent so far."""
        return self._schedule.ledger

    @property
    def printed(self) -> str:
        """What the ranks that have ended had printed, line by line with their numbers; not more than one text holds."""
        said = [
            (number, rank.connection.seen.printed) for number, rank in enumerate(self._ranks) if rank.connection.seen
        ]
        return "".join(numbered(number, line) for number, text in said for line in text.splitlines())[:MAX_TEXT]

    @property
    def values(self) -> list[Tree]:
        """What the ranks have returned, after the run of a function that belongs to no exercise."""
        return [rank.value for rank in self._ranks]

    @property
    def stuck(self) -> list[int]:
        """After a run that failed: ranks that did not stop when they were told to."""
        return [number for number, rank in enumerate(self._ranks) if rank.connection.seen is None]

    def died(self, number: int) -> RanksFailed:
        """The failure of a rank whose process is gone."""
        return self._ranks[number].connection.died()

    def run(self) -> list[Observation]:
        """What each rank saw. Raises RanksFailed, after the others were told why."""
        left: RanksFailed | None = None
        try:
            while self.stuck:
                self._hear()
                while not (self._schedule.is_empty or self._running()):
                    self._check_time(_most([rank.made for rank in self._ranks]))
                    self._make_next()
            left = self._schedule.switch.leftovers()
            if left is not None:
                raise left
        except RanksFailed as failure:
            failure.ledger = self.ledger
            waiting = [rank.connection for number, rank in enumerate(self._ranks) if self._reads(number)]
            stop([rank.connection for rank in self._ranks], waiting, str(failure))
            raise
        finally:  # else what nobody has received would wait until Python looks for reference cycles
            left = None  # its traceback holds this frame
            self._schedule.drop()
        return [rank.connection.seen for rank in self._ranks if rank.connection.seen is not None]

    # --- hearing ---

    def _hear(self) -> None:
        """Read until every rank that runs has said something. Raises RanksFailed where none runs, or one breaks off."""
        if not self._running():
            raise deadlock(self._statuses())
        with selectors.PollSelector() as selector:  # what epoll holds is bounded for all of a user's processes
            for number, rank in enumerate(self._ranks):
                if self._runs(number) or self._schedule.is_waiting(number):
                    selector.register(rank.connection.sock, selectors.EVENT_READ, number)
            while running := self._running():
                self._check_time(running[0])
                for key, _ in selector.select(max(0.0, self._deadline - time.monotonic())):
                    if self._listen(key.data):
                        selector.unregister(key.fileobj)

    def _listen(self, number: int) -> bool:
        """Read what has come from one rank; whether it has said something."""
        rank = self._ranks[number]
        if self._schedule.is_waiting(number):
            raise rank.connection.broke_silence()
        complete = rank.connection.hear()
        self._check_limits()
        if not complete:
            return False
        self._announce(number)
        return bool(rank.connection.said)

    def _announce(self, number: int) -> None:
        """What a rank has said is done at its time."""
        rank = self._ranks[number]
        if rank.connection.said and not self._schedule.is_waiting(number):
            said = rank.connection.said[0]
            if isinstance(said, Waits) and said.asks:
                self._schedule.add(number, Asks(functools.partial(self._asked, number), said.seconds), is_call=True)
            else:
                is_call = isinstance(said, CallMessage | Computed)  # others may see it, so that its time decides
                self._schedule.add(number, functools.partial(self._do, number), is_call=is_call)

    def _check_time(self, number: int) -> None:
        """Raises RanksFailed, which names this rank, where the time is over."""
        if time.monotonic() > self._deadline:
            self._deadline = max(self._deadline, self._later())
        if time.monotonic() > self._deadline:
            raise late(self._seconds, number, (), self._statuses())

    # --- making calls ---

    def _make_next(self) -> None:
        """Do what comes first; ranks that have waited for it get what they take, those that have asked an answer."""
        if time.monotonic() >= self._next_look:
            self._look()
            self._next_look = time.monotonic() + LOOK_SECONDS
        for number, done in self._schedule.make_next():
            rank = self._ranks[number]
            if done is not None:
                reply: Tree = {"takes": list(done.takes or ()), "sender": done.sender or 0}
                rank.connection.reply(reply)
                done.takes = None
            elif rank.asks is not None:
                is_done = rank.asks.done and rank.asks.end <= self._schedule.clocks[number]
                rank.connection.reply({"done": is_done})
                rank.asks = None
            self._announce(number)

    def _asked(self, number: int) -> PostedCall:
        """The call of which a rank asks whether it is done."""
        rank = self._ranks[number]
        said = rank.connection.said.popleft()
        assert isinstance(said, Waits)
        if said.seconds is not None:  # the ledger has a line for each
            rank.made += 1
            self._check_limits()
        rank.asks = self._call(rank, said)
        return rank.asks

    def _do(self, number: int) -> PostedCall | None:
        """What a rank has said first. The call that it waits for then."""
        rank = self._ranks[number]
        said = rank.connection.said.popleft()
        if isinstance(said, CallMessage):
            self._post(rank, said, self._schedule.clocks[number])
        elif isinstance(said, Computed):
            rank.made += 1
            self._check_limits()
            self._schedule.compute(number, said.seconds, said.label)
        elif isinstance(said, Waits):
            posted = self._call(rank, said)
            rank.posted[said.number] = None
            return posted
        else:
            rank.connection.seen, rank.value = said.seen, said.value
            if (error := said.seen.error) is not None:
                raise rank_raised(number, error.type, error.message, error.where)
        return None

    def _post(self, rank: _Rank, said: CallMessage, at: float) -> None:
        """Begin a call. A rank goes on beside it unless it waits for it at once, whatever it says."""
        if said.call.verb not in self._verbs:
            raise rank.connection.failed(
                "BadReply", f"may use only {', '.join(self._verbs)}, but calls {said.call.verb}"
            )
        if (said.call.context or len(said.call.group) < len(self._ranks)) and not offers_groups(self._verbs):
            raise rank.connection.failed("BadReply", "may make no groups, but calls in one")
        rank.made += 1
        rank.gave += said.call.bytes
        self._given.update((id(each), each) for each in said.gives)
        self._check_limits()
        after = rank.connection.said[0] if rank.connection.said else None
        waits = isinstance(after, Waits) and not after.asks and after.number == len(rank.posted)
        is_async = said.is_async or not waits
        rank.posted.append(self._schedule.switch.post(said.call, said.gives, at=at, is_async=is_async))

    def _call(self, rank: _Rank, said: Waits) -> PostedCall:
        """The call that a rank names."""
        posted = rank.posted[said.number] if said.number < len(rank.posted) else None
        if posted is None:
            raise rank.connection.failed(
                "BadReply", f"must wait for a call of its own, once, but waits for #{said.number}"
            )
        return posted

    # --- what ranks do ---

    def _runs(self, number: int) -> bool:
        """Whether its next word is awaited: it neither waits nor has ended, nor was heard already."""
        connection = self._ranks[number].connection
        return not self._schedule.is_waiting(number) and connection.seen is None and not connection.said

    def _running(self) -> list[int]:
        return [number for number in range(len(self._ranks)) if self._runs(number)]

    def _reads(self, number: int) -> bool:
        """Whether it reads: it waits, or has said that it will."""
        said = self._ranks[number].connection.said
        return self._schedule.is_waiting(number) or any(isinstance(each, Waits) for each in said)

    def _statuses(self) -> dict[int, str]:
        return {number: self._status(number) for number in range(len(self._ranks))}

    def _status(self, number: int) -> str:
        """What it does, in words; a call that was heard is not made before every rank has spoken."""
        connection = self._ranks[number].connection
        if connection.seen is not None:
            return RETURNED
        calls = [said.call for said in connection.said if isinstance(said, CallMessage)]
        heard = f"has called {calls[0]}{calls[0].details()}" if calls else RUNNING
        return self._schedule.doing(number) or heard

    # --- what breaks ---

    def _check_limits(self) -> None:
        """Raises RanksFailed where all together do too much; it names the one that did most of it."""
        sent, made = (
            [max(rank.connection.bytes, rank.gave) for rank in self._ranks],
            [rank.made for rank in self._ranks],
        )
        bytes_, calls = f"send more than {MAX_BYTES >> 20} MiB", f"make more than {MAX_CALLS} calls"
        for counts, most, what in ((sent, MAX_BYTES, bytes_), (made, MAX_CALLS, calls)):
            if sum(counts) > most:
                connection = self._ranks[_most(counts)].connection
                raise connection.failed("Flood", f"and the others must not {what} together; it did most of it")
        given = sum(sent) + CALL * sum(made)
        if given >= self._looked + LOOK:
            self._looked = given
            if self._held() > MAX_HELD:
                connection = self._ranks[_most(sent)].connection
                words = f"and the others must receive what was sent: more than {MAX_HELD >> 20} MiB wait; it sent most"
                raise connection.failed("Flood", words)

    def _held(self) -> int:
        """Bytes of ours that messages take: of what comes, what is not done yet, what was not received."""
        tensors, calls = list(self._given.values()), 0
        for rank in self._ranks:
            for said in rank.connection.said:
                tensors += said.gives if isinstance(said, CallMessage) else ()
            for posted in (each for each in rank.posted if each is not None):
                tensors += posted.takes or ()
                calls += 1
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
        objects = CALL * max(calls, len(self._given))
        return sum(storages.values()) + objects + sum(rank.connection.pending for rank in self._ranks)


def _most(counts: Sequence[int]) -> int:
    """The rank of which most is counted."""
    return counts.index(max(counts))
