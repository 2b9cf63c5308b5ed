"""Things that one rank does beside its own code, each lane in order: messages to one rank, or from one rank.

A gloo send ends only when the receiver asks for the message. `send` is eager here, so that a thread of its own waits
for each receiver: with one thread for all, a message that nobody asks for yet would hold up those of others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Task:
    """Something that a lane does. `wait` raises what it raised."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, in the lane's thread or in any other."""
        try:
            self._action()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self) -> None:
        """Until it is done."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def is_done(self) -> bool:
        """Whether `wait` returns at once."""
        return self._done.is_set()


class Lanes:
    """A thread for each name that has something to do."""

    def __init__(self) -> None:
        self._queues: dict[object, queue.SimpleQueue[Task]] = {}
        self._last: dict[object, Task] = {}
        self._lock = threading.Lock()

    def put(self, name: object, task: Task) -> Task:
        """Have a task done after the others of the lane."""
        with self._lock:
            if name not in self._queues:
                self._queues[name] = queue.SimpleQueue()
                threading.Thread(target=_serve, args=(self._queues[name],), name=str(name), daemon=True).start()
            self._last[name] = task
            self._queues[name].put(task)
        return task

    def is_idle(self, name: object) -> bool:
        """Whether all tasks of the lane are done."""
        last = self._last.get(name)
        return last is None or last.is_done()


def _serve(tasks: queue.SimpleQueue[Task]) -> None:
    while True:
        tasks.get().run()
