"""The pool: what happens to one process costs nobody else anything, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from autograder.engine import pool
from autograder.engine.pool import shares, spread
from autograder.engine.worker import READY, in_turn, serve
from autograder.sandbox import RunnerError
from autograder.sandbox.outside.folder import Folder

TESTS = Path(__file__).resolve().parent
quickly = pytest.mark.usefixtures("forked_judges")


@dataclass(frozen=True)
class Toy:
    """Does to a task (what, argument) what it says; notes in `folder` each process and each task."""

    folder: Path

    @contextlib.contextmanager
    def __call__(self):
        mine = self.folder / f"open-{os.getpid()}"
        try:  # a signal may come as soon as the file is there
            mine.touch()
            yield self.do
        finally:
            with contextlib.suppress(FileNotFoundError):
                mine.rename(self.folder / f"closed-{os.getpid()}")

    def do(self, task):
        what, argument = task
        with (self.folder / f"task-{argument}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return getattr(self, what)(argument)

    def double(self, number):
        return 2 * number

    def slip(self, number):
        raise ZeroDivisionError(f"no {number}")

    def die(self, number):
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self, number):
        if self.tries(number) == 1:
            os._exit(3)
        return 2 * number

    def sleep(self, number):
        time.sleep(600)

    def leave_a_folder(self, number):
        Folder()
        self.die(number)

    def unsendable(self, number):
        return lambda: number

    def stop(self, number):
        raise RunnerError("nothing runs here")

    def cores(self, number):
        time.sleep(0.1)
        return os.sched_getaffinity(0)

    def tries(self, number):
        return len((self.folder / f"task-{number}").read_text().split())


@dataclass(frozen=True)
class Slow(Toy):
    """The same, but to close it takes a second."""

    @contextlib.contextmanager
    def __call__(self):
        with super().__call__() as do:
            try:
                yield do
            finally:
                (self.folder / "closing").touch()
                time.sleep(1.0)
                (self.folder / "closed").touch()


@dataclass(frozen=True)
class Stillborn:
    """Work that kills every process before it is ready."""

    def __call__(self):
        os._exit(4)


def results(outcomes):
    """Result, or the reason for none, by argument of the task."""
    return {outcome.task[1]: outcome.failed or outcome.result for outcome in outcomes}


def alive(folder: Path) -> list[int]:
    """Processes that opened their work and still exist."""
    pids = [int(path.name.partition("-")[2]) for path in folder.iterdir() if path.name.startswith(("open", "closed"))]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def doubles(count):
    return [("double", number) for number in range(count)]


def test_every_task_comes_back_once(tmp_path):
    assert results(spread(doubles(20), Toy(tmp_path), 2)) == {number: 2 * number for number in range(20)}


def test_in_turn_gives_the_same_in_this_process(tmp_path):
    assert results(in_turn(doubles(5), Toy(tmp_path))) == {number: 2 * number for number in range(5)}
    assert (tmp_path / "task-0").read_text().split() == [str(os.getpid())]


@quickly
def test_no_more_tasks_are_taken_than_the_processes_hold(tmp_path):
    taken = []
    tasks = (taken.append(task) or task for task in doubles(50))
    for done, _ in enumerate(spread(tasks, Toy(tmp_path), 2)):
        assert len(taken) - done <= 6  # two at work, two at hand, and two that are back and not looked at


@quickly
def test_a_process_goes_on_while_the_caller_is_busy(tmp_path):
    outcomes = spread(doubles(4), Toy(tmp_path), 1)
    next(outcomes)
    deadline = time.monotonic() + 20
    while not (tmp_path / "task-2").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(path.name for path in tmp_path.glob("task-*")) == ["task-0", "task-1", "task-2"]
    assert results(outcomes) == {1: 2, 2: 4, 3: 6}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells and sets on which cores one runs")
@pytest.mark.parametrize("jobs", [1, 2, 64])
def test_cores_are_shared_unless_there_are_too_few(jobs):
    given, shared = os.sched_getaffinity(0), shares(jobs)
    assert len(shared) == jobs
    assert sorted(core for each in shared for core in each) == (sorted(given) if jobs <= len(given) else [])


@quickly
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells and sets on which cores one runs")
def test_each_process_keeps_to_its_own_cores(tmp_path):
    found = results(spread([("cores", number) for number in range(10)], Toy(tmp_path), 2)).values()
    assert {frozenset(each) for each in found} == {each or frozenset(os.sched_getaffinity(0)) for each in shares(2)}


@quickly
def test_the_task_at_hand_of_a_process_that_dies_has_lost_nothing(tmp_path):
    found = results(spread([("die", 7), ("die_once", 1)], Toy(tmp_path), 1))
    assert (Toy(tmp_path).tries(7), Toy(tmp_path).tries(1), found[1]) == (3, 2, 2)
    assert "3 processes died" in found[7]


@quickly
def test_an_exception_is_told_and_costs_nobody_else(tmp_path):
    outcomes = list(spread([("slip", 1), ("double", 2)], Toy(tmp_path), 1))
    assert results(outcomes) == {1: "ZeroDivisionError: no 1", 2: 4}
    assert "in slip" in outcomes[0].trace


@quickly
def test_a_task_whose_process_dies_is_tried_again(tmp_path):
    assert results(spread([("die_once", 1), *doubles(1)], Toy(tmp_path), 1)) == {0: 0, 1: 2}
    assert len(set((tmp_path / "task-1").read_text().split())) == 2


@quickly
def test_a_task_that_kills_every_process_fails_with_the_reason(tmp_path):
    found = results(spread([("die", 7), *doubles(4)], Toy(tmp_path), 2))
    assert "3 processes died that graded it; the last was killed by SIGKILL" in found.pop(7)
    assert found == {0: 0, 1: 2, 2: 4, 3: 6}
    assert Toy(tmp_path).tries(7) == 3


@quickly
def test_a_process_that_is_silent_for_too_long_is_ended(tmp_path):
    found = results(spread([("sleep", 7), *doubles(2)], Toy(tmp_path), 2, patience=1.0))
    assert "the last was silent for too long" in found.pop(7)
    assert found == {0: 0, 1: 2}
    assert alive(tmp_path) == []


@quickly
def test_a_result_that_cannot_be_sent_fails(tmp_path):
    assert "the result cannot be sent" in results(spread([("unsendable", 1)], Toy(tmp_path), 1))[1]


@quickly
def test_a_runner_that_can_run_nothing_ends_the_batch(tmp_path):
    with pytest.raises(RunnerError, match="nothing runs here"):
        list(spread([("stop", 1), *doubles(3)], Toy(tmp_path), 2))
    assert alive(tmp_path) == []


@quickly
def test_processes_that_never_start_end_the_batch():
    with pytest.raises(RunnerError, match="3 in a row died; the last ended with exit code 4"):
        list(spread(doubles(3), Stillborn(), 1))


@quickly
def test_closing_early_ends_the_processes_and_what_they_opened(tmp_path):
    outcomes = spread([*doubles(1), ("sleep", 7), ("sleep", 8)], Toy(tmp_path), 2)
    next(outcomes)
    outcomes.close()
    assert alive(tmp_path) == []
    assert not list(tmp_path.glob("open-*"))


@quickly
@pytest.mark.parametrize("hangs_up", [True, False])
def test_no_signal_cuts_short_the_closing_of_what_is_open(tmp_path, hangs_up):
    context = pool.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, Slow(tmp_path)))
    process.start()
    theirs.close()
    assert ours.recv() == READY
    ours.close() if hangs_up else process.terminate()
    while not (tmp_path / "closing").exists():
        time.sleep(0.01)
    process.terminate()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "closed").exists()


@quickly
def test_the_folder_of_a_process_that_died_is_removed(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = results(spread([("leave_a_folder", 7)], Toy(tmp_path), 1))
    assert "the last was killed by SIGKILL" in found[7]
    assert not list((tmp_path / "temporary").iterdir())


STARTING = """
import sys, pathlib, signal
from multiprocessing import util
sys.path.insert(0, {tests!r})
from test_pool import Toy
from autograder.engine.pool import spread

