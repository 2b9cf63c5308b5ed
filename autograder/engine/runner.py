"""Where students' code runs: a small seam, and the plain process behind it. A sandbox will be a second Runner.

    exercise, cells, cases --Runner.perform--> one observation per case

A Runner never raises for what students' code does. A child that dies, hangs, floods or answers nonsense costs its
own exercise: each of its observations then holds one Failure and nothing else. RunnerError means that the grader
itself cannot run anything, and stops the batch.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from autograder.engine import wire
from autograder.engine.child import DONE, ENDED, JOB, READY
from course.cells import CodeCell
from course.errors import CourseError
from course.exercise import Case, Exercise, Failure, Observation
from course.tree import Tree

ROOT = Path(__file__).resolve().parents[2]  # what holds `course` and `autograder`
START_SECONDS = 120.0  # a cold disk needs a minute for torch
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class RunnerError(CourseError):
    """The process that should run students' code cannot be started."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one exercise may use. `spare_seconds` come on top of the exercise's own limit per case."""

    load_seconds: float = 20.0
    spare_seconds: float = 2.0
    memory: int = 2 * 2**30
    file: int = 16 * 2**20


class Runner(Protocol):
    """Performs an answer somewhere else."""

    def describe(self) -> str:
        """One sentence on how safe this is; it stands in every summary, report and log."""

    def perform(self, exercise: Exercise, cells: Sequence[CodeCell], cases: Sequence[Case]) -> tuple[Observation, ...]:
        """One observation per case, in order. Raises RunnerError where nothing can be run at all."""


class PlainRunner:
    """A fork of a warm process for each exercise, with limits on time and memory, and no walls around it.

    The warm process starts with the first exercise (2 to 4 s) and is started again if a student's code kills it.
    Use as a context manager, or call `close`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._home = ""

    def describe(self) -> str:
        """What a reader of grades must know."""
        return (
            "not sandboxed: students' code ran as the user who graded, with limits on time and memory only, "
            "and costs were counted in its own process"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the warm process and remove its folder."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
        self._process = self._control = None

    def perform(self, exercise: Exercise, cells: Sequence[CodeCell], cases: Sequence[Case]) -> tuple[Observation, ...]:
        """One observation per case; see Runner."""
        control = self._started()
        folder = tempfile.mkdtemp(dir=self._home)
        ours, theirs = socket.socketpair()
        try:
            with ours, theirs:
                socket.send_fds(control, [JOB], [theirs.fileno()])
                theirs.close()
                return self._converse(ours, folder, exercise, cells, cases)
        except OSError:
            return _failed("ProcessDied", "the process that runs answers was killed", len(cases))
        finally:
            self._finish(control)
            shutil.rmtree(folder, ignore_errors=True)

    def _converse(
        self, sock: socket.socket, folder: str, exercise: Exercise, cells: Sequence[CodeCell], cases: Sequence[Case]
    ) -> tuple[Observation, ...]:
        """Cells, then cases, then observations. The cases are sent when the student's code is already loaded."""
        seconds = exercise.seconds * len(cases) + self.limits.spare_seconds
        doing, limit = "loading the cells", self.limits.load_seconds
        try:
            wire.send(sock, self._request(folder, exercise, cells, seconds))
            wire.receive(sock, time.monotonic() + limit)
            doing, limit = "the run", seconds
            wire.send(sock, wire.from_cases(cases))
            return wire.to_observations(wire.receive(sock, time.monotonic() + limit), len(cases))
        except wire.Late:
            return _failed("TimeLimit", f"{doing} did not end within {limit:g} s", len(cases))
        except wire.BadFrame as error:
            return _failed("BadReply", str(error), len(cases))
        except (wire.Ended, OSError):
            message = f"the process ended during {doing}: killed, out of memory, or it left by itself"
            return _failed("ProcessDied", message, len(cases))

    def _request(self, folder: str, exercise: Exercise, cells: Sequence[CodeCell], seconds: float) -> Tree:
        return {
            "exercise": exercise.id,
            "folder": folder,
            "cells": [{"source": cell.source, "answers": cell.answers} for cell in cells],
            "limits": {
                "cpu_seconds": int(self.limits.load_seconds + seconds) + 5,
                "memory": self.limits.memory,
                "file": self.limits.file,
            },
        }

    # --- the warm process ---

    def _started(self) -> socket.socket:
        """The control socket of a warm process that is ready. Raises RunnerError."""
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self.close()
        self._home = tempfile.mkdtemp(prefix="hpml-")
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, str(ROOT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._home,
                env=_environment(self._home),
                start_new_session=True,
            )
        if _answer(self._control, START_SECONDS) != READY:
            self.close()
            raise RunnerError(
                "the process that runs answers must start, but it ended or was silent; "
                f"try `{sys.executable} -I -c 'import torch, course, autograder'`"
            )
        return self._control

    def _finish(self, control: socket.socket) -> None:
        """Have the child's process group killed; if the warm process does not confirm, it is ended too."""
        try:
            control.sendall(DONE)
            confirmed = _answer(control, 10.0) == ENDED
        except OSError:
            confirmed = False
        if not confirmed:
            self.close()


_PROGRAM = """
import socket, sys
sys.path.insert(0, sys.argv[1])
from autograder.engine.child import main
main(socket.socket(fileno=int(sys.argv[2])))
"""


def _answer(control: socket.socket, seconds: float) -> bytes:
    """The next message on the control socket; nothing where it is closed or silent."""
    control.settimeout(seconds)
    try:
        return control.recv(1)
    except OSError:  # includes TimeoutError
        return b""


def _environment(home: str) -> dict[str, str]:
    """What students' code sees of the grader's environment: where programs are, and a home of its own."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**kept, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


def _failed(kind: str, message: str, count: int) -> tuple[Observation, ...]:
    return (Observation(error=Failure(type=kind, message=message)),) * count
