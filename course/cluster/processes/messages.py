"""What a rank that is a process and its launcher tell each other, over one pipe.

    rank  --RankMessage: called, waits, computes, returned, failed ...-->  launcher
    rank  <--Command: go, sender, where, end--  launcher

A message is a claim: who must not be trusted is run by the broker.
"""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from course.cluster.calls import Call

What = Literal["ready", "called", "waits", "gives up", "computes", "torch's", "returned", "failed", "line"]


class RankMessage(NamedTuple):
    """One thing that a rank does, before it does it.

    at     when, by the clock that all processes of a machine share (time.monotonic)
    data   ready: None; called: Called; waits, gives up: the number of the call; computes: seconds and label;
           torch's: calls of torch.distributed itself, and how many more there were; returned: the pickled value;
           failed: RankFailure; line: where it is, as `failing.lines_of`
    ended  calls that have ended since the last message: number and when
    """

    what: What
    at: float
    data: Any
    ended: tuple[tuple[int, float], ...] = ()


class Called(NamedTuple):
    """A call that is made. is_asking: the launcher must say who sent what is received."""

    call: Call
    is_async: bool
    is_asking: bool


class RankFailure(NamedTuple):
    """What a rank raised, in one sentence. is_lost: others broke the connection, so that the reason lies with them."""

    message: str
    type: str
    where: tuple[str, ...]
    is_lost: bool


class Command(NamedTuple):
    """What the launcher tells a rank. sender: the receive `number` takes the next message of the rank `src`."""

    what: Literal["go", "sender", "where", "end"]
    number: int = 0
    src: int = 0


class CallLog:
    """Where a port says what its rank does: to nobody, for a rank that torchrun has started."""

    is_launched = False

    def called(self, call: Call, *, is_async: bool, is_asking: bool = False) -> int:
        """The rank makes a call; returns the number of it."""
        return 0

    def waits(self, number: int) -> None:
        """The rank waits for a call that it began."""

    def gives_up(self, number: int) -> None:
        """The rank has waited for a call that it began as long as it wanted to."""

    def ended(self, number: int) -> None:
        """The call has ended."""

    def computes(self, seconds: float, label: str) -> None:
        """The rank computes."""


class LauncherLog(CallLog):
    """To the launcher, over the rank's end of the pipe. Several threads of the rank may speak."""

    is_launched = True

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._calls = 0
        self._ended: list[tuple[int, float]] = []

    def tell(self, what: What, data: Any = None) -> None:
        """Send a message, with what has ended since the last one."""
        with self._lock:
            self._tell(what, data)

    def called(self, call: Call, *, is_async: bool, is_asking: bool = False) -> int:
        """See CallLog."""
        with self._lock:
            number = self._calls
            self._calls += 1
            self._tell("called", Called(call, is_async, is_asking))
        return number

    def waits(self, number: int) -> None:
        """See CallLog."""
        self.tell("waits", number)

    def gives_up(self, number: int) -> None:
        """See CallLog."""
        self.tell("gives up", number)

    def ended(self, number: int) -> None:
        """See CallLog. It goes with the next message."""
        self._ended.append((number, time.monotonic()))

    def computes(self, seconds: float, label: str) -> None:
        """See CallLog."""
        self.tell("computes", (seconds, label))

    def _tell(self, what: What, data: Any) -> None:
        ended, self._ended = tuple(self._ended), []
        self._pipe.send(RankMessage(what, time.monotonic(), data, ended))
