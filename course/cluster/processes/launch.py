"""The launcher of ranks that are processes: starts them, hears their messages, prints what they print, ends them.

start  -->  all ready: go  -->  messages, output, deaths  -->  all have returned: end
                                      |-->  something broke: listen a moment for the reason, kill, raise

It works in the caller's thread: a notebook shows under a cell what the cell's own thread prints. It looks at the calls
of ranks that run well LOOK_SECONDS after it did so last, and at those of all ranks whenever something else happens, so
that a failure is told with all that came before it.

The standard library's forkserver is asked for each process. It would run the caller's script again in every one, to
find what the script defines; cloudpickle brings that by value, so the script is out of sight while processes start.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

import cloudpickle

from course.cluster.processes.messages import CHUNK, CallReader, Command, RankFailure, RankMessage
from course.cluster.processes.progress import Progress
from course.cluster.processes.rank_main import Assignment, main
from course.cluster.processes.script import hidden_script
from course.cluster.protocol.failures import FailureKind, RanksFailed, late
from course.cluster.protocol.rank_output import numbered
from course.cluster.protocol.transport import Run
from course.failing import message_of, type_of

START_SECONDS = 60.0  # for all ranks to be ready; not of the run's own time
GATHER_SECONDS = 0.2  # to hear the reason of a failure after the first sign of it
LINE_SECONDS = 0.3  # for a rank to say where it is
LEAVING_SECONDS = 5.0  # for ranks to flush and end
KILLED_SECONDS = 5.0  # for a process to be gone that was killed
LOOK_SECONDS = 0.01  # between looks at what ranks say of their calls
# Which of several failures is told: the others follow from it.
FIRST: tuple[FailureKind, ...] = ("Mismatch", "RankDied", "RankRaised", "Deadlock", "Leftover", "TimeLimit")
# What a rank would otherwise load itself: seconds in each. None starts a thread or CUDA.
# (torch's optimizers load torch._dynamo at their first step.)
PRELOADED = ["torch.distributed.fsdp", "torch.nn.parallel", "torch._dynamo", "course.cluster.processes.rank_main"]


class Launch:
    """One run of one process for each assignment."""

    def __init__(self, assignments: Sequence[Assignment], seconds: float | None) -> None:
        self._assignments, self._seconds = assignments, seconds
        self._ranks: list[RankProcess] = []
        self._progress = Progress(len(assignments), time.monotonic())
        self._values: dict[int, Any] = {}
        self._ready: set[int] = set()
        self._next_look = 0.0
        self._lines: dict[int, tuple[str, ...]] = {}
        self._failures: list[tuple[bool, int, RanksFailed]] = []  # whether others caused it, order of FIRST, what
        self._has_ended = False

    def run(self) -> Run:
        """To the end. Raises RanksFailed; no process of the run is left then."""
        try:
            for rank, each in enumerate(self._assignments):
                self._ranks.append(_start(rank, cloudpickle.dumps(each)))
            self._until(lambda: len(self._ready) == len(self._ranks), START_SECONDS, "be ready")
            self._progress = Progress(len(self._assignments), time.monotonic())
            self._say(Command("go"))
            self._until(lambda: self._progress.all_returned, self._seconds or math.inf, "end")
            self._note(self._progress.broken())
            self._raise_failure()
            self._has_ended = True
        finally:
            self._end()
        return Run(values=[self._values[rank.number] for rank in self._ranks], ledger=self._progress.ledger())

    def _until(self, is_over: Callable[[], bool], seconds: float, what: str) -> None:
        """Hear the ranks until it is over. Raises RanksFailed where something breaks, or at the time limit."""
        deadline = time.monotonic() + seconds
        while not is_over():
            self._hear(max(0.0, deadline - time.monotonic()))
            self._note_stuck()
            if self._failures:
                self._hear_for(GATHER_SECONDS)
                self._raise_failure()
            if time.monotonic() >= deadline and not is_over():
                self._note(self._late(seconds, what))
                self._raise_failure()

    # --- hearing ---

    def _hear_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._hear(left)

    def _hear(self, seconds: float) -> None:
        """Wait so long at most for something, and take what has come."""
        pause = max(0.0, self._next_look - time.monotonic()) if not self._progress.is_asked else 0.0
        limit = min(seconds, pause or math.inf)
        sources: dict[Any, tuple[RankProcess, str]] = {}
        for rank in self._ranks:
            sources |= {source: (rank, name) for name, source in rank.sources().items() if name != "calls" or not pause}
        if not sources:
            time.sleep(limit)
        ready = [sources[cast(Any, each)] for each in wait(list(sources), timeout=None if limit == math.inf else limit)]
        if any(name == "calls" for _, name in ready):
            self._look()
        for rank, name in sorted(ready, key=lambda item: item[1] == "death"):  # first what it said
            if name == "output":
                rank.show()
            elif name == "pipe":
                self._hear_messages(rank)
            elif name == "death":
                self._hear_messages(rank)
                self._note_death(rank)

    def _look(self) -> None:
        """Take what all ranks have said of their calls, in the order in which they made them."""
        self._next_look = time.monotonic() + LOOK_SECONDS
        found = [(rank.number, message) for rank in self._ranks for message in rank.calls.messages()]
        for number, message in sorted(found, key=lambda each: each[1].at):
            self._note_message(number, message)

    def _hear_messages(self, rank: RankProcess) -> None:
        for message in rank.messages():
            self._look()  # at the calls that it made before
            self._take(rank, message)
        self._look()  # a rank that has died says nothing more

    def _take(self, rank: RankProcess, message: RankMessage) -> None:
        match message.what:
            case "ready":
                self._ready.add(rank.number)
            case "line":
                self._lines[rank.number] = message.data
            case "failed":
                self._note_failure(rank.number, message.data)
            case "asks":  # the call that asks has been looked at
                pass
            case _:
                self._note_message(rank.number, message)

    def _note_message(self, rank: int, message: RankMessage) -> None:
        if any(failure.kind == "Mismatch" for _, _, failure in self._failures):
            return
        if message.what == "returned":
            self._keep(rank, message.data)
        try:
            self._progress.hear(rank, message)
        except RanksFailed as failure:
            self._note(failure)
        for waiting, number, src in self._progress.answers:
            self._ranks[waiting].say(Command("sender", number, src))
        self._progress.answers.clear()

    def _keep(self, rank: int, data: bytes) -> None:
        try:
            self._values[rank] = cloudpickle.loads(data)
        except Exception as error:  # whatever the value's own __setstate__ raises
            told = f"rank {rank} returned something that cannot be read here: {message_of(error)}"
            self._note(RanksFailed(told, kind="RankRaised", rank=rank, type=type_of(error)))

    # --- what breaks ---

    def _note(self, failure: RanksFailed | None, *, is_lost: bool = False) -> None:
        if failure is not None:
            self._failures.append((is_lost, FIRST.index(failure.kind), failure))

    def _note_stuck(self) -> None:
        if not self._failures and not self._progress.all_returned:
            self._note(self._progress.broken())

    def _note_failure(self, rank: int, failure: RankFailure) -> None:
        told, name, where, is_lost = failure
        self._note(RanksFailed(told, kind="RankRaised", rank=rank, type=name, where=where), is_lost=is_lost)

    def _note_death(self, rank: RankProcess) -> None:
        status = rank.ended()
        if self._progress.has_returned(rank.number):
            return
        how = f"ended by itself with exit status {status}, before it returned"
        if status < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by signal {-status} ({signal.Signals(-status).name})"
        self._note(RanksFailed(f"rank {rank.number} died: {how}", kind="RankDied", rank=rank.number))

    def _late(self, seconds: float, what: str) -> RanksFailed:
        running = [rank for rank in self._ranks if self._progress.is_running(rank.number)]
        for rank in running:
            rank.say(Command("where"))
        self._hear_for(LINE_SECONDS)
        rank = next((each for each in running if self._lines.get(each.number)), (running or self._ranks)[0])
        return late(seconds, rank.number, self._lines.get(rank.number, ()), self._progress.statuses(), what)

    def _raise_failure(self) -> None:
        """The reason, where something broke: what follows from others' failures comes last."""
        if self._failures:
            _, _, failure = min(self._failures, key=lambda item: item[:2])
            failure.ledger = self._progress.ledger()
            raise failure

    # --- the end ---

    def _say(self, command: Command) -> None:
        for rank in self._ranks:
            rank.say(command)

    def _end(self) -> None:
        """No process is left, and what was printed is out."""
        if self._has_ended:
            self._say(Command("end"))
            until = time.monotonic() + LEAVING_SECONDS
            while (left := until - time.monotonic()) > 0 and any(rank.is_alive() for rank in self._ranks):
                self._hear(left)
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.close()


