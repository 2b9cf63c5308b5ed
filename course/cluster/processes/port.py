"""A rank's port over torch.distributed: gloo between processes of one machine, NCCL between GPUs.

    perform(call)  --reported-->  send: begun, and held;  recv: wait for the sender;  else: see backends.py

Messages go over one connection of the whole run, with gloo tags of their own for each group and tag, so that two ranks
of a group can speak while a third does something else. NCCL knows no tags, and one of its communicators does one thing
at a time: there each direction of each pair has a communicator of its own for each group and tag, made when it is first
used. (That part has only been run with gloo beneath it, as the tests do: two GPUs were not at hand.)
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from course.cluster.calls import Call, Communicator, Tensors
from course.cluster.processes.backends import Begun, begin, connected, copied, is_plain, room, unpack
from course.cluster.processes.messages import CallLog
from course.cluster.processes.queues import HeldSends, Queues, WorkItem

POLL_SECONDS = 0.0005  # between looks at a call whose wait has an end: NCCL's own cannot be given one


class DistributedPort:
    """See Port. One for each process.

    store     where the ranks find each other: a FileStore or TCPStore that all have
    log       hears of each call before it is made
    device    where tensors lie; NCCL on "cuda"
    channels  whether each direction of each pair has a connection of its own; None: with NCCL
    """

    needs_data = True

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        log: CallLog,
        *,
        device: torch.device,
        seconds: float,
        channels: bool | None = None,
    ) -> None:
        self.device = device
        self._store, self._rank, self._log, self._seconds = store, rank, log, seconds
        self._channels = device.type == "cuda" if channels is None else channels
        self._backends: dict[str, Any] = {}
        self._groups: dict[Communicator, Any] = {}
        self._queues = Queues()
        self._held = HeldSends(self._queues)
        self._asking: set[Communicator] = set()
        self._asked: dict[int, _ReceiveWork] = {}
        self._lock = threading.Lock()
        self._all = self._groups[tuple(range(size)), 0] = self._backend("all", rank, size)

    def perform(self, call: Call, gives: Tensors, takes: Tensors) -> int:
        """See Port."""
        if call.verb == "recv" and self._must_queue(call):
            return self._receive(call, takes[0], is_async=False).finish()
        number, sender = self._log.called(call, is_async=False), 0
        if call.verb == "send":
            self._send(call, gives[0])
        elif call.verb == "recv":
            sender = call.group.index(self.take(call, takes[0], call.peer))
        else:
            begun = begin(self._backend_of(call), call, gives, takes, in_place=True)
            begun.work.wait()
            begun.finish()
        self._log.ended(number)
        return sender

    def begin(self, call: Call, gives: Tensors, takes: Tensors) -> DistributedWork:
        """See Port."""
        if call.verb == "recv":
            return self._receive(call, takes[0], is_async=True)
        number = self._log.called(call, is_async=True)
        if call.verb == "send":
            self._send(call, gives[0])
            return DistributedWork(self._log, number)
        if call.communicator not in self._groups:
            self._log.waits(number)  # for all to join, which is when they are connected
        return _CollectiveWork(self._log, number, begin(self._backend_of(call), call, gives, takes, in_place=False))

    def compute(self, seconds: float, label: str) -> None:
        """See Port."""
        self._log.computes(seconds, label)

    def heard_sender(self, number: int, src: int) -> None:
        """The launcher says that a receive takes the next message of the rank `src`."""
        with self._lock:
            receive = self._asked.pop(number)
        receive.src = src
        self._queues.put(("from", src, *_way_of(receive.call)), receive.item, is_kept=not receive.call.tag)

    def _backend_of(self, call: Call) -> Any:
        """That of the group of a collective, which is made by its first one."""
        backend = self._groups.get(call.communicator)
        if backend is None:
            group, name = call.group, f"ranks {call.communicator}"
            backend = self._groups[call.communicator] = self._backend(name, group.index(self._rank), len(group))
        return backend

    def _backend(self, name: str, rank: int, size: int) -> Any:
        if name not in self._backends:
            self._backends[name] = connected(self._store, name, rank, size, device=self.device, seconds=self._seconds)
        return self._backends[name]

    # --- messages ---

    def _send(self, call: Call, tensor: Tensor) -> None:
        if not self._channels:
            way, data = _way_of(call), self._held.copied(tensor)
            self._held.add(("to", call.peer, *way), self._all.send([data], call.named, _tag(way)), data, not call.tag)
            return
        data, side = copied(tensor), _Side(self.device)

        def deliver() -> None:
            with side:
                backend, _, dst, tag = self._way(call, self._rank, call.named)
                backend.send([data], dst, tag).wait()

        self._queues.put(("to", call.peer, *_way_of(call)), WorkItem(deliver), is_kept=not call.tag)

    def _must_queue(self, call: Call) -> bool:
        """Whether a receive has to wait for others of its rank, or for the launcher to say whose turn it is.

        When a group has received from anybody, the launcher says it of all of its receives.
        """
        if call.peer is None and self._log.is_launched:
            self._asking.add(call.communicator)
        return call.communicator in self._asking or not self._queues.is_idle(("from", call.peer, *_way_of(call)))

    def _receive(self, call: Call, tensor: Tensor, is_async: bool) -> _ReceiveWork:
        """In the order of each sender."""
        is_asking = self._must_queue(call) and call.communicator in self._asking
        receive = _ReceiveWork(self._log, self, call, tensor)
        with self._lock:  # the launcher's answer may come before the number is known here
            receive.number = self._log.called(call, is_async=is_async, is_asking=is_asking)
            if is_asking:
                self._asked[receive.number] = receive
                return receive
        self._queues.put(("from", call.peer, *_way_of(call)), receive.item, is_kept=not call.tag)
        return receive

    def take(self, call: Call, tensor: Tensor, src: int | None) -> int:
        """Wait for the next message of `src` and write it. Returns the sender."""
        data = tensor.detach() if is_plain(tensor) and not self._channels else room(tensor)
        if src is None:
            work = self._all.recv_anysource([data], _tag(_way_of(call)))
            work.wait()
            src = int(work._source_rank())
        else:
            backend, sender, _, tag = self._way(call, src, self._rank)
            backend.recv([data], sender, tag).wait()
        unpack(data, tensor)
        return src

    def _way(self, call: Call, src: int, dst: int) -> tuple[Any, int, int, int]:
        """A backend, the places of the sender and of the receiver in it, and a tag."""
        if not self._channels:
            return self._all, src, dst, _tag(_way_of(call))
        return self._backend(f"{src} to {dst} of {_way_of(call)}", int(self._rank == dst), 2), 0, 1, 0


class DistributedWork:
    """See protocol.work.Pending. This one is a send: its tensor was copied when it was begun."""

    def __init__(self, log: CallLog, number: int = 0) -> None:
        self._log, self.number, self.sender = log, number, 0

    def wait(self, seconds: float | None) -> bool:
        """See Pending. The launcher hears of a wait that has an end only when it was in vain: it is no deadlock."""
        if seconds is not None and not self._is_done_within(seconds):
            self._log.gives_up(self.number)
            return False
        if not self._is_done():
            self._log.waits(self.number)
        self.finish()
        return True

    def finish(self) -> int:
        """Wait, and write what has come. Returns the sender's place in the group, where there is one."""
        self.sender = self._finish()
        self._log.ended(self.number)
        return self.sender

    def is_completed(self) -> bool:
        """See Pending."""
        if not self._is_done():
            return False
        self.finish()
        return True

    def _is_done_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._is_done():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _is_done(self) -> bool:
        return True

    def _finish(self) -> int:
        return 0


