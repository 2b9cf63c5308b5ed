"""A few processes that do the same thing with one task after the other.

    tasks --one at a time--> process 1 ... jobs --> outcomes, in the order in which they come

Nothing that happens to a process stops the others or hangs the caller: one that dies, or is silent for too long, is
replaced, and the task that it held is tried again. Each process has the next task at hand, so that it need not wait
while the caller is busy; no further one is taken from the caller, so that a batch of any length needs little memory.

Processes are spawned, not forked: nothing of the caller's memory is in them. Only RunnerError ends a batch: then
nothing can be run at all.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import pickle
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Generic

from autograder.engine.spawned import serve
from autograder.engine.worker import GOODBYE, READY, Outcome, Result, Task, Work
from autograder.sandbox import RunnerError, sweep
from course.cluster.processes.script import hidden_script

AT_HAND = 2  # tasks that a process has
TRIES = 3  # of one task, each in a process that died
PATIENCE = 1800.0  # seconds for one task; the runner's own limits end any submission long before
START_SECONDS = 300.0  # for a process to be ready: on a cold disk torch alone needs a minute


def spread(
    tasks: Iterable[Task], work: Work[Task, Result], jobs: int, *, patience: float = PATIENCE
) -> Generator[Outcome[Task, Result], None, None]:
    """The tasks among `jobs` processes. Close the iterator to end them early. Raises RunnerError.

    work      opened once in each process; it and all tasks and results must be picklable
    patience  seconds after which a process that is silent counts as dead
    """
    pool = _Pool(iter(tasks), work, patience)
    try:
        for cores in shares(jobs):
            pool.start(cores)
        while not pool.done():
            outcomes = pool.collect()
            pool.hand_out()  # before the caller sees the outcomes: nobody waits while they are recorded
            yield from outcomes
    finally:
        pool.end()


def shares(jobs: int) -> list[frozenset[int]]:
    """The cores of each of so many processes; nothing, which is no limit, where there are too few of them.

    A judge and its sandbox take turns, so that they need one core. Where another pair wakes up there, both wait.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [frozenset(cores[number::jobs] if jobs <= len(cores) else ()) for number in range(jobs)]


@dataclass(kw_only=True)
class _Held(Generic[Task]):
    """A task, and how many processes have died with it."""

    task: Task
    deaths: int = 0


@dataclass(kw_only=True)
class _Worker(Generic[Task]):
    """A process at work on the first task that it holds.

    cores  on which it may run
    until  when it must have said something, on the monotonic clock; free ones may be silent
    """

    process: SpawnProcess
    line: Connection
    cores: frozenset[int]
    until: float
    ready: bool = False
    held: collections.deque[_Held[Task]] = field(default_factory=collections.deque)


class _Pool(Generic[Task, Result]):
    """The caller's side. `again` holds tasks of processes that died, `stillborn` counts those that never were ready."""

    def __init__(self, tasks: Iterator[Task], work: Work[Task, Result], patience: float) -> None:
        self._tasks, self._work, self._patience = tasks, work, patience
        self._exhausted = False
        self._again: collections.deque[_Held[Task]] = collections.deque()
        self._stillborn = 0
        self._workers: list[_Worker[Task]] = []

    def start(self, cores: frozenset[int]) -> None:
        """One more process. Raises RunnerError."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, pickle.dumps(self._work), cores), daemon=True)
        try:
            with hidden_script(), _no_interrupt():
                process.start()
            until = time.monotonic() + START_SECONDS
            self._workers.append(_Worker(process=process, line=ours, cores=cores, until=until))
        except OSError as error:
            raise RunnerError(f"a process that grades must start, but {error.strerror or error}") from None
        finally:
            theirs.close()

    def done(self) -> bool:
        """Whether all tasks were taken, and nobody has one."""
        return self._exhausted and not self._again and not any(worker.held for worker in self._workers)

    def hand_out(self) -> None:
        """Tasks for the processes that are ready, as long as there are tasks; nobody has two before all have one."""
        for count in range(AT_HAND if all(each.ready for each in self._workers) else 1):
            for worker in [each for each in self._workers if each.ready and len(each.held) == count]:
                held = self._next()
                if held is None:
                    return
                try:
                    worker.line.send(held.task)
                except OSError:  # it died, which is no fault of this task
                    self._again.append(held)
                    continue
                worker.held.append(held)
                if not count:
                    worker.until = time.monotonic() + self._patience

    def collect(self) -> list[Outcome[Task, Result]]:
        """Wait until some process says something, dies, or is silent for too long."""
        first = min(worker.until for worker in self._workers)
        seconds = max(0.0, first - time.monotonic()) if first < math.inf else None
        heard = connection.wait([worker.line for worker in self._workers], seconds)
        outcomes = [self._listen(worker) for worker in list(self._workers) if worker.line in heard]
        for worker in [each for each in self._workers if each.until <= time.monotonic()]:
            worker.process.kill()
            outcomes.append(self._bury(worker, "was silent for too long"))
        return [outcome for outcome in outcomes if outcome is not None]

    def end(self) -> None:
        """End every process; it closes its sandbox first, unless that takes too long."""
        for worker in self._workers:
            worker.line.close()
            worker.process.terminate()
        deadline = time.monotonic() + GOODBYE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
        self._workers.clear()
        sweep()

    def _next(self) -> _Held[Task] | None:
        """A new task; when there is none left, one that is tried again."""
        for task in self._tasks:
            return _Held(task=task)
        self._exhausted = True
        return self._again.popleft() if self._again else None

    def _listen(self, worker: _Worker[Task]) -> Outcome[Task, Result] | None:
        """One message, or a death."""
        try:
            message: Any = worker.line.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        if isinstance(message, RunnerError):
            raise message
        if message == READY:
            worker.ready, worker.until, self._stillborn = True, math.inf, 0
            return None
        worker.held.popleft()
        worker.until = time.monotonic() + self._patience if worker.held else math.inf
        outcome: Outcome[Task, Result] = message
        return outcome

    def _bury(self, worker: _Worker[Task], why: str = "") -> Outcome[Task, Result] | None:
        """Replace a process that died. The task on which it was is tried again when all others were, or has failed."""
        worker.process.join(GOODBYE)
        reason = why or _ending(worker.process.exitcode)
        worker.process.kill()
        worker.process.join()
        sweep()
        worker.line.close()
        self._workers.remove(worker)
        self._stillborn += not worker.ready
        if self._stillborn >= TRIES:
            raise RunnerError(f"a process that grades must start, but {TRIES} in a row died; the last {reason}")
        self.start(worker.cores)
        if not worker.held:
            return None
        held = worker.held.popleft()
        self._again.extendleft(worker.held)
        held.deaths += 1
        if held.deaths == TRIES:
            return Outcome(task=held.task, failed=f"{TRIES} processes died that graded it; the last {reason}")
        self._again.append(held)
        return None


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """While a process starts: no Ctrl-C for it until it has left the terminal, and none for us."""
    resource_tracker.ensure_running()  # else the start of the first process does that, and lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ending(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    hint = ", as the system does where memory is short" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"
