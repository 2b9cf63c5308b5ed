"""Putting an answer through its probe: the untrusted half. It runs in the student's kernel, or in the sandbox.

    answer, case --perform--> Observation

`perform` never raises. An exception, a wrong type, a missing output or a time-out becomes part of the
observation. The inputs are cloned for each run, and those that may not change are observed again afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import io
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import torch

from course import apart
from course.cluster import Comm, RanksFailed
from course.failing import MAX_MESSAGE, message_of, own_lines, type_of
from course.performing.exercise import Answer, Ask, Case, Exercise, Failure, Observation, Oracle
from course.performing.forms import laid_out
from course.performing.oracle import Here, told
from course.performing.simulate import SPARE_SECONDS, after, on_simulated_ranks
from course.performing.warm import warm
from course.tree import Tree, clone, readable, to_float64

Clock: TypeAlias = Literal["wall", "cpu"]
Each = TypeVar("Each")  # a case, in any form

MAX_PRINTED = 2_000
WIDE = 30.0  # on the CPU's clock a case may take this many times its limit on the wall's: machines can be that busy
MT19937_BYTES = 624 * 4 + 4  # of its words and its place among them (numpy/random/src/mt19937/mt19937.h)
FRAMES = 1_000  # Python's own limit; kernels raise it


class TimeLimit(BaseException):
    """Raised inside an answer that runs too long; no `except Exception` of the answer can swallow it."""


def perform(
    exercise: Exercise,
    answer: Answer,
    case: Case,
    *,
    ask: Ask | None = None,
    comm: Comm | None = None,
    clock: Clock = "wall",
) -> Observation:
    """What one run of `answer` on `case` shows. Never raises for what an answer does.

    ask   questions to the exercise's oracle, where that lives outside; without it the oracle answers here, and what it
          counts is added to the ledger as claimed
    comm  of one rank, whose part of a case `case` is; without it an exercise with ranks runs on simulated ones here
    clock what the exercise's limit counts: a student's patience, or in proofs and recordings, which must not depend on
          how busy a machine is, this process's CPU time
    """
    simulated = exercise.split is not None and comm is None
    probe: Callable[..., Observation] = exercise.probe
    if simulated:
        patient = dataclasses.replace(exercise, seconds=WIDE * exercise.seconds) if clock == "cpu" else exercise
        probe = on_simulated_ranks(patient, memory=case.name in exercise.measured)
    oracle, asked = _to_ask(exercise, case, ask)
    inputs = cast(dict[str, object], laid_out(cast(dict[str, Tree], clone(case.inputs)), case.lies))
    given: tuple[object, ...] = (inputs, *asked) if comm is None else (comm, inputs)
    spare = 0.0 if exercise.split is None else SPARE_SECONDS
    left = dict if simulated else after(exercise, inputs)
    seen = guarded(functools.partial(probe, answer, *given), exercise.seconds + spare, clock)
    if oracle is not None:
        seen = told(seen, oracle, "claimed")
    return dataclasses.replace(seen, values={**seen.values, **left()})


def guarded(run: Callable[[], Observation], seconds: float, clock: Clock = "wall") -> Observation:
    """What `run`, which calls an answer, observes: what it raises, prints and how long it takes are part of it.

    No function of this module may stand between this one and the answer: the alarm looks for it (see `_in_answer`).
    """
    printed = _Printed()
    seen: Observation | None = None
    failure: Failure | None = None
    now = time.monotonic if clock == "wall" else time.process_time
    started = now()
    try:
        with _quiet(printed), own_state(), _time_limit(seconds, clock):
            seen = run()
    except BaseException as error:
        failure = failure_of(error, sys.exc_info()[2], seconds)
        BaseException.with_traceback(error, None)  # an answer that kept it would find our frames there
    if failure is None and now() - started > seconds:
        seen, failure = None, failure_of(TimeLimit(), None, seconds)
    if not isinstance(seen, Observation):
        seen = Observation()
    return dataclasses.replace(seen, error=failure or seen.error, printed=readable("".join(printed.parts)))


def _to_ask(exercise: Exercise, case: Case, ask: Ask | None) -> tuple[Oracle | None, tuple[Ask, ...]]:
    """The oracle that answers here, None where it does so outside; and what the probe gets to ask it."""
    if exercise.oracle is None:
        return None, ()
    if ask is not None:
        return None, (ask,)
    oracle = exercise.oracle(case)
    return oracle, (Here(oracle),)


def perform_all(
    exercise: Exercise, answer: Answer, cases: Sequence[Case], *, clock: Clock = "wall"
) -> list[Observation]:
    """One observation per case. An interrupt or a time-out ends the row: the cases after it show the same failure."""
    warm(answer, exercise.first_uses)
    return in_turn(cases, lambda case: perform(exercise, answer, case, clock=clock), stops)


def in_turn(
    cases: Sequence[Each], observe: Callable[[Each], Observation], ends: Callable[[Failure | None], bool]
) -> list[Observation]:
    """One observation per case. After a failure that `ends` the row, the cases that follow show the same."""
    seen: list[Observation] = []
    for case in cases:
        ended = bool(seen) and ends(seen[-1].error)
        seen.append(Observation(error=seen[-1].error) if ended else observe(case))
    return seen


def in_float64(case: Case) -> Case:
    """The same case with every floating point tensor in float64, hidden ones too: references are performed on it."""
    return converted(case, to_float64)


def converted(case: Case, convert: Callable[[Tree], Tree]) -> Case:
    """The case with `convert` put on every input, hidden ones too."""
    inputs, hidden = ({key: convert(value) for key, value in part.items()} for part in (case.inputs, case.hidden))
    return dataclasses.replace(case, inputs=inputs, hidden=hidden)


def stops(failure: Failure | None) -> bool:
    """Whether later cases are not run any more."""
    return failure is not None and failure.type in ("TimeLimit", "KeyboardInterrupt")


class _Printed(io.TextIOBase):
    """A stream that keeps the first `MAX_PRINTED` characters, and that an answer cannot close."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._room = MAX_PRINTED

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.parts.append(str.__getitem__(text, slice(self._room)))
        self._room -= len(self.parts[-1])
        return len(text)

    def close(self) -> None:
        """Nothing: the next print must not fail."""


