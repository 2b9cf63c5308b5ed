"""One submission, loaded: the conversations with its performers, and the deadlines.

    performer <--case-- , --questions--> oracle, --observation-->      of one exercise, or of several (together.py)
    performers, one for each rank <--calls--> broker (broker.py), --observations-->

A performer that dies, hangs, floods or answers nonsense costs its own exercise: the observations from there on hold
one Failure and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Callable, Sequence

from autograder.sandbox.outside.kept import Kept
from autograder.sandbox.outside.loading import Loading, NotStarted, OpenContainer, PerformerTask, ended, late, observed
from autograder.sandbox.outside.ranks import Ranks
from autograder.sandbox.outside.together import BREAKS, Together
from autograder.sandbox.wire import messages, stream
from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.policy import PATIENT, Limits
from autograder.sandbox.wire.rank_messages import RankCall
from course.cluster import Run
from course.errors import CourseError
from course.performing.cells import CodeCell
from course.performing.exercise import Case, Exercise, Failure, Inputs, Observation, Oracle, sent
from course.performing.oracle import told, with_costs
from course.performing.perform import in_turn, stops
from course.tree import Tree

MOST = 1.5  # times its limit, which a case may take by our clock: sleep counts there, and what goes to and fro
LIBRARY = 2**21  # bytes: who takes more before a measured case may have imported something
READING = 2.0  # seconds in which a performer that has asked must read the answer, even at its limit


class Session:
    """One submission in its containers: one, and more where an exercise has several ranks."""

    def __init__(self, opener: OpenContainer, limits: Limits, cells: Sequence[CodeCell]) -> None:
        self._limits = limits
        self._until = time.monotonic() + limits.submission_seconds
        self._grown, self._modules, self._kept = 0, tuple[str, ...](), Kept()
        self._alone = Loading(opener, limits, cells)
        self._ranks = Ranks(limits, self._alone, lambda: Loading(opener, limits, cells))

    def call(self, call: RankCall, parts: Sequence[Inputs]) -> Run:
        """Call a function of the cells on every rank, with the parts; no exercise is needed.

        Raises RanksFailed, and RunnerError where the cells do not load.
        """
        return self._ranks.call(call, parts)

    def close(self) -> None:
        """End the containers."""
        try:
            self._ranks.close()
        finally:
            self._alone.close()

    def perform(
        self, exercise: Exercise, cases: Sequence[Case], imports: Sequence[str] = ()
    ) -> tuple[Observation, ...]:
        """One observation per case, in order, in a process that has loaded its answer; in one for each rank.

        imports  modules to be there before anything is measured, of which what they take is no cost
        """
        self._grown, self._modules, self._kept = 0, (), Kept()
        if time.monotonic() >= self._until:
            return (late(self._limits),) * len(cases)
        if exercise.split is not None:
            return self._ranks.perform(exercise, cases, self._until)
        return self._performed(exercise, cases, imports)

    @property
    def libraries(self) -> tuple[str, ...]:
        """What the last exercise imported, where it took so much that this may be why."""
        return self._modules if self._grown > LIBRARY else ()

    def together(self, exercises: Sequence[Exercise]) -> contextlib.closing[Together]:
        """One process for all of these, which have one rank and are not measured; it ends with the context."""
        return contextlib.closing(Together(self._alone, exercises, self._observe, self._until))

    def _performed(self, exercise: Exercise, cases: Sequence[Case], imports: Sequence[str]) -> tuple[Observation, ...]:
        try:
            sock = self._alone.start(PerformerTask.of(exercise, imports))
        except NotStarted as error:
            return (error.seen,) * len(cases)
        with sock:
            seen = in_turn(cases, lambda case: self._observe(exercise, case, sock), _ends)
        if not any(_broke(each.error) for each in seen):
            self._alone.end()
            return tuple(seen)
        why = self._alone.sweep()
        return tuple(ended(why) if why and _broke(each.error) else each for each in seen)

    def _observe(self, exercise: Exercise, case: Case, sock: socket.socket) -> Observation:
        """One case, with what it cost by our own account.

        The time in which it was ready to run and others were running is not its own, and that of the oracle neither.
        """
        seconds = exercise.seconds + self._limits.spare_seconds
        started = time.monotonic()
        if started >= self._until:
            return late(self._limits)

        def waited() -> float:
            return float(self._alone.container.tell({"do": "waited"})["seconds"])

        def deadline() -> float:
            return started + min(seconds + waited() + answering.seconds, PATIENT * seconds)

        measured = case.name in exercise.measured
        oracle = exercise.oracle(case) if exercise.oracle else None
        answering = _Answering(oracle)
        if measured:
            self._alone.container.tell({"do": "mark"})
        try:
            look = functools.partial(self._alone.container.tell, {"do": "look"}) if measured else None
            reply = _converse(sock, sent(exercise, case), answering, started + seconds, deadline, look)
            over = time.monotonic() - started - answering.seconds - MOST * exercise.seconds
            if over > 0 and over > waited():  # its own clock may have been changed
                return observed(stream.Late(), "the run", exercise.seconds)
            (seen,) = messages.to_observations(reply["seen"], 1)
            if oracle is not None:
                seen = told(seen, oracle, "broker")
            self._kept.add(seen)
        except (stream.Late, BadFrame, stream.Closed) as error:
            return observed(error, "the run", seconds)
        if measured:
            spent = self._alone.container.tell({"do": "spent"})
            if spent.pop("ended"):
                return observed(stream.Closed(), "the run", seconds)
            self._grown = max(self._grown, spent.pop("grown_bytes"))
            self._modules = messages.to_modules(reply.get("modules"))
            seen = with_costs(seen, spent, "kernel")
        return seen


def _converse(
    sock: socket.socket,
    case: Case,
    answering: _Answering,
    deadline: float,
    later: Callable[[], float],
    look: Callable[[], object] | None = None,
) -> dict[str, Tree]:
    """Send a case, and answer questions until its observation comes. Raises Late, Closed or BadFrame.

    look  at what the answer holds, whenever it asks: it waits then

    The token goes with the case and must come back: a frame that was made before the case arrived is none of its own.
    """
    token = stream.new_token()
    stream.send(sock, messages.from_cases([case]), token=token, deadline=deadline)
    while True:
        reply = stream.receive(sock, deadline, token=token, later=later)
        if isinstance(reply, dict) and "seen" in reply:
            return reply
        verb, arguments = messages.to_question(reply)
        if look is not None:
            look()
        stream.send(sock, answering.ask(verb, arguments), deadline=max(deadline, time.monotonic() + READING))


class _Answering:
    """An oracle, and the seconds that it has taken to answer."""

    def __init__(self, oracle: Oracle | None) -> None:
        self._oracle, self.seconds = oracle, 0.0

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """What the oracle says, or why it says nothing. Raises BadFrame where there is none."""
        if self._oracle is None:
            raise BadFrame("this exercise has nothing to ask")
        began = time.monotonic()
        try:
            return {"answer": self._oracle.ask(verb, arguments)}
        except CourseError as error:
            return {"refused": str(error)}
        finally:
            self.seconds += time.monotonic() - began


def _broke(failure: Failure | None) -> bool:
    return failure is not None and failure.type in BREAKS


def _ends(failure: Failure | None) -> bool:
    return _broke(failure) or stops(failure)
