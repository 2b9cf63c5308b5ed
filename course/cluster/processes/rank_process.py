"""One process of a run, as the launcher sees it; and the server that starts it.

The standard library's forkserver is asked for each process. It would run the caller's script again in every one, to
find what the script defines; cloudpickle brings that by value, so the script is out of sight while processes start.
"""

from __future__ import annotations

import codecs
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from course.cluster.processes.messages import Command, RankMessage
from course.cluster.processes.rank_main import main
from course.cluster.processes.script import hidden_script
from course.cluster.protocol.rank_output import numbered

# What a rank would otherwise load itself: seconds in each. None starts a thread or CUDA.
# (torch's optimizers load torch._dynamo at their first step.)
PRELOADED = ["torch.distributed.fsdp", "torch.nn.parallel", "torch._dynamo", "course.cluster.processes.rank_main"]
KILLED_SECONDS = 5.0  # for a process to be gone that was killed
CHUNK = 1 << 16


class RankProcess:
    """A process that is the rank `number`. pipe: messages come, commands go; output: what it prints."""

    def __init__(self, number: int, process: BaseProcess, pipe: Connection, output: Connection) -> None:
        self.number = number
        self._process, self._pipe, self._output = process, pipe, output
        self._is_open = {"pipe": True, "output": True, "death": True}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def sources(self) -> dict[str, Any]:
        """What can be waited for, by name: its pipe, its output, its death."""
        every = {"pipe": self._pipe, "output": self._output, "death": self._process.sentinel}
        return {name: source for name, source in every.items() if self._is_open[name]}

    def say(self, command: Command) -> None:
        """Tell it something. One that has died hears nothing."""
        with contextlib.suppress(OSError):
            self._pipe.send(command)

    def messages(self) -> Iterator[RankMessage]:
        """What it has said."""
        try:
            while self._is_open["pipe"] and self._pipe.poll():
                yield self._pipe.recv()
        except (EOFError, OSError):
            self._is_open["pipe"] = False

    def show(self) -> None:
        """Print the lines that have come, with its number."""
        data = os.read(self._output.fileno(), CHUNK)
        self._is_open["output"] = bool(data)
        *lines, self._begun = (self._begun + self._decoder.decode(data)).split("\n")
        self._print(lines)

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            sys.stdout.write(numbered(self.number, line))
        sys.stdout.flush()  # a script's output may go into a pipe or a file, whose reader waits for it

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def ended(self) -> int:
        """Its exit status, or minus the signal that killed it, when it has ended."""
        self._is_open["death"] = False
        self._process.join(KILLED_SECONDS)
        return self._process.exitcode or 0

    def kill(self) -> None:
        """End it, with all that it started in its own session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        if self.is_alive():
            self._process.kill()

    def close(self) -> None:
        """When it was ended: print the rest of its output, and forget it."""
        self._process.join(KILLED_SECONDS)
        while self._is_open["output"] and self._output.poll():
            self.show()
        if self._begun:
            self._print([self._begun])
        self._pipe.close()
        self._output.close()
        if not self.is_alive():
            self._process.close()


def start(number: int, assignment: bytes) -> RankProcess:
    """Start the process of a rank, and send it its assignment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    here, there = context.Pipe()
    output, written = context.Pipe(duplex=False)
    process = context.Process(target=main, args=(number, there, written), name=f"rank {number}")
    with hidden_script(), _one_thread():
        process.start()
    there.close()
    written.close()
    rank = RankProcess(number, process, here, output)
    with contextlib.suppress(OSError):  # it has died: that is told soon
        here.send_bytes(assignment)
    return rank


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for the libraries that the server loads when it starts."""
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads
