"""Several exercises in one process: each gets what it gets alone, whatever the ones before it have done."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch
from attacks import lesson
from conftest import soak

from autograder.engine import grade as engine
from autograder.engine.grade import Submission, grade
from autograder.engine.shared import shares
from autograder.sandbox import Limits, open_runner
from autograder.sandbox.inside import traces
from autograder.sandbox.outside.loading import Loading
from course import exercises, syllabus
from course.performing.cells import CodeCell
from course.performing.exercise import AFTER, Failure, Observation

pytestmark = pytest.mark.sandbox

FIRST, SECOND = "quadratic_grads", "hinge_backward"
IMPORTS = """\
import builtins, importlib, json, math, os, random, signal, sys, threading, warnings
import numpy as np
import torch
"""


@pytest.fixture(scope="module")
def runner():
    """One warm process for all tests of this file."""
    with open_runner(Limits(load_seconds=3.0, spare_seconds=0.5), display=False) as opened:
        yield opened


# --- who shares a process ---


def named(*names: str):
    """The exercises with these names."""
    return [exercises.load(name) for name in names]


def test_lesson_01_has_one_process_without_autograd():
    unit = [exercises.load(entry.id) for entry in syllabus.entries() if entry.id.startswith("computational_graphs.")]
    (together,) = shares(unit)
    assert [each.name for each in together] == [
        *("quadratic_grads", "topological_order", "backward", "hinge_backward"),
        *("unbroadcast", "linear_vjp", "softmax_cross_entropy"),
    ]


def test_what_is_measured_or_has_ranks_or_shares_with_nobody_stands_alone():
    assert shares(named("hvp", "SaveLess", "ring_all_gather", "tree_broadcast")) == []
    assert shares(named("quadratic_grads", "minibatch_gradient")) == []
    assert shares(named("sgd_step", "quadratic_grads", "minibatch_gradient", "linear_vjp")) == [
        named("quadratic_grads", "linear_vjp"),
        named("sgd_step", "minibatch_gradient"),
    ]


# --- one process, and what ends it ---


def cells(first: str, second: str, head: str = "") -> list[CodeCell]:
    """Answers to both exercises with these bodies; `head` stands in the first one's cell."""
    return [
        CodeCell(source=f"{IMPORTS}{head}\ndef {FIRST}(a, b, c, x, y):\n    {first}", answers=FIRST),
        CodeCell(source=f"{IMPORTS}\ndef {SECOND}(w, x, b, y):\n    {second}", answers=SECOND),
    ]


def seen(runner, given: list[CodeCell]) -> list[float | None]:
    """The largest number of what each answer returned in the first case; None where nothing counts."""
    came: list[float | None] = []
    with runner.session(given) as session, session.together(named(FIRST, SECOND)) as together:
        for exercise in named(FIRST, SECOND):
            observed = together.perform(exercise, exercise.draw(1)[:2])
            values = observed[0].values.items() if observed else ()
            numbers = [float(torch.as_tensor(value).max()) for key, value in values if not key.startswith(AFTER)]
            came.append(max(numbers, default=None))
    return came


PID = "float(os.getpid())"
TELLS = f"return [{PID}], [{PID}], {PID}, {PID}, {PID}"


def test_no_process_is_started_when_the_time_of_a_submission_is_over(monkeypatch):
    started = []
    monkeypatch.setattr(Loading, "start", lambda self, task: started.append(task))
    with open_runner(Limits(submission_seconds=1e-3), display=False) as opened:
        assert seen(opened, cells("return 0.0, 0.0, 0.0", TELLS)) == [None, None]
    assert started == []


def test_exercises_are_performed_in_one_process(runner):
    first, second = seen(runner, cells(f"return {PID}, 0.0, 0.0", TELLS))
    assert first == second


PROPERTY = (
    "next(each for each in object.__subclasses__() if (each.__name__, each.__module__[:6]) == ('Property', 'course'))"
)
LEAVES = {
    "a dtype": "torch.set_default_dtype(torch.float64)",
    "a number of threads": "torch.set_num_threads(2)",
    "a way to print": "torch.set_printoptions(precision=2)",
    "how to treat errors": "np.seterr(all='raise')",
    "filters of warnings": "warnings.simplefilter('error', append=True)",
    "a handler of signals": "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
    "a folder": "os.chdir('/tmp')",
    "an environment": "os.environ.update(LEFT='1')",
    "a file": "open('left', 'w').close()",
    "a thread": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "a name in a module": "math.left = 7",
    "a name in the builtins": "builtins.left = 7",
    "a name in a class": "torch.Tensor.left = 7",
    "a patched module of a lesson's": "sys.modules['course.lessons.graph'].named = print",
    "a patched module of ours": f"{PROPERTY}.__init__.__globals__.update(observe=print)",
    "the code of a function": "json.load.__code__ = (lambda file: 7).__code__",
    "the defaults of a function": "json.load.__defaults__ = (7,)",
    "a hook of a module": "torch.nn.modules.module.register_module_forward_hook(print)",
    "a hook of audits": "sys.addaudithook(lambda *_: None)",
    "a finder of modules": "sys.meta_path.append(type('F', (), {'find_spec': lambda *_: None})())",
    "a module": "importlib.import_module('xml.dom.minidom')",
}
WHILE_LOADING = LEAVES | {
    "no gradients": "torch.set_grad_enabled(False)",
    "a recursion limit": "sys.setrecursionlimit(5_000)",
    "a state of torch's generator": "torch.manual_seed(1)",
    "a state of Python's generator": "random.seed(1)",
    "a state of NumPy's generator": "np.random.seed(1)",
}


