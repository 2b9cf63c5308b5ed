"""Brokered ranks for `run_ranks`: the same function, in sandboxes, with the grader's broker between them.

    with Brokered() as brokered:
        run_ranks(ring_all_reduce, 4, transport=brokered, inputs=...)

In a notebook the function is loaded from the cells that were run so far, as grading does it: with the helpers, imports
and constants that it mentions. Elsewhere its own file takes the place of the notebook.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable
from typing import Any, Self

from autograder.sandbox.rank_messages import RankCall
from autograder.sandbox.runner import Runner, open_runner
from course.cells import CodeCell
from course.cluster.calls import VERBS
from course.cluster.job import Job, Run
from course.errors import BadArgument
from course.exercise import Inputs
from course.tree import plain


class Brokered:
    """See course.cluster.job.Transport. A context manager: its first run starts a warm process, which takes seconds.

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

    def run(self, job: Job) -> Run:
        """See Transport. Raises BadArgument for a function without a source or a name, and RunnerError."""
        name, cells = job.function.__name__, _cells(job.function)
        call = RankCall(function=name, verbs=tuple(job.verbs or VERBS), seconds=job.seconds)
        parts: list[Inputs] = [{"given": [plain(each) for each in given]} for given in job.inputs]
        if self._runner is None:
            self._runner = self._opened.enter_context(open_runner(display=False))
        with self._runner.session(cells, [name]) as session:
            return session.call(call, parts)


def _cells(function: Callable[..., Any]) -> list[CodeCell]:
    """The cells that were run so far, or the function's file. Raises BadArgument."""
    code = getattr(function, "__code__", None)
    source = "".join(linecache.getlines(code.co_filename)) if code is not None else ""
    if not source or not function.__name__.isidentifier():
        raise BadArgument(
            "a brokered function must be defined with `def` in a cell or a file, got one without a source"
        )
    entered = getattr(sys.modules.get("__main__"), "In", None)
    sources = (
        [each for each in entered if each and each.strip() != source.strip()] if _is_cell(code) and entered else []
    )
    return [*(CodeCell(source=each) for each in sources), CodeCell(source=source, answers=function.__name__)]


def _is_cell(code: Any) -> bool:
    """Whether IPython has compiled it."""
    return "ipykernel_" in code.co_filename or code.co_filename.startswith("<ipython-input")
