"""An exception of the student's as plain data: what it says, and the student's own lines that led to it.

Asking an exception for its message runs the student's code: whatever that raises becomes a phrase.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from course.tree import readable

MAX_MESSAGE = 500
MAX_WHERE = 6
MAX_WRITTEN = 60
LIBRARIES = (
    sysconfig.get_paths()["stdlib"] + os.sep,
    *(f"{folder}{os.sep}" for folder in (*site.getsitepackages(), site.getusersitepackages())),
    *(f"{Path(__file__).parents[1] / package}{os.sep}" for package in ("course", "autograder")),
    "<frozen",
)


def type_of(error: BaseException) -> str:
    """The name of the exception's class."""
    return _told(lambda: type(error).__name__, "Exception")


def message_of(error: BaseException) -> str:
    """Its message, readable and not long."""
    return _told(lambda: str(error), "<an exception whose message cannot be read>")


def own_lines(trace: TracebackType | None) -> tuple[str, ...]:
    """`line 3, in backward: node.grad += 1` for each of the student's frames, innermost last."""
    return _lines((frame, number) for frame, number in traceback.walk_tb(trace))


def lines_of(frame: FrameType | None) -> tuple[str, ...]:
    """The same for code that runs now, from its innermost frame."""
    return _lines(reversed(list(traceback.walk_stack(frame))) if frame is not None else ())


def in_own_code(frame: FrameType | None) -> bool:
    """Whether a line of the student's runs at `frame`, or what it calls that is not written in Python."""
    return frame is not None and is_own(frame.f_code)


def callers_of(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_own(code: CodeType) -> bool:
    """Whether the code is the student's."""
    return not _is_library(code.co_filename)


def written(frame: FrameType | None, within: CodeType | None = None) -> str:
    """What the student wrote that runs at `frame`: `loss.backward`, `F.silu`, `a @ b`; "" where that cannot be read.

    within  code of ours that calls the student's: whoever called it did not write what runs
    """
    frames = itertools.takewhile(lambda each: each.f_code is not within, callers_of(frame))
    told = (_told(functools.partial(_expression, each), "") for each in frames if in_own_code(each))
    return next(filter(None, told), "")


def _lines(frames: Iterable[tuple[FrameType, int]]) -> tuple[str, ...]:
    own = [(frame.f_code, number) for frame, number in frames if not _is_library(frame.f_code.co_filename)]
    return tuple(_line(code, number) for code, number in own[-MAX_WHERE:])


def _told(read: Callable[[], str], otherwise: str) -> str:
    """What `read` returns, or `otherwise`."""
    try:
        return readable(read(), MAX_MESSAGE)
    except BaseException:
        return otherwise


def _is_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or f"{os.sep}site-packages{os.sep}" in file


def _line(code: CodeType, number: int) -> str:
    text = _told(lambda: linecache.getline(code.co_filename, number).strip(), "")
    name = " ".join(readable(code.co_name, MAX_WRITTEN).split())  # a code object can be given any
    return f"line {number}, in {name}" + (f": {text}" if text else "")


def _expression(frame: FrameType) -> str:
    """The function of the call that runs, or the expression that does; the line where it is neither."""
    first, last, start, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    lines = [line.encode() for line in linecache.getlines(frame.f_code.co_filename)[(first or 1) - 1 : last]]
    line = lines[0].decode().strip()
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return short(ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body)
    except SyntaxError:  # an import, or the beginning of a `with`
        return line[:MAX_WRITTEN]


def short(node: ast.expr) -> str:
    """The function of a call, or the expression, in a few words: only its end where it is long."""
    node = node.func if isinstance(node, ast.Call) else node
    try:
        text = ast.unparse(node)
    except RecursionError:  # hundreds of calls in a row
        text = "." * (MAX_WRITTEN + 1)
    if len(text) > MAX_WRITTEN and isinstance(node, ast.Attribute):
        return node.attr
    return text if len(text) <= MAX_WRITTEN else f"{text[: MAX_WRITTEN - 3]}..."