class RankProcess:
    """A process that is the rank `number`.

    pipe    messages that wake the launcher come, commands go
    calls   what it says of its calls
    output  what it prints
    """

    def __init__(
        self, number: int, process: BaseProcess, pipe: Connection, calls: Connection, output: Connection
    ) -> None:
        self.number, self.calls = number, CallReader(calls)
        self._process, self._pipe, self._output = process, pipe, output
        self._is_open = {"pipe": True, "output": True, "death": True}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def sources(self) -> dict[str, Any]:
        """What can be waited for, by name: its pipes, its output, its death."""
        every = {"pipe": self._pipe, "output": self._output, "death": self._process.sentinel, "calls": self.calls}
        is_open = self._is_open | {"calls": self.calls.is_open}
        return {name: source for name, source in every.items() if is_open[name]}

    def say(self, command: Command) -> None:
        """Tell it something. One that has died hears nothing."""
        with contextlib.suppress(OSError):
            self._pipe.send(command)

    def messages(self) -> Iterator[RankMessage]:
        """What it has said, but for its calls."""
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
        self.calls.close()
        self._output.close()
        if not self.is_alive():
            self._process.close()


def _start(number: int, assignment: bytes) -> RankProcess:
    """Start the process of a rank, and send it its assignment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    here, there = context.Pipe()
    calls, made = context.Pipe(duplex=False)
    output, written = context.Pipe(duplex=False)
    process = context.Process(target=main, args=(number, there, made, written), name=f"rank {number}")
    with hidden_script(), _one_thread():
        process.start()
    for end in (there, made, written):
        end.close()
    rank = RankProcess(number, process, here, calls, output)
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