@contextlib.contextmanager
def _quiet(printed: _Printed) -> Iterator[None]:
    """Nothing of what the answer prints or warns reaches the cell's own output."""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def own_state() -> Iterator[None]:
    """Random states (torch's, Python's, NumPy's), gradient mode and recursion limit are afterwards what they were.

    Inside, autograd records, and Python's stack has room for `FRAMES` calls, wherever the answer is performed.
    """
    python, limit = random.getstate(), sys.getrecursionlimit()
    array: Any = np.random.get_state()
    words = array_words()
    try:
        sys.setrecursionlimit(_depth() + FRAMES)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            yield
    finally:
        sys.setrecursionlimit(limit)
        random.setstate(python)
        is_same = words and not array[3] and array_words() == words  # [3]: whether a second normal number is kept
        if not is_same:
            np.random.set_state(array)


def array_words() -> bytes:
    """The memory of NumPy's global generator, b"" where somebody has put another kind in its place.

    NumPy's own getter and setter go through Python numbers, one for each word, and take longer than most answers.
    """
    generator = cast(Any, np.random).get_bit_generator()  # which its types do not export
    known = type(generator) is np.random.MT19937
    return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES) if known else b""


def _depth() -> int:
    """How many calls deep we are."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


@contextlib.contextmanager
def _time_limit(seconds: float, clock: Clock) -> Iterator[None]:
    """Raises TimeLimit in the body after `seconds`, again and again until it leaves.

    Works in the main thread of a POSIX process. Elsewhere the body runs to its end, and only the clock is read
    afterwards; graded runs have a limit of their own, outside the process.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        if _in_answer(frame):
            raise TimeLimit

    with contextlib.ExitStack() as timers:
        if clock == "cpu":
            timers.enter_context(_timer(signal.ITIMER_PROF, signal.SIGPROF, seconds, ring))
        wall = seconds if clock == "wall" else WIDE * seconds
        timers.enter_context(_timer(signal.ITIMER_REAL, signal.SIGALRM, wall, ring))
        yield


@contextlib.contextmanager
def _timer(
    which: int, number: signal.Signals, seconds: float, ring: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = signal.signal(number, ring)
    outer = signal.setitimer(which, seconds, 0.05)
    try:
        yield
    finally:
        signal.setitimer(which, 0)
        signal.signal(number, before or signal.SIG_DFL)
        signal.setitimer(which, *outer)  # somebody else's alarm goes on


def _in_answer(frame: FrameType | None) -> bool:
    """Whether the answer, or what it called, was interrupted at `frame`; not our own code before, in or after it.

    Raised in our own, the exception would end the clean-up, and the timer would go on ringing in other people's code.
    """
    called = None
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code is apart.CALL:  # nothing leads further back
            return called is not None
        called, frame = frame, frame.f_back
    entered = called is not None and called.f_code.co_filename != contextlib.__file__
    return entered and frame is not None and frame.f_code is guarded.__code__


def failure_of(error: BaseException, trace: TracebackType | None = None, seconds: float = 0.0) -> Failure:
    """The exception as plain data, its traceback cut to the student's own lines."""
    if type(error) is TimeLimit:
        return Failure(type="TimeLimit", message=f"did not end within {seconds:g} s", where=own_lines(trace))
    if type(error) is RanksFailed:  # isinstance would ask the exception
        return Failure(
            type=error.type, message=readable(error.without_line, MAX_MESSAGE), where=error.where, rank=error.rank
        )
    return Failure(type=type_of(error), message=message_of(error), where=own_lines(trace))
