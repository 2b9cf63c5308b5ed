"""The broker's connection to one rank: what it says, what it is told, and what breaks off.

Line.hear() --> said ... ; Line.reply(tree)       RanksFailed names the rank that lies, floods, does not read or dies
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence

from autograder.sandbox.outside.incoming import Incoming
from autograder.sandbox.wire import wire
from autograder.sandbox.wire.rank_messages import Ended, Said, Waits, to_said
from course.cluster.protocol.failures import FailureKind, RanksFailed
from course.performing.exercise import Observation
from course.tree import Tree

REPLY_SECONDS = 2.0  # for a rank to take what it asked for
LEAVING_SECONDS = 0.3  # for ranks that were told to stop


class Line:
    """One rank of `size`. said: what was heard and is not done yet; seen: its observation, when it has ended."""

    def __init__(self, number: int, size: int, sock: socket.socket, token: str) -> None:
        self.number, self.sock = number, sock
        self.said: deque[Said] = deque()
        self.seen: Observation | None = None
        self._size, self._incoming = size, Incoming(sock, token)

    @property
    def bytes(self) -> int:
        """All that has come so far."""
        return self._incoming.bytes

    def hear(self) -> bool:
        """Read what has come; whether a message is complete. Raises RanksFailed."""
        try:
            tree = self._incoming.read()
            self.said.extend(to_said(tree, self.number, self._size) if tree is not None else ())
        except wire.Ended:
            raise self.died() from None
        except wire.BadFrame as error:
            raise self.failed("BadReply", f"must speak as its communicator does, but: {error}") from None
        return tree is not None

    def broke_silence(self) -> RanksFailed:
        """The failure of a rank that waits, and whose socket is ready all the same."""
        if not self._incoming.has_more():
            return self.died()
        return self.failed("BadReply", "waits and must be silent, but goes on speaking")

    def reply(self, tree: Tree, deadline: float) -> None:
        """Say what it takes. Raises RanksFailed."""
        try:
            wire.send(self.sock, tree, deadline=min(deadline, time.monotonic() + REPLY_SECONDS))
        except wire.BadFrame as error:
            raise self.failed("Flood", f"must take less at once: {error}") from None
        except wire.Late:
            raise self.failed("TimeLimit", f"must take what it asked for within {REPLY_SECONDS:g} s") from None
        except wire.Ended:
            raise self.died() from None

    def died(self) -> RanksFailed:
        """The failure of a rank whose process is gone."""
        return self.failed("RankDied", "died: killed, out of memory, or it left by itself")

    def failed(self, kind: FailureKind, words: str) -> RanksFailed:
        """A failure of this rank: `rank 2 must ...`."""
        return RanksFailed(f"rank {self.number} {words}", kind=kind, rank=self.number)


def stop(lines: Sequence[Line], waiting: Sequence[Line], why: str) -> None:
    """Tell ranks that have not ended that the run is over: at their next call, or at once where they wait.

    What they see then is in `seen`; ranks that do not leave in time have none.
    """
    told: Tree = {"stopped": why}
    with selectors.DefaultSelector() as selector:
        for line in lines:
            if line.seen is None and (line not in waiting or _tell(line, told)):
                selector.register(line.sock, selectors.EVENT_READ, line)
        deadline = time.monotonic() + LEAVING_SECONDS
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if not _leaves(key.data, told):
                    selector.unregister(key.fileobj)


def _leaves(line: Line, told: Tree) -> bool:
    """Whether there is more to hear from a rank that is to stop."""
    line.said.clear()
    try:
        line.hear()
    except RanksFailed:
        return False
    for each in line.said:
        if isinstance(each, Ended):
            line.seen = each.seen
            return False
        if isinstance(each, Waits) and not _tell(line, told):
            return False
    return True


def _tell(line: Line, told: Tree) -> bool:
    try:
        wire.send(line.sock, told, deadline=time.monotonic() + LEAVING_SECONDS)
    except (wire.Ended, wire.Late, wire.BadFrame):
        return False
    return True
