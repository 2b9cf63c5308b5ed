"""How a sandboxed rank calls the others: through the broker, which does what is asked and counts it.

    comm.all_reduce(x) --> port --{"items": [call], "waits": 0}--> broker --{"takes": [x]}--> x is overwritten

Nothing here is trusted: whoever changes it changes what this rank asks for, and what it gets.
"""

from __future__ import annotations

import socket
from typing import Any

import torch

from autograder.sandbox.inside import in_place
from autograder.sandbox.wire import rank_messages, stream
from autograder.sandbox.wire.frame import MAX_FRAME
from course.cluster.calls import Call, Tensors
from course.cluster.protocol.failures import Stopped
from course.tree import Tree

# Of one message. The wire takes ten times as many calls, if they do not give too many tensors; a larger call is alone.
CALLS, BYTES = 100, MAX_FRAME // 2


class RankPort:
    """See course.cluster.protocol.comm.Port."""

    device = torch.device("cpu")
    needs_data = True

    def __init__(self, sock: socket.socket, token: str) -> None:
        self._sock, self._token = sock, token
        self._begun: list[_Work] = []
        self._count = 0

    def perform(self, call: Call, gives: Tensors, takes: Tensors) -> int:
        """See Port. A send is not answered: it is eager."""
        work = self._add(_Work(self, call, gives, takes, is_async=False))
        if call.verb == "send":
            self._flush()
            return 0
        return work.finish()

    def begin(self, call: Call, gives: Tensors, takes: Tensors) -> _Work:
        """See Port."""
        return self._add(_Work(self, call, gives, takes, is_async=True))

    def compute(self, seconds: float, label: str) -> None:
        """See Port."""
        self._send({"items": [*self._items(), {"compute": seconds, "label": label}], "waits": None})

    def _add(self, work: _Work) -> _Work:
        work.number, self._count = self._count, self._count + 1
        self._begun.append(work)
        return work

    def _items(self) -> list[Tree]:
        """The calls that were begun, with their tensors as they are now; what one message cannot hold is sent ahead."""
        items, size, begun = list[Tree](), 0, self._begun
        self._begun = []
        for work in begun:
            if items and (len(items) == CALLS or size + work.call.bytes > BYTES):
                self._send({"items": items, "waits": None})
                items, size = [], 0
            items.append(work.item())
            size += work.call.bytes
        return items

    def _flush(self) -> None:
        if self._begun:
            self._send({"items": self._items(), "waits": None})

    def finish(self, number: int, takes: Tensors) -> dict[str, Any]:
        """Wait for a call, whose reply is written into `takes`."""
        return self._reply({"items": self._items(), "waits": number}, takes)

    def is_done(self, number: int, seconds: float | None) -> bool:
        """Whether a call is done; waits so long for a yes."""
        self._flush()
        return bool(self._reply({"asks": number, "seconds": seconds})["done"])

    def end(self) -> None:
        """The rank has returned: what it began and did not wait for is begun all the same."""
        self._flush()

    def _send(self, tree: Tree) -> None:
        stream.send(self._sock, tree, token=self._token)

    def _reply(self, tree: Tree, takes: Tensors = ()) -> dict[str, Any]:
        self._send(tree)
        reply = in_place.receive(self._sock, takes)
        if "stopped" in reply:
            raise Stopped(reply["stopped"])
        return reply


class _Work:
    """See course.cluster.protocol.work.Pending."""

    def __init__(self, port: RankPort, call: Call, gives: Tensors, takes: Tensors, *, is_async: bool) -> None:
        self.call, self._port, self._gives, self._takes = call, port, gives, takes
        self._is_async = is_async
        self.number = self.sender = 0

    def item(self) -> Tree:
        """The call as a tree."""
        return rank_messages.from_call(self.call, self._gives, is_async=self._is_async)

    def finish(self) -> int:
        """Wait until what has come is written. Returns the sender."""
        reply = self._port.finish(self.number, self._takes)
        self.sender = int(reply["sender"])
        return self.sender

    def wait(self, seconds: float | None = None) -> bool:
        """See Pending."""
        if seconds is not None and not self._port.is_done(self.number, float(seconds)):
            return False
        self.finish()
        return True

    def is_completed(self) -> bool:
        """See Pending."""
        return self._port.is_done(self.number, None) and self.wait()
