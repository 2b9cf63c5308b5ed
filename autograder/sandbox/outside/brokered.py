"""Brokered ranks for `run_ranks`: the same function, in sandboxes, with the grader's broker between them.

    with Brokered() as brokered:
        run_ranks(ring_all_reduce, 4, transport=brokered, inputs=...)

In a notebook the function is loaded from the cells that were run so far, as grading does it: with the helpers, imports
and constants that it mentions, made anew. What later cells did to them is not there, nor the notebook's random state.
Elsewhere its own file takes the place of the notebook.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from autograder.sandbox.outside.runner import Runner, open_runner
from autograder.sandbox.wire.rank_messages import RankCall
from course.cluster.calls import VERBS
from course.cluster.protocol.transport import SECONDS, Program, Run, check_processes
from course.errors import BadArgument
from course.performing.cells import CodeCell
from course.performing.exercise import Inputs
from course.tree import plain


class Brokered:
    """See course.cluster.protocol.transport.Transport. A context manager: its first run starts a warm process.

    What a rank returns comes back as plain data: a tensor, number or text as it is, anything that holds several of
    them as a dict of leaves by path.
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self._given, self._opened = runner, contextlib.ExitStack()
        self._runner = runner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm process, unless it was handed in."""
        self._opened.close()
        self._runner = self._given

    def run(self, program: Program) -> Run:
        """See Transport. Raises BadArgument for too many ranks, or what cannot be sent to them, and RunnerError."""
        check_processes(program)
        function = inspect.unwrap(program.function)
        _check_function(function)
        name, cells = function.__name__, _cells(function)
        for each in program.inputs:
            _check_plain(each)
        call = RankCall(function=name, verbs=tuple(program.verbs or VERBS), seconds=program.seconds or SECONDS)
        parts: list[Inputs] = [{"given": [plain(each) for each in given]} for given in program.inputs]
        if self._runner is None:
            self._runner = self._opened.enter_context(open_runner(display=False))
        with self._runner.session(cells) as session:
            return session.call(call, parts)


def _check_function(function: Callable[..., Any]) -> None:
    """Raises BadArgument unless the sandbox can define it from its source."""
    name = getattr(function, "__qualname__", "")
    if not name.isidentifier() or not inspect.isfunction(function):
        raise BadArgument(
            "a brokered function must be defined with `def` at the left margin of a cell or a file, got "
            f"{name or type(function).__name__}"
        )


def _check_plain(value: Any) -> None:
    """Raises BadArgument unless a value can be sent to a stranger as it is."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_plain(each)
    elif not isinstance(value, (Tensor, bool, int, float, str, type(None))):
        raise BadArgument(
            "inputs of a brokered rank must be tensors, numbers, texts, or lists and dicts of them, got "
            f"{type(value).__name__}: make it inside of the function"
        )


def _cells(function: Callable[..., Any]) -> list[CodeCell]:
    """The cells that were run so far, or the function's file. Raises BadArgument where it has none."""
    file = function.__code__.co_filename
    source = "".join(linecache.getlines(file))
    if not source:
        raise BadArgument(f"a brokered function must have a source, but that of {function.__name__} is not there")
    entered = getattr(sys.modules.get("__main__"), "In", None) if _is_cell(file) else None
    sources = [each for each in entered or () if each and each.strip() != source.strip()]
    return [*(CodeCell(source=each) for each in sources), CodeCell(source=source, answers=function.__name__)]


def _is_cell(file: str) -> bool:
    """Whether IPython has compiled it."""
    return "ipykernel_" in file or file.startswith("<ipython-input")
