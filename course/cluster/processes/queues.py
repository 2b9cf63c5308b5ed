"""What a rank does beside its own code: it waits for messages in threads, and holds those that it has sent.

irecv  -->  Queues: a thread for each sender, group and tag  -->  WorkItem: done
send   -->  gloo; HeldSends until it was received
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

HELD_COUNT, HELD_BYTES = 256, 16 << 20  # messages that are held before anybody waits for them
LARGE_BYTES, SPARE_BYTES = 1 << 16, 16 << 20  # memory of a message that is kept for another; of all of these


class WorkItem:
    """Something that a queue does. `wait` raises what it raised."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, in the queue's thread or in any other."""
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


class Queues:
    """Things that one rank does beside its own code: a queue and a thread for each name, which does one after another.

    What waits for a message of one rank holds up nothing that waits for others.
    """

    def __init__(self) -> None:
        self._queues: dict[object, queue.SimpleQueue[WorkItem]] = {}
        self._last: dict[object, WorkItem] = {}
        self._lock = threading.Lock()

    def put(self, name: object, item: WorkItem, *, is_kept: bool = True) -> WorkItem:
        """Have an item done after the others of the queue.

        is_kept  whether the queue stays when it is empty: programs may have a tag for each message
        """
        with self._lock:
            if name not in self._queues:
                self._queues[name] = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(name, is_kept), name=str(name), daemon=True).start()
            self._last[name] = item
            self._queues[name].put(item)
        return item

    def is_idle(self, name: object) -> bool:
        """Whether all items of the queue are done."""
        last = self._last.get(name)
        return last is None or last.is_done()

    def _serve(self, name: object, is_kept: bool) -> None:
        items, is_over = self._queues[name], False
        while not is_over:
            items.get().run()
            with self._lock:
                if is_over := not is_kept and items.empty():
                    del self._queues[name], self._last[name]


class HeldSends:
    """Messages that gloo may still be sending.

    A gloo send ends when the receiver has asked for the message, is dropped when nobody holds it any longer, and says
    that it has ended only to one who waits. `send` is eager here, and a thread that waits for each would take longer
    than the message: so messages are held, and a thread waits for many of them, to let them go. Memory of large ones is
    used again: the system clears each page of new memory, which takes ten times as long as to copy into it.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._held: defaultdict[tuple[object, bool], list[tuple[Any, Tensor]]] = defaultdict(list)
        self._spare: defaultdict[tuple[object, object], list[Tensor]] = defaultdict(list)
        self._count = self._bytes = self._spare_bytes = 0
        self._lock = threading.Lock()

    def copied(self, tensor: Tensor) -> Tensor:
        """A contiguous copy, in memory of a message that was received where there is some."""
        spare = self._taken(tensor) if tensor.nbytes >= LARGE_BYTES else None
        if spare is None:
            return tensor.detach().clone(memory_format=torch.contiguous_format)
        return spare.copy_(tensor.detach())

    def _taken(self, tensor: Tensor) -> Tensor | None:
        with self._lock:
            alike = self._spare[tensor.dtype, tensor.shape]
            self._spare_bytes -= tensor.nbytes if alike else 0
            return alike.pop() if alike else None

    def add(self, way: object, work: Any, data: Tensor, is_kept: bool) -> None:
        """Hold a message, which goes after the others of its way. is_kept: see Queues.put."""
        with self._lock:
            self._held[way, is_kept].append((work, data))
            self._count, self._bytes = self._count + 1, self._bytes + data.nbytes
            if self._count < HELD_COUNT and self._bytes < HELD_BYTES:
                return
            held, self._held, self._count, self._bytes = self._held, defaultdict(list), 0, 0
        for (name, stays), messages in held.items():
            self._queues.put(name, WorkItem(partial(self._let_go, messages)), is_kept=stays)

    def _let_go(self, messages: list[tuple[Any, Tensor]]) -> None:
        """Each when it was received."""
        messages.reverse()
        while messages:
            messages[-1][0].wait()
            _, data = messages.pop()
            with self._lock:
                if data.nbytes >= LARGE_BYTES and self._spare_bytes + data.nbytes <= SPARE_BYTES:
                    self._spare[data.dtype, data.shape].append(data)
                    self._spare_bytes += data.nbytes
