"""One task after the other: in this process, or at the other end of a pipe.

    caller --task--> do --Outcome--> caller

A process that serves tasks has left the terminal, so that a Ctrl-C there comes to its caller alone. It ends, and closes
what it opened, when the caller hangs up, sends SIGTERM, or is gone, even killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeAlias, TypeVar

from autograder.sandbox import RunnerError

Task = TypeVar("Task")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[], AbstractContextManager[Callable[[Task], Result]]]

GOODBYE = 15.0  # seconds for a process to close its sandbox before it is killed
READY = "ready"


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[Task, Result]):
    """What came of one task: a result, or why there is none.

    trace  of an exception, for the log
    """

    task: Task
    result: Result | None = None
    failed: str = ""
    trace: str = ""


def in_turn(tasks: Iterable[Task], work: Work[Task, Result]) -> Generator[Outcome[Task, Result], None, None]:
    """One task after the other, in this process. Raises RunnerError."""
    with work() as do:
        for task in tasks:
            yield _attempt(do, task)


def serve(line: Connection, work: Work[Any, Any], cores: Collection[int] = ()) -> None:
    """What a process of its own does: one task after the other, until the caller hangs up or is gone.

    cores  on which it runs, with all that it starts; any if empty
    """
    _on_its_own()
    with contextlib.suppress(OSError):  # it is a matter of speed alone
        if cores:
            os.sched_setaffinity(0, cores)
    try:
        with work() as do:
            try:
                line.send(READY)
                while True:
                    _reply(line, _attempt(do, line.recv()))
            finally:  # who hangs up also sends SIGTERM: it must not cut short the closing that has begun
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except (EOFError, ConnectionError):
        return
    except RunnerError as error:
        with contextlib.suppress(OSError):
            line.send(RunnerError(str(error)))


def _attempt(do: Callable[[Task], Result], task: Task) -> Outcome[Task, Result]:
    try:
        return Outcome(task=task, result=do(task))
    except RunnerError:
        raise
    except Exception as error:  # a slip of ours, which must not cost the others their results
        return Outcome(task=task, failed=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _reply(line: Connection, outcome: Outcome[Any, Any]) -> None:
    try:
        line.send(outcome)
    except ConnectionError:
        raise
    except Exception as error:  # it cannot be pickled
        line.send(Outcome(task=outcome.task, failed=f"the result cannot be sent: {type(error).__name__}: {error}"))


def _on_its_own() -> None:
    """A session without a terminal. The caller has blocked SIGINT until here; one that waits is dropped."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _leave(number: int, frame: object) -> None:
    """Unwind, so that what is open is closed; once is enough."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def _outlive_nobody() -> None:
    """When the caller is gone, leave as on SIGTERM; if that takes too long, at once."""
    caller = parent_process()
    if caller is not None:
        caller.join()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(GOODBYE)
    os._exit(1)
