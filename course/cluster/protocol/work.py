"""A verb that was begun: how its rank waits for it, and what has come of it.

    work = comm.irecv(x)  -->  work.wait(), work.is_completed(), work.source_rank(), work.get_future()

Every transport has the same: what it keeps of a call is a Pending.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch

from course.cluster.calls import Call, Tensors
from course.errors import BadArgument, CourseError


class WaitTimedOut(CourseError, RuntimeError):
    """What was begun has not ended in the time that `wait` was given. A RuntimeError, as torch raises one."""


class Pending(Protocol):
    """A call that a transport has begun.

    sender  of what was received, as a rank of the group; of no meaning before the end, and of other calls
    """

    sender: int

    def wait(self, seconds: float | None) -> bool:
        """Wait, so long at most. Whether it has ended: what came is written then. Not called after that."""

    def is_completed(self) -> bool:
        """The same, without waiting."""


class Work:
    """A verb that was begun with `async_op=True`, `isend` or `irecv`.

    Until it has ended, which `wait` or `is_completed` says, what is sent must not be changed and what is received must
    not be read. A collective or receive that a rank began and never looks after is told as left over.
    """

    def __init__(self, pending: Pending, call: Call, tensors: Tensors) -> None:
        """For a communicator. tensors: what a future of it holds."""
        self._pending, self._call, self._tensors = pending, call, tensors
        self._is_over = False
        self._future: WorkFuture | None = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Returns True when the tensors of this rank may be used again. A second call returns at once.

        timeout  a timedelta or seconds, on simulated and brokered ranks those of the virtual clock; None: no limit

        Raises WaitTimedOut when it is over. The call goes on all the same, may be waited for once more, and is not told
        as left over.
        """
        seconds = _seconds(timeout)
        if not self._is_over:
            if not self._pending.wait(seconds):
                raise WaitTimedOut(
                    f"{self._call} must end within {seconds:g} s, but has not; look at what the others do meanwhile, "
                    "or wait longer"
                )
            self._end()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended; if so, its tensors may be used as after `wait`. Who asks goes on at once.

        On the virtual clock a question takes no time. Who asks again and does nothing meanwhile goes on at the next
        time at which something happens, so that a loop that asks until it is so ends when the call does.
        """
        if not self._is_over and self._pending.is_completed():
            self._end()
        return self._is_over

    def source_rank(self) -> int:
        """Who sent what has been received, as a rank of the communicator. torch has it as `_source_rank`.

        Raises BadArgument before the end, and where nothing was received.
        """
        if self._call.verb != "recv":
            raise BadArgument(f"only a receive has a sender, got {self._call}")
        if not self._is_over:
            raise BadArgument("a sender is known when its message has come; wait for the receive first")
        return self._pending.sender

    _source_rank = source_rank

    def get_future(self) -> WorkFuture:
        """A future of the list of tensors that the call writes, or of the one that it sends."""
        if self._future is None:
            self._future = WorkFuture(self.wait, self.is_completed)
            if self._is_over:
                self._future.set_result(list(self._tensors))
        return self._future

    def _end(self) -> None:
        self._is_over = True
        if self._future is not None:
            self._future.set_result(list(self._tensors))


class WorkFuture(torch.futures.Future[Any]):
    """A torch future of a Work, or of what `then` makes of one.

    torch's own is completed by a thread of the library. This one is completed by its rank: when it waits for the
    future, for what `then` made of it or for the work, or asks and it is so. Callbacks run at that moment. C++ cannot
    wait for it: neither `torch.futures.collect_all` nor a hook of DDP that returns it.
    """

    def __init__(self, wait: Callable[[], object], is_completed: Callable[[], bool]) -> None:
        super().__init__()
        self._wait, self._is_completed = wait, is_completed

    def wait(self) -> Any:
        """The value, when it has come."""
        self._wait()
        return super().wait()

    def done(self) -> bool:
        """Whether it has come."""
        return super().done() or self._is_completed()

    def then(self, callback: Callable[[Any], Any]) -> WorkFuture:
        """The future of `callback(this future)`, which is called when the value has come."""
        after = WorkFuture(self.wait, self.done)

        def go_on(_: object) -> None:
            try:
                after.set_result(callback(self))
            except Exception as error:  # whatever the callback raises is the outcome
                after.set_exception(error)

        self.add_done_callback(go_on)
        return after


def _seconds(timeout: timedelta | float | None) -> float | None:
    """Raises BadArgument."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is None or (type(seconds) in (int, float) and 0 < seconds < math.inf):
        return seconds
    raise BadArgument(f"timeout must be a timedelta or a number of seconds above 0, got {timeout!r}")