class _CollectiveWork(DistributedWork):
    def __init__(self, log: CallLog, number: int, begun: Begun) -> None:
        super().__init__(log, number)
        self._begun = begun

    def _is_done(self) -> bool:
        return bool(self._begun.work.is_completed())

    def _finish(self) -> int:
        self._begun.work.wait()
        self._begun.finish()
        return 0


class _ReceiveWork(DistributedWork):
    """src: from whom, as a rank of the run; None until it is known."""

    def __init__(self, log: CallLog, port: DistributedPort, call: Call, tensor: Tensor) -> None:
        super().__init__(log)
        self.call, self.src = call, call.peer
        self.item = WorkItem(self._run)
        self._port, self._tensor, self._side = port, tensor, _Side(port.device)

    def _is_done(self) -> bool:
        return self.item.is_done()

    def _run(self) -> None:
        with self._side:
            self.src = self._port.take(self.call, self._tensor, self.src)

    def _finish(self) -> int:
        self.item.wait()
        self._side.join()
        assert self.src is not None
        return self.call.group.index(self.src)


class _Side(contextlib.AbstractContextManager[None]):
    """On CUDA: a stream beside the rank's own, so that a message that waits holds up nothing else. It starts after what
    the rank has queued when this is made; `join` lets the rank's stream wait for it. Elsewhere: nothing."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._entered = contextlib.ExitStack()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def __enter__(self) -> None:
        if self._stream is not None:
            self._entered.enter_context(torch.cuda.stream(self._stream))

    def __exit__(self, *exception: object) -> None:
        self._entered.close()

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def _way_of(call: Call) -> tuple[object, ...]:
    """What messages between two ranks must share to be kept in order."""
    return call.communicator, call.tag


@lru_cache
def _tag(way: tuple[object, ...]) -> int:
    """The same number on both sides, for all messages of one way."""
    return zlib.crc32(repr(way).encode()) & 0x7FFFFFFF
