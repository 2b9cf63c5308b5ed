"""A container in which the cells of a submission are read, and performers are forked that load one answer each.

    Loading.start(task) --> the socket of a new performer, ready for cases

A reader that was killed or stopped meanwhile is started again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autograder.sandbox.wire import messages, stream
from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.messages import CLEAN, OVER, PERFORM, READ, READY, SWEEP, WITHOUT_AUTOGRAD
from autograder.sandbox.wire.policy import Limits
from course.errors import CourseError
from course.performing.cells import CodeCell
from course.performing.exercise import Exercise, Failure, Observation
from course.tree import Tree

REPLY_SECONDS = 30.0  # of the warm process and of a container's first process, which run no student's code
ENDS_SECONDS = 5.0  # of a reader that only ends its forks: one that a student's code has stopped never says so
AUTOGRAD = frozenset({"torch", "torch.autograd"})  # to remove one of these takes long, so it is done once
ATTEMPTS = 3
AGAIN = 4  # where one answer took all the time that loading has, each other one gets this part of it


class RunnerError(CourseError):
    """Students' code cannot be run here."""


class WarmProcessEnded(CourseError):
    """The process that runs answers is gone in the middle of a submission, which is to be graded anew."""


class Container:
    """Namespaces, limits and filter around one submission, or one rank of it; made of a fork of the warm process.

    number  by which the warm process knows it; sock: to its first process
    stood   set when the walls of one have stood: where they are refused later, it is not the machine that cannot
    """

    def __init__(
        self,
        sock: socket.socket,
        number: int,
        tell: Callable[[dict[str, Any]], dict[str, Any]],
        stood: threading.Event | None = None,
    ) -> None:
        self._sock, self._number, self._tell = sock, number, tell
        self._isolated, self._stood = False, stood or threading.Event()

    def first(self) -> socket.socket:
        """The socket to its first process; waits until it is isolated.

        Raises RunnerError where a wall was refused, WarmProcessEnded where walls have stood before, or nothing is
        said, and OSError where the watchdog was faster.
        """
        began = time.monotonic()
        if not self._isolated and byte(self._sock, REPLY_SECONDS) != READY:
            if time.monotonic() - began >= REPLY_SECONDS:
                raise WarmProcessEnded(f"a container was silent for {REPLY_SECONDS:g} s")
            if why := self.tell({"do": "why"})["why"]:
                raise ConnectionResetError(why)
            refused = WarmProcessEnded if self._stood.is_set() else RunnerError
            raise refused("the walls around a submission must stand, but one was refused; see `autograder doctor`")
        self._isolated = True
        self._stood.set()
        return self._sock

    def tell(self, message: dict[str, Any]) -> dict[str, Any]:
        """A control message about it to the warm process, and its reply."""
        return self._tell({**message, "container": self._number})


OpenContainer = Callable[[], contextlib.AbstractContextManager[Container]]


@dataclass(frozen=True, kw_only=True)
class PerformerTask:
    """What a performer is for: the answer's name, and what it is told. removes, measured: see Exercise."""

    name: str
    request: Tree
    removes: tuple[str, ...] = ()
    measured: bool = False

    @classmethod
    def of(cls, exercise: Exercise, imports: Sequence[str] = ()) -> PerformerTask:
        """To perform an exercise. imports: modules to be there before what it takes is measured."""
        return cls(
            name=exercise.name,
            request={"exercise": exercise.id, "measured": bool(exercise.measured), "imports": [*imports]},
            removes=exercise.removes,
            measured=bool(exercise.measured),
        )


class NotStarted(CourseError):
    """No performer could be started; `seen` is what is observed instead of every case."""

    def __init__(self, seen: Observation) -> None:
        super().__init__(seen.error.message if seen.error else "")
        self.seen = seen


