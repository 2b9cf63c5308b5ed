"""Running students' code: the trusted side.

    cells --session--> loaded in a fork of a warm process; exercise, cases --perform--> one observation per case

Nothing that students' code does raises here. A child that dies, hangs, floods or answers nonsense costs its own
exercise: the observations from there on hold one Failure and nothing else. RunnerError means that the grader itself
cannot run anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Protocol, Self

from autograder.sandbox.outside.control import WarmProcess
from autograder.sandbox.outside.loading import Job, RunnerError, hand
from autograder.sandbox.outside.session import LoadedSession
from autograder.sandbox.wire import seccomp, texts, wire
from autograder.sandbox.wire.messages import DISPLAY, Output
from autograder.sandbox.wire.policy import HOME, Limits, PolicyError
from autograder.sandbox.wire.rank_messages import RankCall
from course.cluster import Run
from course.performing.cells import CodeCell
from course.performing.exercise import Case, Exercise, Inputs, Observation
from course.tree import Tree


class Session(Protocol):
    """One submission, loaded."""

    def perform(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[Observation, ...]:
        """One observation per case, in order, in a fork of the process that loaded the cells; of one for each rank."""

    def call(self, call: RankCall, parts: Sequence[Inputs]) -> Run:
        """Call a function of the cells on every rank, with the parts; no exercise is needed.

        Raises RanksFailed, and RunnerError where the cells do not load.
        """


class Runner(Protocol):
    """Runs students' code somewhere else. A context manager; `close` ends everything that it started."""

    def __enter__(self) -> Self:
        """Itself."""

    def __exit__(self, *exception: object) -> None:
        """Close."""

    def close(self) -> None:
        """End the warm process and all below it, and remove its folder. The next use starts another."""

    def describe(self) -> str:
        """One sentence on how safe this is; it stands in every summary, report and log."""

    def session(self, cells: Sequence[CodeCell], names: Sequence[str]) -> contextlib.AbstractContextManager[Session]:
        """One submission with namespaces of its own, its cells loaded once, as far as the answers `names` need them."""

    def display(self, sources: Sequence[str]) -> list[list[Output]]:
        """What each code cell shows, run in order, for people, as far as it came: from nobody to trust."""


def open_runner(limits: Limits | None = None, *, trusted: bool = False, display: bool = True) -> Runner:
    """The runner of this machine.

    trusted  the user takes the risk: the same processes without walls around them
    display  whether display runs are to come; without, each of them would import for itself what it draws with
    Raises RunnerError where the walls cannot be built, with what is missing.
    """
    return _Runner(limits or Limits(), None if trusted else _filter(), display=display)


def _filter() -> bytes:
    """The system call filter. Raises RunnerError where no sandbox can be had."""
    if sys.platform != "linux":
        raise RunnerError(
            f"the sandbox needs Linux, this is {sys.platform}; grade in a Linux virtual machine or container, or type "
            "--trust-submissions to run students' code as yourself"
        )
    if shutil.which("bwrap") is None:
        raise RunnerError(
            "bubblewrap must be installed for the sandbox; on Debian and Ubuntu: `apt install bubblewrap`, or type "
            "--trust-submissions to run students' code as yourself"
        )
    try:
        return seccomp.compiled()
    except PolicyError as error:
        raise RunnerError(str(error)) from None


class _Runner:
    """A warm process, and the jobs that it forks: those of one submission at a time."""

    def __init__(self, limits: Limits, program: bytes | None, *, display: bool) -> None:
        self.limits = limits
        self._walled = program is not None
        self._warm = WarmProcess(program, display=display)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def describe(self) -> str:
        """What a reader of grades must know."""
        if not self._walled:
            return "not sandboxed: students' code ran as the user who graded, because --trust-submissions was given"
        return "sandboxed: bubblewrap, namespaces and a system call filter for each submission"

    def close(self) -> None:
        """End the warm process, which ends its jobs."""
        self._warm.close()

    # --- jobs ---

    @contextlib.contextmanager
    def session(self, cells: Sequence[CodeCell], names: Sequence[str]) -> Iterator[Session]:
        """See Runner."""
        session = LoadedSession(self._job, self.limits, cells, names)
        try:
            yield session
        finally:
            session.close()

    def display(self, sources: Sequence[str]) -> list[list[Output]]:
        """See Runner."""
        seconds, shown = self.limits.display_seconds, list[list[Output]]()
        deadline = time.monotonic() + seconds + self.limits.spare_seconds
        request: Tree = {"sources": texts.from_sources(sources), "seconds": seconds, "output": self.limits.output}
        broken = contextlib.suppress(wire.Late, wire.BadFrame, wire.Ended)  # what came until then is shown
        with self._job() as job, hand(job.first(), DISPLAY) as sock, broken:
            wire.send(sock, request)
            while len(shown) < len(sources):
                shown += texts.to_outputs(wire.receive(sock, deadline), 1)
        return shown

    @contextlib.contextmanager
    def _job(self) -> Iterator[Job]:
        """A job of the warm process. Several threads may each open one."""
        folder = self._warm.start()
        home = tempfile.mkdtemp(dir=folder) if not self._walled else HOME
        ours, theirs = socket.socketpair()
        job = None
        try:
            with ours:
                with theirs:
                    message = {"do": "job", "limits": dataclasses.asdict(self.limits), "home": home}
                    job = Job(ours, self._warm.tell(message, theirs)["job"], self._warm.tell)
                yield job
        finally:
            if job is not None:
                job.tell({"do": "end"})
            if not self._walled:
                shutil.rmtree(home, ignore_errors=True)
