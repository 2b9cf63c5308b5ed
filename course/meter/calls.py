"""Counting calls: of a function, of a module's forward, or of the hooks that a backward comes to."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from course.errors import BadArgument

P = ParamSpec("P")
R = TypeVar("R")


class Counted(Generic[P, R]):
    """A function that counts its calls, also those that raise.

    calls   how many there were
    shapes  for each call the shape of its first tensor argument, () where there was none
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.calls = 0
        self.shapes: list[tuple[int, ...]] = []
        self._function = function

    @property
    def rows(self) -> list[int]:
        """For each call the size of the first dimension, which is the batch's by custom; 1 where there was none."""
        return [shape[0] if shape else 1 for shape in self.shapes]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Counts, then calls."""
        self.calls += 1
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        self.shapes.append(tuple(given[0].shape) if given else ())
        return self._function(*args, **kwargs)


def counted(function: Callable[P, R]) -> Counted[P, R]:
    """The same function, which counts its calls: `f = counted(f); f(x); f.calls == 1`. Raises BadArgument for none."""
    if not callable(function):
        raise BadArgument(
            f"only a function counts its calls, got {function!r}; write `f = counted(f)`, and call that f"
        )
    return Counted(function)


@contextmanager
def forward_calls(module: nn.Module) -> Iterator[Counted[..., object]]:
    """Counts calls of `module(...)` and of `module.forward(...)` in the body of the `with`."""
    own = vars(module).get("forward")  # of a `forward_calls` around this one
    counter: Counted[..., object] = Counted(module.forward)
    module.forward = counter
    try:
        yield counter
    finally:
        if own is None:
            del module.forward  # the class's own shows again
        else:
            module.forward = own


def hooks_called(loss: Tensor) -> int:
    """Goes backward from the loss and counts the hooks in Python that it calls, those of autograd's nodes too, which
    nobody can list. A torch.autograd.Function's backward is none, nor is what a hook itself calls.
    """
    called = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal called
        if event == "call" and frame.f_back is not None and frame.f_back.f_code.co_name == "_engine_run_backward":
            called += str(frame.f_globals.get("__name__")).partition(".")[0] not in ("torch", "logging")

    before, collected = sys.getprofile(), gc.isenabled()
    gc.disable()  # or it might call what ends objects
    sys.setprofile(count)
    try:
        torch.autograd.backward(loss)
    finally:
        sys.setprofile(before)
        if collected:
            gc.enable()
    return called
