"""Ending the threads of a run that is over: most end by themselves, and one that computes on is interrupted.

Python can end no thread from outside, and the threads of a notebook share a process with it: one that stayed would
compute on for ever, and hold its tensors. What there is: an exception that another thread asks for is raised in a
thread as soon as it runs Python's own code again (PyThreadState_SetAsyncExc). That has three weaknesses, and the
answers to them make up this module:

    it may come where a lock is held        at first only in the student's own code: a lock that a library holds then
                                            would never be released, and whoever needs it next would hang
    the student's code may swallow it       `except BaseException: continue` in a loop; so a trace function goes along
                                            that raises once more at the next line, which is in the handler or in the
                                            loop around it; and both are done again until the thread has ended
    it does not come in C code              `time.sleep(1000)` ends when it ends; after a second nobody waits any more,
                                            and such a thread sleeps for good from its next call on
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

from course.failing import in_own_code

SECONDS = 1.0  # for threads to end
ENDS_AT = f"{__package__}.simulation"  # whose frames end by themselves
GRACE_SECONDS = 0.1  # for a rank's own `finally`, before it is interrupted
ANYWHERE_SECONDS = 0.6  # until it is interrupted in a library, too


def leave(threads: Sequence[threading.Thread], *, interrupt: bool) -> None:
    """Wait for threads. With `interrupt` those that compute on are ended, again and again: some swallow the first."""
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


class _ThreadExit(SystemExit):
    """Raised in a thread that must end: Python prints nothing where a SystemExit ends a thread.

    PyThreadState_SetAsyncExc takes a class. The instance is made in the thread that is to end, so that this is the
    place where that thread's own frames can be traced. Tracing starts with `sys.settrace`, which covers what is called
    from now on; frames that are there already are traced only where `f_trace` is set in each. Not in those of the
    simulation: they must still be able to say that the rank has ended.
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
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_ThreadExit))
