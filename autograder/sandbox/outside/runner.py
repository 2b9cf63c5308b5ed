"""Running students' code: the trusted side.

    cells --session--> loaded in a fork of a warm process; exercise, cases --perform--> one observation per case

Nothing that students' code does raises here. A child that dies, hangs, floods or answers nonsense costs its own
exercise: the observations from there on hold one Failure and nothing else. RunnerError means that the grader itself
cannot run anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from autograder.sandbox.outside.control import WarmProcess
from autograder.sandbox.outside.folder import remove
from autograder.sandbox.outside.loading import Container, RunnerError, hand
from autograder.sandbox.outside.session import Session
from autograder.sandbox.outside.stage import ours
from autograder.sandbox.wire import messages, seccomp, stream
from autograder.sandbox.wire.blocks import return_large_blocks
from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.messages import DISPLAY, Output
from autograder.sandbox.wire.policy import HOME, Limits, PolicyError, without
from course.performing.cells import CodeCell
from course.tree import Tree

SENT = 2  # times the text of a display run, which may come for it: beyond that nobody honest is speaking


def open_runner(
    limits: Limits | None = None, *, trusted: bool = False, display: bool = True, units: Collection[str] = ()
) -> Runner:
    """The runner of this machine.

    trusted  the user takes the risk: the same processes, not isolated
    display  whether display runs are to come; without, each of them would import for itself what it draws with
    units    those whose exercises are to come; of all units if left out, which takes half a second longer
    Raises RunnerError where the sandbox cannot be built, with what is missing.
    """
    return Runner(limits or Limits(), None if trusted else _filter(), display=display, units=units)


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
        without(ours())
        return seccomp.compiled()
    except PolicyError as error:
        raise RunnerError(str(error)) from None


def _allow_files() -> None:
    """As many files as this process may have: those on their way over sockets are counted for all processes of a user,
    and held against the limit of who sends one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the system may allow fewer by now
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Runner:
    """Runs students' code somewhere else: a warm process, and containers of its forks, one submission at a time.

    A context manager; `close` ends everything that it started.
    """

    def __init__(self, limits: Limits, program: bytes | None, *, display: bool, units: Collection[str]) -> None:
        self.limits = limits
        self._isolated, self._stood = program is not None, threading.Event()
        if self._isolated:
            _allow_files()
        self._warm = WarmProcess(program, display=display, units=units)
        return_large_blocks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm process and all below it, and remove its folder. The next use starts another."""
        self._warm.close()

    def describe(self) -> str:
        """One sentence on how safe this is; it stands in every summary, report and log."""
        if not self._isolated:
            return "not sandboxed: students' code ran as the user who graded, because --trust-submissions was given"
        return "sandboxed: bubblewrap, namespaces and a system call filter for each submission"

    @contextlib.contextmanager
    def session(self, cells: Sequence[CodeCell]) -> Iterator[Session]:
        """One submission with namespaces of its own; each answer runs what it needs of the cells in its own process."""
        session = Session(self._container, self.limits, cells)
        try:
            yield session
        finally:
            session.close()
            return_large_blocks()

    def display(
        self, sources: Sequence[str], own: Sequence[bool] = (), keep: Callable[[Iterator[list[Output]]], Any] = list
    ) -> Any:
        """What each code cell shows, run in order, for people, as far as it came: from nobody to trust.

        own   which cells are the student's; if given, the others show nothing, and only those are run that these need.
              Where one of them raises, everything is run after all, in what is left of the time.
        keep  what is returned of the cells, which it gets one by one: a few bytes may bring a hundred times as much
        """
        began, seconds, raised = time.monotonic(), self.limits.display_seconds, False

        def watched(cells: Iterator[list[Output]]) -> Iterator[list[Output]]:
            nonlocal raised
            for cell in cells:
                raised = raised or _raised(cell)
                yield cell

        with contextlib.closing(self._display(sources, own, seconds)) as cells:
            kept = keep(watched(cells))
        left = began + seconds - time.monotonic()
        if own and left > 0 and raised:
            del kept
            with contextlib.closing(self._display(sources, (), left)) as cells:
                kept = keep(cells)
        return kept

    def _display(
        self, sources: Sequence[str], own: Sequence[bool], seconds: float
    ) -> Generator[list[Output], None, None]:
        deadline = time.monotonic() + seconds + self.limits.spare_seconds
        request: dict[str, Tree] = {"sources": messages.from_sources(sources), "own": [*own]}
        request |= {"seconds": seconds, "output": self.limits.output}
        broken = contextlib.suppress(stream.Late, BadFrame, stream.Closed)  # what came until then is shown
        with self._container() as container, hand(container.first(), DISPLAY) as sock, broken:
            stream.send(sock, request)
            reader = stream.Reader(sock)
            for _ in sources:
                tree, _ = stream.next_of(reader, deadline)
                if reader.bytes > SENT * self.limits.output:
                    return
                yield from messages.to_outputs(tree, 1)

    @contextlib.contextmanager
    def _container(self) -> Iterator[Container]:
        """A new container. Several threads may each open one."""
        folder = self._warm.start()
        home = tempfile.mkdtemp(dir=folder) if not self._isolated else HOME
        ours, theirs = socket.socketpair()
        container = None
        try:
            with ours:
                with theirs:
                    message = {"do": "start", "limits": dataclasses.asdict(self.limits), "home": home}
                    number = self._warm.tell(message, theirs)["container"]
                    container = Container(ours, number, self._warm.tell, self._stood)
                yield container
        finally:
            try:
                if container is not None:
                    container.tell({"do": "end"})
            finally:
                if not self._isolated:
                    remove(Path(home))


def _raised(outputs: list[Output]) -> bool:
    """Whether a cell ended with an exception, other than for want of time, of which all cells would need more."""
    return any(each.get("output_type") == "error" and each.get("ename") != "TimeLimit" for each in outputs)
