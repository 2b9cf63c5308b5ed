"""What a rank that is a process and its launcher tell each other, over two pipes.

    rank  --calls: called, waits, gives up, computes-->  launcher, which looks there at most every few milliseconds
    rank  --pipe: ready, asks, returned, failed ...-->  launcher, which is woken by it
    rank  <--pipe: go, sender, where, end--  launcher

A rank writes down each call before it makes it, and the kernel keeps what a rank has written when the rank dies. A
launcher that was woken by each call would take longer than the call, on a core that the ranks need.

A message is a claim: who must not be trusted is run by the broker.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from course.cluster.calls import Call

What = Literal["ready", "asks", "called", "waits", "gives up", "computes", "torch's", "returned", "failed", "line"]
CHUNK = 1 << 16
LENGTH = 4  # bytes before each message in `calls`, which say how long it is


class RankMessage(NamedTuple):
    """One thing that a rank does, before it does it.

    at     when, by the clock that all processes of a machine share (time.monotonic)
    data   ready, asks: None; called: Called; waits, gives up: the number of the call; computes: seconds and label;
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
    """To the launcher, over the rank's ends of both pipes. Several threads of the rank may speak."""

    is_launched = True

    def __init__(self, pipe: Connection, calls: Connection) -> None:
        self._pipe, self._file = pipe, calls.fileno()
        self._calls = calls  # it closes its file when nobody keeps it
        self._lock = threading.Lock()
        self._count = 0
        self._known: dict[int, tuple[int, Call]] = {}  # by id, which no other call gets while this one is kept
        self._ended: list[tuple[int, float]] = []

    def tell(self, what: What, data: Any = None) -> None:
        """Wake the launcher with a message, with what has ended since the last one."""
        with self._lock:
            self._pipe.send(RankMessage(what, time.monotonic(), data, self._taken()))

    def called(self, call: Call, *, is_async: bool, is_asking: bool = False) -> int:
        """See CallLog. A call that was made before goes as a number."""
        with self._lock:
            number, self._count = self._count, self._count + 1
            known = self._known.get(id(call))
            if known is None:
                self._known[id(call)] = (len(self._known), call)
            self._write("called", (known[0] if known else call, is_async, is_asking))
        if is_asking:
            self.tell("asks")
        return number

    def waits(self, number: int) -> None:
        """See CallLog."""
        self._note("waits", number)

    def gives_up(self, number: int) -> None:
        """See CallLog."""
        self._note("gives up", number)

    def ended(self, number: int) -> None:
        """See CallLog. It goes with the next message."""
        with self._lock:
            self._ended.append((number, time.monotonic()))

    def computes(self, seconds: float, label: str) -> None:
        """See CallLog."""
        self._note("computes", (seconds, label))

    def _note(self, what: What, data: Any) -> None:
        with self._lock:
            self._write(what, data)

    def _write(self, what: What, data: Any) -> None:
        message = pickle.dumps((what, time.monotonic(), data, self._taken()))
        left = len(message).to_bytes(LENGTH, "little") + message
        while left:  # a pipe may take a part of what is longer than a page
            left = left[os.write(self._file, left) :]

    def _taken(self) -> tuple[tuple[int, float], ...]:
        ended, self._ended = tuple(self._ended), []
        return ended


class CallReader:
    """The launcher's end of the pipe `calls` of one rank."""

    def __init__(self, calls: Connection) -> None:
        self._calls, self._come, self._known = calls, b"", list[Call]()
        self.is_open = True
        os.set_blocking(calls.fileno(), False)

    def fileno(self) -> int:
        """To wait for it."""
        return self._calls.fileno()

    def close(self) -> None:
        """Read no more."""
        self._calls.close()

    def messages(self) -> list[RankMessage]:
        """What has come since the last time; it waits for nothing."""
        with contextlib.suppress(BlockingIOError):  # there is no more
            while self.is_open:
                chunk = os.read(self.fileno(), CHUNK)
                self._come += chunk
                self.is_open = bool(chunk)
        found, at = list[RankMessage](), 0
        while (end := at + LENGTH) <= len(self._come):
            length = int.from_bytes(self._come[at:end], "little")
            if end + length > len(self._come):
                break  # the rest is on its way
            found.append(self._message(*pickle.loads(self._come[end : end + length])))
            at = end + length
        self._come = self._come[at:]
        return found

    def _message(self, what: What, at: float, data: Any, ended: tuple[tuple[int, float], ...]) -> RankMessage:
        if what == "called":
            call, *how = data
            if isinstance(call, Call):
                self._known.append(call)
            else:
                call = self._known[call]
            data = Called(call, *how)
        return RankMessage(what, at, data, ended)
