"""Where this engine's time goes, for one class in one process, without the gradebook.

sandbox   wall seconds around each call of the runner: it works while we wait
judging   CPU seconds of this process, by function
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from classes import LESSON, make, submitted

from autograder import recording
from autograder.engine import grade as engine
from autograder.engine.grade import Release, Submission, grade
from autograder.sandbox import Runner, Session, Together, open_runner

Clock = Callable[[], float]


class Stopwatch:
    """Seconds by the name of what they were spent on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def on(self, name: str, clock: Clock = time.perf_counter) -> Iterator[None]:
        """Add what the body takes to `name`."""
        started = clock()
        try:
            yield
        finally:
            self.seconds[name] += clock() - started

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its CPU seconds noted; of a generator, those of each step."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.on(name, time.process_time):
                result = function(*args, **kwargs)
            return self._each(name, result) if isinstance(result, Iterator) else result

        return watched

    def _each(self, name: str, steps: Iterator[Any]) -> Iterator[Any]:
        nothing = object()
        while True:
            with self.on(name, time.process_time):
                step = next(steps, nothing)
            if step is nothing:
                return
            yield step


class TimedRunner:
    """A runner, with its calls timed."""

    def __init__(self, runner: Runner, watch: Stopwatch) -> None:
        self._runner, self._watch = runner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @contextlib.contextmanager
    def session(self, *args: Any) -> Iterator[Any]:
        """Entering loads the cells; leaving clears up."""
        with contextlib.ExitStack() as stack:
            with self._watch.on("load"):
                session = stack.enter_context(self._runner.session(*args))
            yield TimedSession(session, self._watch)
            with self._watch.on("clear up"):
                stack.close()

    def display(self, *args: Any) -> Any:
        """The display run."""
        with self._watch.on("display"):
            return self._runner.display(*args)


class TimedSession:
    """A session, or its process for several exercises, with its calls timed."""

    def __init__(self, session: Session | Together, watch: Stopwatch) -> None:
        self._session, self._watch = session, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @contextlib.contextmanager
    def together(self, *args: Any) -> Iterator[TimedSession]:
        """One process for several exercises."""
        assert isinstance(self._session, Session)
        with self._session.together(*args) as together:
            yield TimedSession(together, self._watch)

    def perform(self, *args: Any) -> Any:
        """One exercise."""
        with self._watch.on("perform"):
            return self._session.perform(*args)


def shares(root: Path, submissions: Sequence[bytes], *, display: bool) -> Mapping[str, float]:
    """Seconds per submission by part, after one submission that is not counted."""
    make(root, {f"s{number:04d}": data for number, data in enumerate(submissions)})
    release = Release.load(root / "release" / LESSON / f"{LESSON}.ipynb")
    watch = Stopwatch()
    with open_runner(display=display) as runner, contextlib.ExitStack() as stack:
        timed: Any = TimedRunner(runner, watch)
        for module, name, part in (
            (engine, "judge", "judge"),
            (engine, "rebuild", "read and rebuild"),
            (recording, "references", "references"),
            (recording, "suspects", "misconceptions"),
        ):
            stack.enter_context(mock.patch.object(module, name, watch.around(part, getattr(module, name))))
        for number in (-1, *range(len(submissions))):
            if number == 0:
                watch.seconds.clear()  # the one before, the last of the class, has warmed up everything
            student = f"s{number % len(submissions):04d}"
            with watch.on("all, wall"), watch.on("all, this process", time.process_time):
                grade(Submission(student=student, path=submitted(root, student)), release, timed, display=display)
    watch.seconds["judge"] -= watch.seconds["misconceptions"]  # computed while the judge asks for them
    return {part: seconds / len(submissions) for part, seconds in watch.seconds.items()}