@pytest.mark.parametrize("left", WHILE_LOADING)
def test_who_leaves_a_trace_while_it_is_loaded_is_the_last_in_its_process(runner, left):
    head = f"def leave():\n    {WHILE_LOADING[left]}\nleft = leave()"
    first, second = seen(runner, cells(f"left; return {PID}, 0.0, 0.0", TELLS, head))
    assert None not in (first, second)
    assert first != second


@pytest.mark.parametrize(
    "left", ["a dtype", "a file", "a thread", "a name in a module", "a patched module of ours", "a module"]
)
def test_who_leaves_a_trace_while_it_is_performed_is_the_last_in_its_process(runner, left):
    first, second = seen(runner, cells(f"{LEAVES[left]}; return {PID}, 0.0, 0.0", TELLS))
    assert None not in (first, second)
    assert first != second


@pytest.mark.parametrize("breaks", ["os._exit(0)", "os.kill(os.getpid(), 9)", "any(iter(int, 1))", "raise KeyError"])
def test_what_breaks_counts_for_nothing_and_the_next_goes_on(runner, breaks):
    first, second = seen(runner, cells(breaks, TELLS))
    assert first is None
    assert second is not None


@pytest.mark.parametrize("breaks", ["os._exit(0)", "any(iter(int, 1))"])
def test_so_does_what_breaks_while_it_is_loaded(runner, breaks):
    first, second = seen(runner, cells(f"left; return {PID}, 0.0, 0.0", TELLS, f"left = {breaks}"))
    assert first is None
    assert second is not None


def test_each_exercise_has_a_namespace_of_its_own(runner):
    first, second = seen(runner, cells("global left; left = 7; return 1.0, 0.0, 0.0", "left", "left = 1"))
    assert (first, second) == (1.0, None)


def test_what_any_of_them_does_without_is_gone_before_a_line_of_the_first_is_loaded(runner):
    head = "import graphlib\nsorter = graphlib.TopologicalSorter()"
    source = f"{head}\ndef {FIRST}(*given):\n    return 1.0, 0.0, float(sorter is None)"
    order = "def topological_order(out):\n    return []"
    given = [CodeCell(source=source, answers=FIRST), CodeCell(source=order, answers="topological_order")]
    first, second = named(FIRST, "topological_order")
    with runner.session(given) as session:
        with session.together([first, second]) as together:
            assert together.perform(first, first.draw(1)[:1]) is None
        assert session.perform(first, first.draw(1)[:1])[0].error is None


def test_operators_are_refused_to_those_alone_that_do_without_them(runner):
    sources = {
        FIRST: f"def {FIRST}(a, b, c, x, y):\n    return 1.0, 2.0, 3.0",
        "linear_vjp": "def linear_vjp(dout, x, w):\n    return dout @ w, w * 2.0, dout.sum(0)",
        SECOND: f"import torch\ndef {SECOND}(w, x, b, y):\n    return torch.zeros(3)",
    }
    wanted = named(*sources)
    given = [CodeCell(source=source, answers=name) for name, source in sources.items()]
    with runner.session(given) as session, session.together(wanted) as together:
        came = [together.perform(each, each.draw(1)[:1]) for each in wanted]
    assert [each is None for each in came] == [False, False, True]


def test_this_python_tells_what_was_changed():
    assert traces.tells_versions()


def test_where_python_tells_nothing_no_process_serves_twice(monkeypatch):
    monkeypatch.setattr(traces, "tells_versions", lambda: False)
    assert traces.found() != traces.found()


# --- the same verdicts ---


def verdicts(runner, tmp_path, **instead: str) -> list[tuple[object, ...]]:
    """Points, diagnosis and failure of each exercise of the solved small lesson, with these sources instead."""
    path = tmp_path / "lesson.ipynb"
    path.write_text(json.dumps(lesson.solved(**instead)))
    found = grade(Submission(student="ann", path=path), lesson.release(), runner, seed=3, display=False).verdicts
    return [(each.exercise, each.points, each.diagnosis, each.failure) for each in found]


