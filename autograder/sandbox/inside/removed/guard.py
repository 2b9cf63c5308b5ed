"""No operator of torch while an answer of plain numbers runs; before and after it torch works.

    probe (makes tensors) -> guarded answer -> any operator: RemovedError
    probe <- result <- ...                     observe(result) works again

Nothing is switched on and off, which a time-out could interrupt: the mode stays, and looks at who is calling.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType, FunctionType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from autograder.sandbox.inside.removed.refusal import refusal
from course.performing.exercise import Answer


def guarded(answer: Answer) -> Answer:
    """The answer, inside whose calls every operator raises RemovedError, in the thread that calls this.

    A class stays the same class, with each of its methods guarded.
    """
    _REFUSING.__enter__()  # type: ignore[no-untyped-call]
    if not isinstance(answer, type):
        return _watched(answer)
    for name, method in list(vars(answer).items()):
        if isinstance(method, FunctionType):
            setattr(answer, name, _watched(method))
    return answer


def over() -> None:
    """For the answer of another exercise, which is not guarded: nobody looks at operators any more."""
    _REFUSING.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _watched(function: Answer) -> Answer:
    @functools.wraps(function)
    def call_of_answer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call_of_answer


_CALL = _watched(len).__code__


class _Refusing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands operators on, unless a guarded call is among the callers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _in_answer(sys._getframe()):
            raise refusal("torch")
        return func(*args, **(kwargs or {}))


_REFUSING = _Refusing()  # type: ignore[no-untyped-call]


def _in_answer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return frame is not None
