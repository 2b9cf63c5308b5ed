"""The broker's connection to one rank: what it says, what it is told, and what breaks off.

Connection.hear() --> said ... ; Connection.reply(tree)

RanksFailed names the rank that lies, floods, does not read or dies.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence

from autograder.sandbox.outside.kept import Kept
from autograder.sandbox.wire import stream
from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.rank_messages import RankEnded, Said, Waits, to_said
from course.cluster.protocol.failures import FailureKind, RanksFailed
from course.performing.exercise import Observation
from course.tree import Tree

REPLY_SECONDS = 2.0  # for a rank to take what it asked for
LEAVING_SECONDS = 0.3  # for ranks that were told to stop
LEAVING_BYTES = 16 * 2**20  # of all that they had begun to say, or begin then, beside what the run still holds


class Connection:
    """One rank of `size`. said: what was heard and is not done yet; seen: its observation, when it has ended.

    kept     counts what it gives, with what others and earlier cases gave
    returns  whether it may give something besides its observation, which nobody counts
    """

    def __init__(
        self, number: int, size: int, sock: socket.socket, token: str, kept: Kept, *, returns: bool = False
    ) -> None:
        self.number, self.sock = number, sock
        self.said: deque[Said] = deque()
        self.seen: Observation | None = None
        self._size, self._reader, self._kept = size, stream.Reader(sock, token), kept
        self._returns = returns

    @property
    def bytes(self) -> int:
        """All that has come so far."""
        return self._reader.bytes

    @property
    def pending(self) -> int:
        """Bytes of a message that has come in part."""
        return self._reader.pending

    def hear(self) -> bool:
        """Read what has come; whether a message is complete. Raises RanksFailed."""
        try:
            came = self._reader.read()
            if came is not None:
                said = to_said(came[0], self.number, self._size)
                for each in said:
                    if isinstance(each, RankEnded):
                        if each.value is not None and not self._returns:
                            raise BadFrame("an observation must come alone")
                        self._kept.add(each.seen)
                self.said.extend(said)
        except stream.Closed:
            raise self.died() from None
        except BadFrame as error:
            raise self.failed("BadReply", f"must speak as its communicator does, but: {error}") from None
        return came is not None

    def broke_silence(self) -> RanksFailed:
        """The failure of a rank that waits, and whose socket is ready all the same."""
        if not self._reader.has_more():
            return self.died()
        return self.failed("BadReply", "waits and must be silent, but goes on speaking")

    def reply(self, tree: Tree) -> None:
        """Say what it takes; the rank has its time for that, however late we are. Raises RanksFailed."""
        try:
            stream.send(self.sock, tree, deadline=time.monotonic() + REPLY_SECONDS)
        except BadFrame as error:
            raise self.failed("Flood", f"must take less at once: {error}") from None
        except stream.Late:
            raise self.failed("TimeLimit", f"must take what it asked for within {REPLY_SECONDS:g} s") from None
        except stream.Closed:
            raise self.died() from None

    def died(self) -> RanksFailed:
        """The failure of a rank whose process is gone."""
        return self.failed("RankDied", "died: killed, out of memory, or it left by itself")

    def failed(self, kind: FailureKind, words: str) -> RanksFailed:
        """A failure of this rank: `rank 2 must ...`."""
        return RanksFailed(f"rank {self.number} {words}", kind=kind, rank=self.number)


def stop(connections: Sequence[Connection], waiting: Sequence[Connection], why: str) -> None:
    """Tell ranks that have not ended that the run is over: at their next call, or at once where they wait.

    What they see then is in `seen`; ranks that do not leave in time have none.
    """
    told: Tree = {"stopped": why}
    with selectors.PollSelector() as selector:
        for each in connections:
            if each.seen is None and (each not in waiting or _tell(each, told)):
                selector.register(each.sock, selectors.EVENT_READ, each)
        deadline = time.monotonic() + LEAVING_SECONDS
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if sum(each.pending for each in connections) > LEAVING_BYTES or not _leaves(key.data, told):
                    selector.unregister(key.fileobj)


def _leaves(rank: Connection, told: Tree) -> bool:
    """Whether there is more to hear from a rank that is to stop."""
    rank.said.clear()
    try:
        rank.hear()
    except RanksFailed:
        return False
    for each in rank.said:
        if isinstance(each, RankEnded):
            rank.seen = each.seen
            return False
        if isinstance(each, Waits) and not _tell(rank, told):
            return False
    return True


def _tell(rank: Connection, told: Tree) -> bool:
    try:
        stream.send(rank.sock, told, deadline=time.monotonic() + LEAVING_SECONDS)
    except (stream.Closed, stream.Late, BadFrame):
        return False
    return True
