"""The warm process, as the grader holds it: it is started when it is needed, told what to do, and ended.

start --bubblewrap--> warm process (warm.py) <--control messages-- tell
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from autograder.sandbox.outside.folder import Folder
from autograder.sandbox.outside.loading import REPLY_SECONDS, RunnerError, WarmProcessEnded, byte
from autograder.sandbox.outside.stage import ours, stage
from autograder.sandbox.wire.messages import LONGEST
from autograder.sandbox.wire.policy import COURSE, command, environment

START_SECONDS = 120.0  # a cold disk needs a minute for torch
STARTS = 3  # in a row, where an earlier one went well: memory may be short for a moment
PAUSE = 1.0  # seconds between them


class WarmProcess:
    """program: the system call filter, None for no isolation. display, units: as in `open_runner`."""

    def __init__(self, program: bytes | None, *, display: bool, units: Collection[str]) -> None:
        self._program, self._display, self._units = program, display, units
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._folder: Folder | None = None
        self._one_at_a_time = threading.Lock()
        self._stood = False

    def start(self) -> Path:
        """Make sure that the warm process is there, and tell its folder. Raises RunnerError."""
        if self._folder is not None and self._process is not None and self._process.poll() is None:
            return self._folder.path
        for _ in range(STARTS - 1 if self._stood else 0):
            with contextlib.suppress(RunnerError, OSError):
                return self._start()
            time.sleep(PAUSE)
        return self._start()

    def _start(self) -> Path:
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
            told = [where, *map(str, [*descriptors, int(self._display)]), *self._units]
            argv = [sys.executable, "-I", "-c", _PROGRAM, *told]
            isolated = self._program is not None
            self._process = subprocess.Popen(
                command(argv, course=course, hidden=ours()) if isolated else argv,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=None if isolated else environment(str(folder)),
                start_new_session=True,
            )
        if byte(self._control, START_SECONDS, LONGEST) == b"":
            said = (folder / "log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
            self.close()
            raise RunnerError(
                f"the process that runs answers must start, but it ended or was silent ({said or 'it said nothing'}); "
                "`autograder doctor` tells which protection is missing"
            )
        self._stood = True
        return folder

    def tell(self, message: dict[str, Any], passed: socket.socket | None = None) -> dict[str, Any]:
        """One control message and its reply. Raises WarmProcessEnded; `start` then begins another."""
        with self._one_at_a_time:
            reply = b""
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.settimeout(REPLY_SECONDS)
                    socket.send_fds(self._control, [json.dumps(message).encode()], [passed.fileno()] if passed else [])
                    reply = self._control.recv(LONGEST)
            if not reply:
                self.close()
        if not reply:
            raise WarmProcessEnded("the process that runs answers ended, or was silent, in the middle of a submission")
        return dict(json.loads(reply))

    def close(self) -> None:
        """End the warm process, which ends its containers, and remove its folder."""
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
    from autograder.sandbox.inside.warm import main, warm_up
    warm_up(with_display=bool(int(sys.argv[4])), units=sys.argv[5:])
with os.fdopen(int(sys.argv[3]), "rb") as file:
    program = file.read()
main(socket.socket(fileno=int(sys.argv[2])), program or None)
"""
