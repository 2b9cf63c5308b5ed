"""One submission, loaded: the conversations with its loader and its performers, and the deadlines.

    loader <--cells--  ;  performer <--case-- , --questions--> oracle, --observation-->

A performer that dies, hangs, floods or answers nonsense costs its own exercise: the observations from there on hold
one Failure and nothing else.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from autograder.sandbox import wire
from autograder.sandbox.messages import LOAD, PERFORM, SWEEP, WITHOUT_AUTOGRAD
from autograder.sandbox.policy import Limits
from course.cells import CodeCell
from course.errors import CourseError
from course.exercise import Case, Exercise, Failure, Observation, Oracle
from course.oracle import with_costs
from course.perform import stops
from course.tree import Tree

OpenJob = Callable[[], contextlib.AbstractContextManager[socket.socket]]  # a new job: the socket to its first process
Tell = Callable[[dict[str, Any]], dict[str, Any]]  # a control message to the warm process, and its reply

REPLY_SECONDS = 30.0  # of the warm process and of a job's first process, which run no student's code
AUTOGRAD = frozenset({"torch", "torch.autograd"})  # to remove one of these takes long, so it is done once
ATTEMPTS = 3
FALLBACK = 4  # where the cells do not load together, each answer gets this part of the time alone


class LoadedSession:
    """The loader of one submission, and the conversations with its performers."""

    def __init__(
        self, job: OpenJob, tell: Tell, limits: Limits, cells: Sequence[CodeCell], names: Sequence[str]
    ) -> None:
        self._open, self._tell, self._limits = job, tell, limits
        self._job = contextlib.ExitStack()
        self._first = self._job.enter_context(job())
        self._cells, self._names = cells, list(names)
        self._loader: socket.socket | None = None
        self._without_autograd: socket.socket | None = None
        self._together = True
        self._problem = Observation()
        self._loaded: list[str] = []

    def close(self) -> None:
        """End the job."""
        self._let_go()
        self._job.close()

    def _let_go(self) -> None:
        """Of the loader, and of its fork."""
        for sock in (self._loader, self._without_autograd):
            if sock is not None:
                sock.close()
        self._loader = self._without_autograd = None

    def perform(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[Observation, ...]:
        """One observation per case; see Session."""
        for _ in range(ATTEMPTS):  # a loader that was killed or stopped meanwhile is started again
            if self._loader is not None and exercise.name not in self._loaded:
                self._sweep()
            if self._loader is None:
                names = self._names if self._together else [exercise.name]
                if not self._load(names):
                    if len(names) == 1:
                        return (self._problem,) * len(cases)
                    continue
            seen = self._perform(exercise, cases)
            if seen is not None:
                return seen
            self._sweep()
        return _failed("ProcessDied", "the process that had loaded the cells ended", len(cases))

    # --- loading ---

    def _load(self, names: list[str]) -> bool:
        """Start a loader with what these answers need: all of them, or one alone where all together broke."""
        seconds = self._limits.load_seconds / (1 if self._together else FALLBACK)
        answers: Tree = [cell.answers for cell in self._cells]
        request: Tree = {
            "sources": wire.from_sources([cell.source for cell in self._cells]),
            "answers": answers,
            "names": list(names),
        }
        try:
            ours = hand(self._first, LOAD)
        except OSError:  # the watchdog was faster
            self._problem = Observation(
                error=Failure(type="ProcessDied", message=f"the run was ended: {self._sweep()}")
            )
            return False
        try:
            wire.send(ours, request)
            wire.receive(ours, time.monotonic() + seconds)
        except (wire.Late, wire.BadFrame, wire.Ended) as error:
            ours.close()
            why = self._sweep()
            self._together = False
            self._problem = _observed(error, "loading the cells", seconds, why)
            return False
        self._loader, self._loaded = ours, names
        return True

    def _sweep(self) -> str:
        """End all students' processes of this job. Where the watchdog has ended it: begin another, and say why."""
        self._let_go()
        with contextlib.suppress(OSError):
            self._first.sendall(SWEEP)
            if byte(self._first, REPLY_SECONDS) == SWEEP:
                return ""
        why = str(self._tell({"do": "why"})["why"])
        self._job.close()
        self._first = self._job.enter_context(self._open())
        return why

    # --- performing ---

    def _perform(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[Observation, ...] | None:
        """None where the loader did not even fork."""
        try:
            sock = hand(self._parent(exercise), PERFORM)
        except OSError:
            return None
        with sock:
            try:
                wire.send(sock, {"exercise": exercise.id})
                wire.receive(sock, time.monotonic() + self._limits.load_seconds)
            except (wire.Late, wire.Ended):
                return None
            except wire.BadFrame as error:
                self._sweep()
                return (_observed(error, "the preparation", self._limits.load_seconds),) * len(cases)
            seen: list[Observation] = []
            for case in cases:
                if seen and _stops(seen[-1]):
                    seen.append(Observation(error=seen[-1].error))
                else:
                    seen.append(self._observe(exercise, case, sock))
        why = self._sweep() if any(_broke(each) for each in seen) else ""
        return tuple(_explained(each, why) if _broke(each) else each for each in seen)

    def _parent(self, exercise: Exercise) -> socket.socket:
        """The process to fork: the loader, or its fork without autograd. Raises OSError."""
        assert self._loader is not None
        if AUTOGRAD.isdisjoint(exercise.removes):
            return self._loader
        if self._without_autograd is None:
            self._without_autograd = hand(self._loader, WITHOUT_AUTOGRAD)
        return self._without_autograd

    def _observe(self, exercise: Exercise, case: Case, sock: socket.socket) -> Observation:
        """One case, with what it cost by our own account."""
        seconds = exercise.seconds + self._limits.spare_seconds
        deadline = time.monotonic() + seconds
        oracle = exercise.oracle(case) if exercise.oracle else None
        if exercise.memory:
            self._tell({"do": "mark"})
        try:
            (seen,) = wire.to_observations(_converse(sock, case, oracle, deadline), 1)
        except (wire.Late, wire.BadFrame, wire.Ended) as error:
            return _observed(error, "the run", seconds)
        if oracle is not None:
            seen = with_costs(seen, oracle.ledger(), "broker")
        if exercise.memory:
            seen = with_costs(seen, self._tell({"do": "spent"}), "kernel")
        return seen


def _converse(sock: socket.socket, case: Case, oracle: Oracle | None, deadline: float) -> Tree:
    """Send a case, and answer questions until its observation comes. Raises Late, Ended or BadFrame.

    The token goes with the case and must come back: a frame that was made before the case arrived is none of its own.
    """
    token = wire.new_token()
    wire.send(sock, wire.from_cases([case]), token=token, deadline=deadline)
    while True:
        reply = wire.receive(sock, deadline, token=token)
        if isinstance(reply, dict) and "seen" in reply:
            return reply["seen"]
        verb, arguments = wire.to_question(reply)
        if oracle is None:
            raise wire.BadFrame("this exercise has nothing to ask")
        wire.send(sock, _answer(oracle, verb, arguments), deadline=deadline)


def _answer(oracle: Oracle, verb: str, arguments: Tree) -> Tree:
    """What the oracle says, or why it says nothing."""
    try:
        return {"answer": oracle.ask(verb, arguments)}
    except CourseError as error:
        return {"refused": str(error)}


def _observed(error: Exception, doing: str, seconds: float, why: str = "") -> Observation:
    """What is seen of a run that broke the conversation."""
    if isinstance(error, wire.Late):
        failure = Failure(type="TimeLimit", message=f"{doing} did not end within {seconds:g} s")
    elif isinstance(error, wire.BadFrame):
        failure = Failure(type="BadReply", message=str(error))
    else:
        message = f"the process ended during {doing}: killed, out of memory, or it left by itself"
        failure = Failure(type="ProcessDied", message=message)
    return _explained(Observation(error=failure), why)


def _explained(seen: Observation, why: str) -> Observation:
    """With the watchdog's reason, where it was the watchdog that ended the run."""
    return Observation(error=Failure(type="ProcessDied", message=f"the run was ended: {why}")) if why else seen


BROKEN = ("ProcessDied", "BadReply")  # the conversation cannot go on


def _broke(seen: Observation) -> bool:
    return seen.error is not None and seen.error.type in (*BROKEN, "TimeLimit")


def _stops(seen: Observation) -> bool:
    return _broke(seen) or stops(seen.error)


def _failed(kind: str, message: str, count: int) -> tuple[Observation, ...]:
    return (Observation(error=Failure(type=kind, message=message)),) * count


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
