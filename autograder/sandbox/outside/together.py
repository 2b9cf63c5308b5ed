"""Several exercises of a submission in one process, one after the other: a fork for each would cost more than they do.

    Together.perform(exercise, cases) --> observations; None where they would say nothing

The process does without all that any of its exercises does without, from before a student's line runs in it. It ends
itself after an exercise that has left a trace for the next (inside/traces.py), is ended after one that hangs or breaks
the conversation, and another one takes its place. What is wrong here may be so because of what was removed for
others, or of an earlier exercise: so it counts for nothing, and the exercise is to be performed alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable, Sequence

from autograder.sandbox.outside.loading import Loading, NotStarted, PerformerTask
from autograder.sandbox.wire import stream
from autograder.sandbox.wire.frame import BadFrame
from course.performing.exercise import Case, Exercise, Observation
from course.tree import Tree

BREAKS = ("ProcessDied", "BadReply", "TimeLimit")  # it does not go on, or nobody knows with what
SECONDS = 1.0  # to load an answer, and for each case: who hangs does so again alone, where he has all his time
Observe = Callable[[Exercise, Case, socket.socket], Observation]


class Together:
    """The process of these exercises. observe: performs one case in it; until: when nothing more is begun."""

    def __init__(self, loading: Loading, exercises: Sequence[Exercise], observe: Observe, until: float) -> None:
        removes = tuple(dict.fromkeys(name for each in exercises for name in each.removes))
        self._task = PerformerTask(name="", request={"together": [*removes]}, removes=removes)
        self._loading, self._observe, self._until = loading, observe, until
        self._sock: socket.socket | None = None

    def close(self) -> None:
        """End the process."""
        self._let_go()
        self._loading.end()

    def _let_go(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = None

    def perform(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[Observation, ...] | None:
        """One observation per case; None where one of them holds a failure, after which no other case is run, or where
        no time is left.
        """
        if time.monotonic() >= self._until:
            return None
        brief = dataclasses.replace(exercise, seconds=min(exercise.seconds, SECONDS))
        seen: list[Observation] = []
        try:
            sock = self._loaded(brief)
            for case in cases:
                seen.append(self._observe(brief, case, sock))
                if (failure := seen[-1].error) is not None:
                    if failure.type in BREAKS:
                        self._end()
                    return None
        except (NotStarted, stream.Late, stream.Closed, BadFrame):
            self._end()
            return None
        return tuple(seen)

    def _loaded(self, exercise: Exercise) -> socket.socket:
        """The process, which has loaded the answer; a new one where the old one has ended after what it did last.

        Raises NotStarted, Late, Closed or BadFrame.
        """
        if self._sock is not None:
            with contextlib.suppress(stream.Closed):
                self._load(exercise, self._sock)
                return self._sock
            self._let_go()
        self._sock = self._loading.start(self._task)
        self._load(exercise, self._sock)
        return self._sock

    def _load(self, exercise: Exercise, sock: socket.socket) -> None:
        request: Tree = {"exercise": exercise.id, "seconds": exercise.seconds}
        stream.send(sock, request)
        stream.receive(sock, time.monotonic() + SECONDS)

    def _end(self) -> None:
        """Nobody knows what it is doing now: it ends with all that it may have started."""
        self._let_go()
        self._loading.sweep()
