"""Ctrl-C and SIGTERM: a batch stops where it is whole, and says how to go on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

ASKS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """Somebody asked for an end. `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Stop:
    """While this is entered, either signal raises Stopped, once, but never within `whole`.

    In a thread that is not the main one signals stay as they are: they do not come there.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._whole = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._ask) for each in ASKS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What is done in here is done to its end; whoever asked meanwhile is heard after it."""
        self.check()
        self._whole = True
        try:
            yield
        finally:
            self._whole = False
        self.check()

    def check(self) -> None:
        """Raises Stopped where somebody has asked: also where the first one was swallowed on its way."""
        if self._asked:
            raise Stopped(self._asked)

    def _ask(self, number: int, frame: object) -> None:
        if self._asked:
            return  # the end is under way
        self._asked = number
        if not self._whole:
            raise Stopped(number)
