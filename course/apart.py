"""Calling an answer so that its callers are not on its stack: what a probe knows stands in the frames of its functions.

    probe --> function of apart(answer) --> _call     | the way back is hidden meanwhile
                                            answer <--+

A frame of Python's holds the address of its caller's. In a process of the grader's that address is taken out of one
frame while the answer runs, and anywhere while a program runs that holds a line of an answer's. Who is determined finds
other ways to what his own process holds, so that few scores rest on this (docs/security.md names them). What only
properties read is withheld (`Exercise.withheld`), and what a case is called is not even sent
(`autograder.sandbox.wire.messages.from_cases`).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

WORD = ctypes.sizeof(ctypes.c_void_p)
OBJECT = object.__basicsize__  # bytes that each object begins with; in a frame object, then `f_back` and its frame
WORDS = 12  # of a frame that may hold the address of its caller's: there are fewer before its variables


def apart(answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer, whose calls do not see who called. A class stays the same class, with each of its functions so."""
    if isinstance(answer, FunctionType):
        return _hiding(answer)
    for name, part in list(vars(answer).items()) if isinstance(answer, type) else ():
        if isinstance(part, FunctionType):
            setattr(answer, name, _hiding(part))
        elif isinstance(part, staticmethod) and isinstance(part.__func__, FunctionType):
            setattr(answer, name, staticmethod(_hiding(part.__func__)))
    return answer


def _hiding(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        frames: list[FrameType] = []
        try:
            return _call(frames, function, arguments, options)
        finally:
            while frames:  # which the frame itself holds, too: what was handed in would live until cycles are freed
                _forget_caller(frames.pop())

    return called


def _call(
    frames: list[FrameType], function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call it while nothing leads from this frame to the caller's."""
    frames.append(sys._getframe())
    caller = _caller(frames[0])
    if caller is None:
        return function(*arguments, **options)
    address = caller.value
    caller.value = None
    try:
        return function(*arguments, **options)
    finally:
        caller.value = address


CALL = _call.__code__


def _caller(frame: FrameType) -> ctypes.c_void_p | None:
    """Where a running frame holds the address of its caller's; None in a Python that keeps it otherwise."""
    assert frame.f_back is not None
    own, wanted = _address(frame), _address(frame.f_back)
    words = (ctypes.c_void_p.from_address(own + place * WORD) for place in range(WORDS))
    return next((word for word in words if word.value == wanted), None)


def _address(frame: FrameType) -> int:
    """Of the frame that a frame object stands for."""
    return ctypes.c_void_p.from_address(id(frame) + OBJECT + WORD).value or 0


def _forget_caller(frame: FrameType) -> None:
    """When a frame has ended, whoever has kept it, or one below it, does not get from it to the caller's either."""
    back = ctypes.c_void_p.from_address(id(frame) + OBJECT)
    if back.value:
        held = ctypes.cast(back, ctypes.py_object)
        back.value = None
        ctypes.pythonapi.Py_DecRef(held)