def told(*given):
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
    return spawn(*given)

if __name__ == "__main__":
    spawn, util.spawnv_passfds = util.spawnv_passfds, told
    list(spread([("double", 1)], Toy(pathlib.Path({folder!r})), 2))
"""


def script(text, folder):
    """A script that is to be run in a process of its own, and the environment for it."""
    path = folder / "caller.py"
    path.write_text(textwrap.dedent(text.format(tests=str(TESTS), folder=str(folder))))
    return [sys.executable, path], {**os.environ, "PYTHONPATH": str(TESTS.parent)}


@pytest.mark.soak
def test_no_interrupt_reaches_a_process_that_has_not_left_the_terminal(tmp_path):
    command, environment = script(STARTING, tmp_path)
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True"] * 3  # the standard library's own helper is the first that starts


CALLER = """
import sys, pathlib
sys.path.insert(0, {tests!r})
from test_pool import Toy
from autograder.engine.pool import spread
if __name__ == "__main__":
    for outcome in spread([("double", 1), ("sleep", 2), ("sleep", 3)], Toy(pathlib.Path({folder!r})), 2):
        print("one", flush=True)
"""


def test_processes_end_when_their_caller_is_killed(tmp_path):
    command, environment = script(CALLER, tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as caller:
        assert caller.stdout.readline() == b"one\n"
        os.kill(caller.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(tmp_path) == []
    assert not list(tmp_path.glob("open-*"))
