"""Ending the threads of a run that is over: most end by themselves, and one that computes on is interrupted."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

from course.failing import in_own_code

SECONDS = 1.0  # for threads to end
ENDS_AT = "course.cluster.simulation"  # whose frames end by themselves
GRACE_SECONDS = 0.1  # for a rank's own `finally`, before it is interrupted
ANYWHERE_SECONDS = 0.6  # until it is interrupted in a library, too


def leave(threads: Sequence[threading.Thread], *, interrupt: bool) -> None:
    """Wait for threads. With `interrupt` those that compute on are ended, again and again: some swallow the first.

    At first only in the student's own code: in a library's they may have a lock, which nobody would release.
    """
    begun = time.monotonic()
    alive = [each for each in threads if each.is_alive()]
    while alive and (waited := time.monotonic() - begun) < SECONDS:
        if interrupt and waited > GRACE_SECONDS:
            frames = sys._current_frames()
            for each in alive:
                if waited > ANYWHERE_SECONDS or in_own_code(frames.get(each.ident or 0)):
                    _interrupt(each)
        alive[0].join(SECONDS / 100)
        alive = [each for each in alive if each.is_alive()]


class _Ended(SystemExit):
    """Raised in a thread that must end, which says nothing of a SystemExit.

    Where it is swallowed, the next line raises again: that is outside the `try`, in the handler or in the loop.
    """

    def __init__(self) -> None:
        frame = sys._getframe().f_back
        while frame is not None and frame.f_globals.get("__name__") != ENDS_AT:
            frame.f_trace = _end
            frame = frame.f_back
        sys.settrace(_end)


def _end(frame: FrameType, event: str, arg: object) -> None:
    """A trace function; Python removes it when it raises."""
    raise SystemExit


def _interrupt(thread: threading.Thread) -> None:
    """End a thread, as soon as it runs Python's own code again."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Ended))