class Loading:
    """One container of a submission."""

    def __init__(self, opener: OpenContainer, limits: Limits, cells: Sequence[CodeCell]) -> None:
        self._open, self._limits, self._seconds = opener, limits, limits.load_seconds
        self._stack = contextlib.ExitStack()
        self.container = self._stack.enter_context(opener())
        self._cells = cells
        self._reader: socket.socket | None = None
        self._without_autograd: socket.socket | None = None
        self._performed = False  # whether a performer has run in this container

    def close(self) -> None:
        """End the container."""
        self._let_go()
        self._stack.close()

    def start(self, task: PerformerTask) -> socket.socket:
        """A new performer, which has loaded its answer. Earlier ones, and their files, are gone. Raises NotStarted."""
        self.end()
        self._clean()
        for _ in range(ATTEMPTS):
            self._read()
            sock = self._performer(task)
            if sock is not None:
                return sock
            self.sweep()
        raise NotStarted(failed("ProcessDied", "the process that had read the cells ended"))

    def sweep(self) -> str:
        """End all students' processes in it. Where the watchdog has ended it: begin another, and say why."""
        self._let_go()
        with contextlib.suppress(OSError):
            first = self.container.first()
            first.sendall(SWEEP)
            if byte(first, REPLY_SECONDS) == SWEEP:
                return ""
        why = str(self.container.tell({"do": "why"})["why"])
        self._another()
        return why

    def end(self) -> None:
        """End the performers that there were: what they have begun would go on, and take time from who judges them."""
        parents = [each for each in (self._without_autograd, self._reader) if each is not None]
        for parent in parents:
            with contextlib.suppress(OSError):
                parent.sendall(OVER)
                if byte(parent, ENDS_SECONDS) == OVER:
                    continue
            self.sweep()
            return

    def _clean(self) -> None:
        """Remove what earlier performers have left in its folders; where that cannot be done, begin another."""
        if not self._performed:
            return
        with contextlib.suppress(OSError):
            first = self.container.first()
            first.sendall(CLEAN)
            if byte(first, REPLY_SECONDS) == CLEAN:
                return
        self._let_go()
        self._another()

    def _another(self) -> None:
        """Begin another container in place of this one."""
        self._stack.close()
        self.container = self._stack.enter_context(self._open())
        self._performed = False

    def _let_go(self) -> None:
        """Of the reader, and of its fork."""
        for sock in (self._reader, self._without_autograd):
            if sock is not None:
                sock.close()
        self._reader = self._without_autograd = None

    def _read(self) -> None:
        """Start a reader, if there is none. Raises NotStarted, or WarmProcessEnded where it is not this one's fault."""
        if self._reader is not None:
            return
        request: Tree = {
            "sources": messages.from_sources([cell.source for cell in self._cells]),
            "answers": [cell.answers for cell in self._cells],
        }
        try:
            ours = hand(self.container.first(), READ)
        except OSError as error:
            if why := self.sweep():  # the watchdog was faster
                raise NotStarted(ended(why)) from None
            raise WarmProcessEnded(f"a process that reads cells could not be started ({error})") from None
        try:
            stream.send(ours, request)
            stream.receive(ours, time.monotonic() + self._seconds)
        except (stream.Late, BadFrame, stream.Closed) as error:
            ours.close()
            raise NotStarted(observed(error, "reading the cells", self._seconds, self.sweep())) from None
        self._reader = ours

    def _performer(self, task: PerformerTask) -> socket.socket | None:
        """None where the reader did not even fork. Raises NotStarted where the answer does not load."""
        self._performed = True
        try:
            sock = hand(self._parent(task), PERFORM)
        except OSError:
            return None
        try:
            stream.send(sock, task.request)
            stream.receive(sock, time.monotonic() + self._limits.load_seconds)
        except (stream.Late, stream.Closed):
            sock.close()
            return None
        seconds = self._seconds
        try:
            if task.measured:
                stream.receive(sock, time.monotonic() + seconds)
                self.container.tell({"do": "base"})
                stream.send(sock, "go on", deadline=time.monotonic() + seconds)
            stream.receive(sock, time.monotonic() + seconds)
        except (stream.Late, stream.Closed, BadFrame) as error:
            sock.close()
            if isinstance(error, stream.Late):
                self._seconds = min(self._seconds, self._limits.load_seconds / AGAIN)
            raise NotStarted(observed(error, "loading the cells", seconds, self.sweep())) from None
        return sock

    def _parent(self, task: PerformerTask) -> socket.socket:
        """The process to fork: the reader, or its fork without autograd. Raises OSError."""
        assert self._reader is not None
        if AUTOGRAD.isdisjoint(task.removes):
            return self._reader
        if self._without_autograd is None:
            self._without_autograd = hand(self._reader, WITHOUT_AUTOGRAD)
        return self._without_autograd


# --- what is seen where nothing was observed ----------------------------------------------------------


def observed(error: Exception, doing: str, seconds: float, why: str = "") -> Observation:
    """What is seen of a run that broke the conversation. why: the watchdog's reason, where that ended the run."""
    if why:
        return ended(why)
    if isinstance(error, stream.Late):
        return failed("TimeLimit", f"{doing} did not end within {seconds:g} s")
    if isinstance(error, BadFrame):
        return failed("BadReply", str(error))
    return failed("ProcessDied", f"the process ended during {doing}: killed, out of memory, or it left by itself")


def ended(why: str) -> Observation:
    """What is seen of a run that the watchdog ended, and why."""
    return failed("ProcessDied", f"the run was ended: {why}")


def late(limits: Limits) -> Observation:
    """What is seen of a case for which no time is left."""
    most = limits.submission_seconds
    return failed("TimeLimit", f"all exercises together may take {most:g} s, which were over before this one was done")


def failed(kind: str, message: str) -> Observation:
    """An observation of nothing but a failure."""
    return Observation(error=Failure(type=kind, message=message))


# --- sockets ------------------------------------------------------------------------------------------


def hand(to: socket.socket, message: bytes) -> socket.socket:
    """Our end of a new connection, the other end handed over. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        to.settimeout(REPLY_SECONDS)
        try:
            socket.send_fds(to, [message], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
    return ours


def byte(sock: socket.socket, seconds: float, most: int = 1) -> bytes:
    """The next message; nothing where the connection is closed or silent."""
    sock.settimeout(seconds)
    try:
        return sock.recv(most)
    except OSError:  # includes TimeoutError
        return b""
