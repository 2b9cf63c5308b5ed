"""Sandboxes that find other files than ours: the toy exercise with ranks, or nothing that hides our modules."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import toy_ranks

from autograder.sandbox.outside import control
from course.performing.cells import CodeCell
from course.performing.exercise import Failure, Observation

STAGED = Path("course/exercises/start_here/running_mean.py")


@contextlib.contextmanager
def staged_with(change):
    """For runners that start in the body, `change` is called with the folder that they find."""
    ours = control.stage

    def stage(to: Path) -> None:
        ours(to)
        change(to)

    control.stage = stage
    try:
        yield
    finally:
        control.stage = ours


def staged_with_toy(**changes):
    """Runners that start in the body find the toy, changed, in place of the exercise whose id it bears.

    Answers find all modules of ours, so that they can speak to the broker by themselves.
    """
    changed = f"\nimport dataclasses\n\nEXERCISE = dataclasses.replace(EXERCISE, **{changes!r})\n"

    def change(to: Path) -> None:
        (to / STAGED).write_text(Path(toy_ranks.__file__).read_text() + changed)
        _hide_nothing(to)

    return staged_with(change)


def nothing_hidden():
    """In runners that start in the body, answers find all modules of ours: what holds must hold without that wall."""
    return staged_with(_hide_nothing)


def _hide_nothing(to: Path) -> None:
    with (to / "autograder/sandbox/inside/hidden.py").open("a") as file:
        file.write("\n\ndef hide() -> None:\n    pass\n")


def perform_ranks(opened, source: str, cases, exercise=toy_ranks.EXERCISE) -> tuple[Observation, ...]:
    """What is seen of an answer to the toy."""
    with opened.session([CodeCell(source=source, answers=exercise.name)]) as session:
        return session.perform(exercise, cases)


def answer(body: str, head: str = "") -> str:
    """An answer whose body may name `comm`, `x`, `rank`, `size` and `port`, what stands behind the communicator."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    first = "    rank, size, port = comm.rank, comm.size, getattr(comm, '_port', None)"
    return f"import contextlib, os, socket, time\nimport torch\n{head}\ndef running_mean(comm, x):\n{first}\n{lines}\n"


def broken(opened, body: str, *, head: str = "", exercise=toy_ranks.EXERCISE) -> tuple[Failure, float]:
    """How a run of this answer on three ranks failed, and after how many seconds; a right answer works afterwards."""
    (case,) = [each for each in exercise.draw(3) if each.name == "3 ranks"]
    with opened.session([CodeCell(source=answer(body, head), answers=exercise.name)]) as session:
        started = time.monotonic()
        (seen,) = session.perform(exercise, [case])
        seconds = time.monotonic() - started
    (after,) = perform_ranks(opened, toy_ranks.RING, [case])
    assert after.error is None
    assert seen.error is not None
    return seen.error, seconds