QUADRATIC = "def quadratic_grads(a, b, c, x, y):\n    value = a * x**2 + b * x * y + c * y**2\n"
RIGHT = f"{QUADRATIC}    return value, 2 * a * x + b * y, b * x + 2 * c * y\n"
VJP = "def linear_vjp(dout, x, w):\n"
SUBMISSIONS = {
    "solved": {},
    "half": {"linear_vjp": f"{VJP}    raise NotImplementedError('computational_graphs.linear_vjp')"},
    "half wrong": {"quadratic_grads": f"{QUADRATIC}    return value, 2 * a * x, 2 * c * y"},
    "all wrong": {
        "quadratic_grads": "def quadratic_grads(*_):\n    return 0",
        "linear_vjp": f"{VJP}    return w, x, w",
    },
    "a name that is missing": {"linear_vjp": f"{VJP}    return helper(dout, x, w)"},
    "a probe patched for the next": {
        "quadratic_grads": "import sys\n\n\n"
        + RIGHT.replace(
            "    return", "    home = 'course.exercises.computational_graphs.linear_vjp'\n    return", 1
        ).replace("    return", "    sys.modules[home].observe = lambda values: None\n    return", 1),
    },
    "a function left for the next": {
        "quadratic_grads": f"import math\n\n\n{RIGHT}".replace("    return", "    math.left = solved\n    return")
        + lesson.solutions()["linear_vjp"].replace("linear_vjp", "solved"),
        "linear_vjp": f"import math\n\n\n{VJP}    return math.left(dout, x, w)",
    },
    "a dtype left for the next": {
        "quadratic_grads": "import torch\n\n\n"
        + RIGHT.replace("    return", "    torch.set_default_dtype(torch.float64)\n    return"),
    },
    "killed": {"quadratic_grads": f"import os\n\n\n{QUADRATIC}    os._exit(0)"},
    "hanging": {"quadratic_grads": f"{QUADRATIC}    while True: pass"},
    "stolen values": {
        "quadratic_grads": "import sys\n\n\n"
        + RIGHT.replace("    return", "    sys.left = getattr(sys, 'left', []) + [value]\n    return"),
        "linear_vjp": f"import sys\n\n\n{VJP}    return dout + sys.left[0], w + sys.left[0], dout.sum(0)",
    },
    "a right answer with what another does without": {
        "quadratic_grads": "import graphlib\n\n\n"
        + RIGHT.replace("    return", "    graphlib.TopologicalSorter()\n    return"),
        "backward": "def backward(out):\n    return None",
    },
    "a right answer that is slow to begin": {
        "quadratic_grads": "import time\n\nBEGUN = []\n\n\n"
        + RIGHT.replace(
            "    return",
            "    while not BEGUN and time.process_time() < 3e9:\n"
            "        BEGUN.extend(sum(range(10**6)) for _ in range(60))\n    return",
        ),
    },
}


@pytest.mark.parametrize("name", [soak(name) if name == "hanging" else name for name in SUBMISSIONS])
def test_every_exercise_gets_what_it_gets_alone(runner, tmp_path, monkeypatch, name):
    together = verdicts(runner, tmp_path, **SUBMISSIONS[name])
    monkeypatch.setattr(engine, "shares", lambda written: [])
    assert together == verdicts(runner, tmp_path, **SUBMISSIONS[name])


@pytest.mark.parametrize(
    "right", ["a right answer with what another does without", "a right answer that is slow to begin"]
)
def test_a_right_answer_that_gets_nothing_beside_others_gets_full_marks_alone(runner, tmp_path, right):
    (points, possible), *_ = [
        (points, exercises.load(name).points) for name, points, *_ in verdicts(runner, tmp_path, **SUBMISSIONS[right])
    ]
    assert points == possible


def test_a_solved_submission_is_performed_alone_only_where_it_stands_alone(runner, tmp_path, monkeypatch):
    alone = []
    verdict = engine.alone
    monkeypatch.setattr(engine, "alone", lambda each, *given: alone.append(each.name) or verdict(each, *given))
    verdicts(runner, tmp_path)
    assert alone == []


class Asked:
    """A session that performs nothing and remembers the cases; its answers need libraries, and all their time."""

    libraries = ("sympy",)

    def __init__(self):
        self.cases = []

    def perform(self, exercise, cases, imports=()):
        self.cases.append(cases)
        return (Observation(error=Failure(type="TimeLimit", message="late")),) * len(cases)

    @contextlib.contextmanager
    def together(self, exercises):
        yield self


def test_what_is_performed_again_has_other_cases_each_time(monkeypatch):
    """What one run was told, and left for the next wherever there is a place, is worth nothing there."""
    monkeypatch.setattr(engine, "_busy", lambda: True)
    session = Asked()
    engine._found(named("quadratic_grads", "hinge_backward"), session, 5)
    drawn = [repr(cases[0].inputs) for cases in session.cases]
    assert len(set(drawn)) == len(drawn) == 2 * (1 + 3)
