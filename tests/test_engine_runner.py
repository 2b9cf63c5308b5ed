"""Running an answer elsewhere: it costs nothing but its own exercise, whatever it does."""

from __future__ import annotations

import dataclasses
import time

import pytest

from autograder.engine.runner import Limits, PlainRunner
from course import exercises
from course.cells import CodeCell
from course.exercise import Failure, Observation


@pytest.fixture(scope="module")
def runner():
    """One warm process for all tests of this file."""
    with PlainRunner(Limits(load_seconds=3.0, spare_seconds=0.0)) as plain:
        yield plain


def quadratic(runner, body: str, head: str = "", **changes) -> tuple[Observation, ...]:
    """What a runner sees of an answer to quadratic_grads with this body."""
    exercise = dataclasses.replace(exercises.load("quadratic_grads"), **changes)
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    source = f"{head}\ndef quadratic_grads(a, b, c, x, y):\n{lines}"
    return runner.perform(exercise, [CodeCell(source=source, answers="quadratic_grads")], exercise.draw(1)[:2])


def only_failure(seen: tuple[Observation, ...]) -> Failure:
    """The one failure that all observations hold."""
    assert len({each.error for each in seen}) == 1
    assert seen[0].error is not None
    return seen[0].error


def test_a_runner_says_that_it_is_no_sandbox(runner):
    assert "not sandboxed" in runner.describe()


def test_an_answer_is_performed_on_every_case(runner):
    seen = quadratic(runner, "return 1.0, 2.0, 3.0")
    assert [each.error for each in seen] == [None, None]
    assert {float(each.values["value"]) for each in seen} == {1.0}


def test_each_exercise_gets_a_fresh_process(runner):
    body = "import math\nmath.left = getattr(math, 'left', 0) + 1\nreturn float(math.left), 0.0, 0.0"
    for _ in range(2):
        assert [float(each.values["value"]) for each in quadratic(runner, body)] == [1.0, 2.0]


def test_a_process_that_exits_costs_its_own_exercise_only(runner):
    assert only_failure(quadratic(runner, "import os\nos._exit(0)")).type == "ProcessDied"
    assert quadratic(runner, "return 1.0, 2.0, 3.0")[0].error is None


def test_an_answer_that_blocks_every_signal_is_stopped_from_outside(runner):
    body = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\ntime.sleep(60)"
    started = time.monotonic()
    assert only_failure(quadratic(runner, body, seconds=0.5)).type == "TimeLimit"
    assert time.monotonic() - started < 20


def test_cells_that_never_finish_loading_are_stopped(runner):
    failure = only_failure(quadratic(runner, "return FOREVER", head="FOREVER = [x for x in iter(int, 1)]"))
    assert (failure.type, failure.message) == ("TimeLimit", "loading the cells did not end within 3 s")


REPLY = (
    "import gc, socket\nsock = next(x for x in gc.get_objects() if isinstance(x, socket.socket) and x.fileno() >= 0)\n"
)


@pytest.mark.parametrize(
    "data", ["(2**40).to_bytes(8, 'big')", "(9).to_bytes(8, 'big') + b'not a tree'", "bytes(7) + b'\\0' + bytes(99)"]
)
def test_a_reply_that_is_no_observation_costs_its_own_exercise_only(runner, data):
    body = f"{REPLY}sock.sendall({data})\nimport os\nos._exit(0)"
    assert only_failure(quadratic(runner, body)).type == "BadReply"
    assert quadratic(runner, "return 1.0, 2.0, 3.0")[0].error is None


def test_the_warm_process_is_started_again_when_it_is_killed(runner):
    quadratic(runner, "import os\nos.kill(os.getppid(), 9)\nreturn 1.0, 2.0, 3.0")
    assert quadratic(runner, "return 1.0, 2.0, 3.0")[0].error is None


def test_memory_is_limited(runner):
    assert quadratic(runner, "return len(bytes(3 * 2**30)), 0.0, 0.0")[0].error.type == "MemoryError"


def test_files_are_limited(runner):
    body = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('big', 'wb').write(bytes(20 * 2**20))"
    assert quadratic(runner, body)[0].error.type == "OSError"


def test_children_of_an_answer_are_killed_with_it(runner, tmp_path):
    mark = tmp_path / "alive"
    body = f"import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 2; touch {mark}'])\nreturn 1.0, 2.0, 3.0"
    assert quadratic(runner, body)[0].error is None
    time.sleep(2.5)
    assert not mark.exists()


def test_an_answer_sees_no_environment_and_an_empty_folder(runner, monkeypatch):
    monkeypatch.setenv("GRADEBOOK_PASSWORD", "secret")
    body = "import os, sys\nraise KeyError(sorted(os.environ), os.listdir('.'), sys.stdin.read(), os.getcwd())"
    message = quadratic(runner, body)[0].error.message
    assert "GRADEBOOK_PASSWORD" not in message
    assert "[], ''," in message


def test_nothing_secret_is_loaded_where_answers_run(runner):
    body = "import sys\nraise KeyError([x for x in sys.modules if x.startswith(('course.', 'autograder.'))])"
    message = quadratic(runner, body)[0].error.message
    assert "autograder.engine.child" in message
    assert "autograder.bank" not in message
    assert "course.reference" not in message


def test_what_is_printed_while_loading_goes_nowhere(runner, capfd):
    assert (
        quadratic(runner, "print('seen')\nreturn 1.0, x, 3.0", head="x = print('lost') or 2.0")[0].printed == "seen\n"
    )
    assert capfd.readouterr().out == ""
