"""Running students' code: the trusted side.

    cells --session--> loaded in a fork of a warm process; exercise, cases --perform--> one observation per case

Nothing that students' code does raises here. A child that dies, hangs, floods or answers nonsense costs its own
exercise: the observations from there on hold one Failure and nothing else. RunnerError means that the grader itself
cannot run anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from autograder.sandbox import seccomp, wire
from autograder.sandbox.folder import Folder
from autograder.sandbox.loading import REPLY_SECONDS, Job, RunnerError, byte, hand
from autograder.sandbox.messages import DISPLAY, LONGEST, Output
from autograder.sandbox.policy import COURSE, HOME, Limits, PolicyError, command, environment
from autograder.sandbox.rank_messages import RankCall
from autograder.sandbox.session import LoadedSession
from autograder.sandbox.stage import stage
from course.cells import CodeCell
from course.cluster import Run
from course.exercise import Case, Exercise, Inputs, Observation
from course.tree import Tree

START_SECONDS = 120.0  # a cold disk needs a minute for torch


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
        self._program, self._display = program, display
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._folder: Folder | None = None
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def describe(self) -> str:
        """What a reader of grades must know."""
        if self._program is None:
            return "not sandboxed: students' code ran as the user who graded, because --trust-submissions was given"
        return "sandboxed: bubblewrap, namespaces and a system call filter for each submission"

    def close(self) -> None:
        """End the warm process, which ends its job, and remove its folder."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(REPLY_SECONDS)
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            self._folder.remove()
        self._process = self._control = self._folder = None

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
        request: Tree = {"sources": wire.from_sources(sources), "seconds": seconds, "output": self.limits.output}
        broken = contextlib.suppress(wire.Late, wire.BadFrame, wire.Ended)  # what came until then is shown
        with self._job() as job, hand(job.first(), DISPLAY) as sock, broken:
            wire.send(sock, request)
            while len(shown) < len(sources):
                shown += wire.to_outputs(wire.receive(sock, deadline), 1)
        return shown

    @contextlib.contextmanager
    def _job(self) -> Iterator[Job]:
        """A job of the warm process. Several threads may each open one."""
        folder = self._start()
        home = tempfile.mkdtemp(dir=folder) if self._program is None else HOME
        ours, theirs = socket.socketpair()
        job = None
        try:
            with ours:
                with theirs:
                    message = {"do": "job", "limits": dataclasses.asdict(self.limits), "home": home}
                    job = Job(ours, self.tell(message, theirs)["job"], self.tell)
                yield job
        finally:
            if job is not None:
                job.tell({"do": "end"})
            if self._program is None:
                shutil.rmtree(home, ignore_errors=True)

    def tell(self, message: dict[str, Any], passed: socket.socket | None = None) -> dict[str, Any]:
        """One control message and its reply. Raises RunnerError where the warm process is gone."""
        with self._one_at_a_time:
            try:
                assert self._control is not None
                self._control.settimeout(REPLY_SECONDS)
                socket.send_fds(self._control, [json.dumps(message).encode()], [passed.fileno()] if passed else [])
                reply = self._control.recv(LONGEST)
            except OSError:
                reply = b""
        if not reply:
            self.close()
            raise RunnerError("the warm process must live as long as the batch, but it ended; see `autograder doctor`")
        return dict(json.loads(reply))

    # --- the warm process ---

    def _start(self) -> Path:
        """Make sure that the warm process is there, and tell its folder. Raises RunnerError."""
        if self._folder is not None and self._process is not None and self._process.poll() is None:
            return self._folder.path
        self.close()
        self._folder = _folder()
        folder = self._folder.path
        course = folder / "course"
        stage(course)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = folder / "filter"
        program.write_bytes(self._program or b"")
        with theirs, program.open("rb") as filter_, (folder / "log").open("wb") as log:
            descriptors = [theirs.fileno(), filter_.fileno()]
            where = COURSE if self._program is not None else str(course)
            argv = [sys.executable, "-I", "-c", _PROGRAM, where, *map(str, descriptors), str(int(self._display))]
            walled = self._program is not None
            self._process = subprocess.Popen(
                command(argv, course=course) if walled else argv,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=None if walled else environment(str(folder)),
                start_new_session=True,
            )
        if byte(self._control, START_SECONDS, LONGEST) == b"":
            said = (folder / "log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
            self.close()
            raise RunnerError(
                f"the process that runs answers must start, but it ended or was silent ({said or 'it said nothing'}); "
                "`autograder doctor` tells which protection is missing"
            )
        return folder


def _folder() -> Folder:
    """A folder for what the warm process needs. Raises RunnerError."""
    try:
        return Folder()
    except OSError as error:
        raise RunnerError(f"a temporary folder must be made and locked, but {error}; set TMPDIR") from None


_PROGRAM = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from autograder.start import quick_imports
with quick_imports():
    from autograder.sandbox.warm import main, warm_up
    warm_up(with_display=bool(int(sys.argv[4])))
with os.fdopen(int(sys.argv[3]), "rb") as file:
    program = file.read()
main(socket.socket(fileno=int(sys.argv[2])), program or None)
"""
