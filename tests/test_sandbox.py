"""Running students' code: it costs nothing but its own exercise, whatever it does, with walls and without."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
import shutil
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch
from living import OUTLIVES, named, peak

from autograder.sandbox import Limits, RunnerError, open_runner
from autograder.sandbox.outside import control
from autograder.sandbox.outside import runner as running
from autograder.sandbox.outside.stage import left_out
from autograder.sandbox.wire import policy
from autograder.sandbox.wire.policy import PolicyError, command, python_folders, writable
from course import exercises
from course.performing.cells import CodeCell
from course.performing.exercise import Failure, Observation

LIMITS = Limits(load_seconds=3.0, spare_seconds=0.5, memory=2**30, tasks=40)
NAMES = ("quadratic_grads", "hinge_backward")
with_and_without_walls = pytest.mark.parametrize(
    "name", [pytest.param("sandbox", marks=pytest.mark.sandbox), "trusted"]
)


@pytest.fixture(scope="module")
def sandbox():
    """One warm process for all tests of this file."""
    with open_runner(LIMITS) as opened:
        yield opened


@pytest.fixture(scope="module")
def trusted():
    """The same without walls: only answers that do no harm."""
    with open_runner(LIMITS, trusted=True) as opened:
        yield opened


def cells(body: str, head: str = "") -> list[CodeCell]:
    """An answer to quadratic_grads with this body, and a right one beside it."""
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return [
        CodeCell(source=f"{head}\ndef quadratic_grads(a, b, c, x, y):\n{lines}", answers="quadratic_grads"),
        CodeCell(source="def hinge_backward(w, x, b, y):\n    raise KeyError('alive')", answers="hinge_backward"),
    ]


def quadratic(opened, body: str, head: str = "", **changes) -> tuple[Observation, ...]:
    """What is seen of an answer to quadratic_grads with this body."""
    exercise = dataclasses.replace(exercises.load("quadratic_grads"), **changes)
    with opened.session(cells(body, head)) as session:
        return session.perform(exercise, exercise.draw(1)[:2])


def beside(opened, body: str, head: str = "", seconds: float = 1.0) -> tuple[tuple[Observation, ...], Failure | None]:
    """The same, and the failure of the exercise that is performed after it."""
    first, second = (dataclasses.replace(exercises.load(name), seconds=seconds) for name in NAMES)
    with opened.session(cells(body, head)) as session:
        seen = session.perform(first, first.draw(1)[:2])
        return seen, session.perform(second, second.draw(1)[:1])[0].error


def only_failure(seen: tuple[Observation, ...]) -> Failure:
    """The one failure that all observations hold."""
    assert len({each.error for each in seen}) == 1
    assert seen[0].error is not None
    return seen[0].error


def told(opened, expression: str) -> str:
    """What an expression is inside, as text."""
    return quadratic(opened, f"import os, sys, socket, ctypes\nraise KeyError({expression})")[0].error.message


# --- with and without walls ---


@with_and_without_walls
def test_the_kernel_measures_the_cases_that_are_to_be_measured(name, request):
    second = exercises.load("quadratic_grads").draw(1)[1].name
    seen = quadratic(request.getfixturevalue(name), "return 1.0, 2.0, 3.0", measured=(second,))
    assert [each.sources for each in seen] == [{}, {"peak_bytes": "kernel", "cpu_seconds": "kernel"}]


def measured(opened, body: str) -> Observation:
    """What is seen of an answer to hvp with this body on the case whose memory is measured, the second time.

    In the first, pages of torch's libraries are touched.
    """
    exercise = exercises.load("hvp")
    (case,) = [each for each in exercise.draw(1) if each.name in exercise.measured]
    source = f"import torch\ndef hvp(f, x, v):\n{textwrap.indent(body, '    ')}"
    with opened.session([CodeCell(source=source, answers="hvp")]) as session:
        return session.perform(exercise, [case, case])[1]


@with_and_without_walls
@pytest.mark.parametrize("kept", [2, 3])
def test_memory_at_its_highest_is_that_of_the_tensors_that_were_alive_at_once(name, kept, request):
    body = f"alive = []\nfor _ in range(20):\n    alive = [*alive, torch.ones(2**20)][-{kept - 1}:]\nreturn x"
    peak = measured(request.getfixturevalue(name), body).ledger["peak_bytes"]
    assert peak == pytest.approx(kept * 2**22, abs=2**20)  # the kernel counts in batches of pages on each processor


@pytest.mark.parametrize(
    "elsewhere",
    [
        *("os.fork()", "subprocess.run(['true'])", "os.pipe()", "socket.socketpair()", "os.memfd_create('kept')"),
        "open('/dev/shm/kept', 'wb', 0).write(b'x')",
    ],
)
def test_an_answer_whose_memory_is_measured_has_no_place_for_it_elsewhere(sandbox, elsewhere):
    error = measured(sandbox, f"import os, socket, subprocess\n{elsewhere}\nreturn x").error
    assert error.type in ("PermissionError", "OSError")


@with_and_without_walls
def test_an_answer_is_performed_on_every_case(name, request):
    seen = quadratic(request.getfixturevalue(name), "return 1.0, 2.0, 3.0")
    assert [each.error for each in seen] == [None, None]
    assert {float(each.values["value"]) for each in seen} == {1.0}


@with_and_without_walls
def test_each_exercise_gets_a_fork_of_the_loaded_cells(name, request):
    head = "import math\nLOADED = math.loads = getattr(math, 'loads', 0) + 1"
    body = "math.left = getattr(math, 'left', 0) + 1\nreturn float(math.left), float(LOADED), 0.0"
    exercise = exercises.load("quadratic_grads")
    with request.getfixturevalue(name).session(cells(body, head)) as session:
        for _ in range(2):
            seen = session.perform(exercise, exercise.draw(1)[:2])
            assert [float(each.values["value"]) for each in seen] == [1.0, 2.0]
            assert float(seen[0].values["dx"]) == 1.0


@with_and_without_walls
def test_an_answer_that_blocks_every_signal_is_stopped_from_outside(name, request):
    body = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\ntime.sleep(60)"
    seen, other = beside(request.getfixturevalue(name), body, seconds=0.5)
    assert only_failure(seen).type == "TimeLimit"
    assert other.message == "'alive'"


def test_a_runner_says_how_safe_it_is(sandbox, trusted):
    assert sandbox.describe().startswith("sandboxed")
    assert "not sandboxed" in trusted.describe()
    assert "--trust-submissions" in trusted.describe()


# --- what breaks costs its own exercise ---


@pytest.mark.parametrize(
    "body",
    [
        "import os\nos._exit(0)",
        "import os\nos.kill(os.getpid(), 9)",
        "import os, signal\nos.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)",
        "import os\nos.kill(-1, 9)\nos._exit(1)",
        "import ctypes\nctypes.string_at(0)",
    ],
)
def test_a_process_that_dies_costs_its_own_exercise_only(sandbox, body):
    seen, other = beside(sandbox, body)
    assert only_failure(seen).type == "ProcessDied"
    assert other.message == "'alive'"


def test_cells_that_never_finish_loading_cost_the_answers_that_need_them_only(sandbox):
    seen, other = beside(sandbox, "return FOREVER", head="FOREVER = any(iter(int, 1))")
    failure = only_failure(seen)
    assert (failure.type, failure.message) == ("TimeLimit", "loading the cells did not end within 3 s")
    assert other.message == "'alive'"


def test_after_one_answer_that_takes_all_the_time_to_load_others_get_a_part_of_it(sandbox):
    both = "FOREVER = any(iter(int, 1))\ndef quadratic_grads(): FOREVER\ndef hinge_backward(): FOREVER"
    loaded = [CodeCell(source=both, answers=name) for name in NAMES]
    with sandbox.session(loaded) as session:
        found = [session.perform(each, each.draw(1)[:1])[0].error.message for each in map(exercises.load, NAMES)]
    assert found == [f"loading the cells did not end within {seconds} s" for seconds in ("3", "0.75")]


REPLY = """
import os, socket, stat

def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False

sock = socket.socket(fileno=next(filter(is_socket, range(256))))
"""


@pytest.mark.parametrize(
    "data", ["(2**40).to_bytes(8, 'big')", "(9).to_bytes(8, 'big') + b'not a tree'", "bytes(7) + b'\\0' + bytes(99)"]
)
def test_a_reply_that_is_no_observation_costs_its_own_exercise_only(sandbox, data):
    seen, other = beside(sandbox, f"{REPLY}sock.sendall({data})\nimport os\nos._exit(0)")
    assert only_failure(seen).type == "BadReply"
    assert other.message == "'alive'"


@pytest.mark.parametrize("given", ["numpy.zeros(2**18)", "['x' * 9_900 + chr(0x1f600)] * 60"])
def test_what_all_cases_give_takes_no_more_memory_than_is_ours_to_give(sandbox, monkeypatch, given):
    monkeypatch.setattr("autograder.sandbox.outside.kept.KEPT", 3 * 2**20)
    seen, other = beside(sandbox, f"return {given}, 0.0, 0.0", head="import numpy")
    assert [each.error for each in seen] == [None, seen[1].error]
    assert seen[1].error.message == "what all cases give must not take more than 3 MiB together"
    assert other.message == "'alive'"


class _Tells:
    """An oracle that knows a value itself."""

    def values(self):
        return {"x": torch.zeros(2**18, dtype=torch.float64)}

    def ledger(self):
        return {}


def test_what_an_oracle_tells_takes_memory_as_well(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.kept.KEPT", 3 * 2**20)
    seen = quadratic(sandbox, "return 0.0, 0.0, 0.0", oracle=lambda case: _Tells())
    assert [each.error for each in seen] == [None, seen[1].error]
    assert seen[1].error.message == "what all cases give must not take more than 3 MiB together"


@pytest.mark.sandbox
def test_who_speaks_for_the_display_run_is_not_heard_without_end(monkeypatch):
    sources = [f"{REPLY}\nfrom autograder.sandbox.wire import messages, stream\n"
               "text = {'output_type': 'stream', 'name': 'stdout', 'text': 'x' * 2**19}\n"
               "for _ in range(40): stream.send(sock, messages.from_outputs([[text]]))", *["1"] * 30]  # fmt: skip
    with open_runner(Limits(output=2**20)) as opened:
        shown = opened.display(sources)
    assert 2**20 < sum(len(output.get("text", "")) for cell in shown for output in cell) < 2 * 2**20


@pytest.mark.sandbox  # the kernel's account of memory
def test_of_what_a_display_run_sends_no_more_is_made_than_is_kept():
    cells = """
import signal
signal.setitimer(signal.ITIMER_REAL, 0)
sock.settimeout(30)
def framed(output):
    text = json.dumps(["", [[{"$dict": output}]]], separators=(",", ":")).encode()
    frame = len(text).to_bytes(4, "big") + text
    return len(frame).to_bytes(8, "big") + frame
for output in [{"output_type": "error"}, *[{"a": [[]] * 49_990}] * 10]: sock.sendall(framed(output))
"""
    sources = [f"{REPLY}import json\n{cells}", *["1"] * 10]
    with open_runner(Limits(output=2**21)) as opened:
        before = peak()
        assert opened.display(sources, [True] * 11, lambda cells: [len(cell) for cell in cells])[:8] == [1] * 8
        assert peak(anew=False) - before < 20 * 2**20


@pytest.mark.parametrize("together", [False, True])
def test_what_an_answer_has_begun_has_ended_when_it_is_judged(sandbox, together):
    body = "name_oneself()\nos._exit = lambda code: time.sleep(60)\nreturn 0.0, 0.0, 0.0"
    first, second = map(exercises.load, NAMES)
    with sandbox.session(cells(body, f"{OUTLIVES}\nimport os, time")) as session:
        if together:
            with session.together([first, second]) as process:
                process.perform(first, first.draw(1)[:1])
                assert len(named(b"outlives")) == 1
        else:
            session.perform(first, first.draw(1)[:1])
        assert named(b"outlives") == []


WAITING = """
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0waiting")
listener.listen(4096)
for _ in range(3_000):
    other = socket.socket(socket.AF_UNIX)
    other.connect("\\0waiting")
    other.send(b"x")
    other.close()
time.sleep(1)
print("survived")
"""
SETTINGS = """
import socket
with socket.socket() as tcp, socket.socket(socket.AF_INET6) as six:
    denied = [(tcp, 1, name) for name in (26, 8, 51, 13)] + [(six, 41, 20), (tcp, 0, 35)]
    for sock, level, name in denied:
        try:
            sock.setsockopt(level, name, b"x" * 20)
            print("set", level, name)
        except PermissionError:
            pass
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
print("done")
"""


def test_sockets_that_wait_to_be_accepted_are_counted_though_no_process_has_them(sandbox):
    assert "survived" not in str(sandbox.display([WAITING]))


def test_no_program_of_the_kernels_and_no_larger_buffer_is_put_on_a_socket(sandbox):
    ((output,),) = sandbox.display([SETTINGS])
    assert output["text"] == "done\n"


# --- one process ---


STARTS = {
    "fork": "os.fork()",
    "shell": "os.system('true')",
    "program": "subprocess.run([sys.executable, '-c', 'pass'])",
    "another program": "os.execv(sys.executable, [sys.executable, '-c', 'pass'])",
    "multiprocessing": "multiprocessing.get_context('fork').Process(target=print).start()",
    "spawned": "os.posix_spawn('/bin/true', ['true'], {})",
}
IMPORTS = "import ctypes, multiprocessing, os, subprocess, sys"


@pytest.mark.parametrize("start", STARTS)
def test_an_answer_starts_no_process_and_is_told_so(sandbox, start):
    failure = only_failure(quadratic(sandbox, f"{IMPORTS}\n{STARTS[start]}\nreturn 1.0, 2.0, 3.0"))
    assert (failure.type, failure.message[:48]) == (
        "PermissionError",
        "an answer must be computed in the one process th",
    )


@pytest.mark.parametrize("start", STARTS)
def test_nor_does_what_it_loads(sandbox, start):
    head = f"{IMPORTS}\ntry:\n    LOADED = str({STARTS[start]})\nexcept OSError as error:\n    LOADED = repr(error)"
    seen = quadratic(sandbox, "raise KeyError(LOADED[:15])", head)
    assert only_failure(seen).message == "'PermissionError'"


@pytest.mark.parametrize(
    "call",
    [
        *("fork()", "vfork()", "syscall(57)", "syscall(56, 17, 0, 0, 0, 0)", "execv(b'/bin/true', None)"),
        *("epoll_create1(0)", "sendmsg(0, None, 0)", "sendmmsg(0, None, 0, 0)", "socket(1, 1, 0)", "listen(0, 1)"),
        "setsockopt(0, 1, 26, None, 0)",
    ],
)
def test_the_kernel_refuses_it_whatever_python_is_made_to_say(sandbox, call):
    body = f"raise KeyError(libc.{call}, ctypes.get_errno())"
    head = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nEARLY = (libc.{call}, ctypes.get_errno())"
    assert quadratic(sandbox, body, head)[0].error.message == "(-1, 1)"
    assert quadratic(sandbox, "raise KeyError(*EARLY)", head)[0].error.message == "(-1, 1)"


def test_an_answer_may_have_threads(sandbox):
    body = "found = []\nrun = Thread(target=lambda: found.append(2.0))\nrun.start()\nrun.join()\nreturn found * 3"
    seen = quadratic(sandbox, body, "from threading import Thread")
    assert [float(each.values["value"]) for each in seen] == [2.0, 2.0]


FRAMES = """\
import gc, sys, types
def seen():
    found, frame = [], sys._getframe(1)
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found
def listed(list_of):
    try:
        return [each.f_code.co_name for each in list_of() if isinstance(each, types.FrameType)]
    except PermissionError as error:
        return str(error)[-14:]
"""


@with_and_without_walls
@pytest.mark.parametrize(
    ("look", "told_"),
    [
        ("'.'.join(seen())", "'quadratic_grads.call_of_answer._call'"),
        ("listed(gc.get_objects)", "gc.get_objects"),
        ("listed(lambda: gc.get_referrers(None))", ".get_referrers"),
    ],
)
def test_an_answer_does_not_see_who_calls_it(name, look, told_, request):
    assert told_ in only_failure(quadratic(request.getfixturevalue(name), f"raise KeyError({look})", FRAMES)).message


HELD = """\
import fcntl, os, stat
def kind(descriptor):
    try:
        found = os.fstat(descriptor)
    except OSError:
        return "closed"
    if stat.S_ISREG(found.st_mode) and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return "font"
    return "null" if found.st_rdev == os.makedev(1, 3) else "socket" if stat.S_ISSOCK(found.st_mode) else "more"
"""


def test_an_answer_holds_no_descriptor_but_its_own_conversation_and_what_displays_draw_with(sandbox):
    held = "kinds = [*map(kind, range(1024))]\nraise KeyError(' '.join(sorted({*kinds})), kinds.count('socket'))"
    assert only_failure(quadratic(sandbox, held, HELD)).message == "('closed font null socket', 1)"


# --- limits ---


CLOCKS = """\
import signal, time
clock, mask = time.process_time, signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})
time.process_time = time.monotonic = lambda: 0.0
"""


def test_an_answer_that_stops_its_own_clocks_has_no_more_time():
    body = "until = clock() + 2.0\nwhile clock() < until: mask\nreturn 1.0, 2.0, 3.0"
    with open_runner(dataclasses.replace(LIMITS, spare_seconds=9.0), trusted=True) as opened:
        failure = only_failure(quadratic(opened, body, CLOCKS, seconds=1.0))
    assert (failure.type, failure.message) == ("TimeLimit", "the run did not end within 1 s")


def test_all_exercises_of_a_submission_share_a_time_limit(trusted):
    exercise = exercises.load("quadratic_grads")
    with trusted.session(cells("return 1.0, 2.0, 3.0")) as session:
        seen = list(session.perform(exercise, exercise.draw(1)[:1]))
        session._until = time.monotonic()  # as if it had taken so long
        seen += session.perform(exercise, exercise.draw(1)[:2])
    told = "all exercises together may take 600 s, which were over before this one was done"
    assert [each.error and each.error.message for each in seen] == [None, told, told]


def test_no_case_begins_when_the_time_of_the_submission_is_over(trusted, monkeypatch):
    exercise = exercises.load("quadratic_grads")
    with trusted.session(cells("return 1.0, 2.0, 3.0")) as session:
        observe = session._observe

        def takes_all(*case):
            seen = observe(*case)
            session._until = time.monotonic()
            return seen

        monkeypatch.setattr(session, "_observe", takes_all)
        seen = session.perform(exercise, exercise.draw(1)[:3])
    assert [each.error and each.error.type for each in seen] == [None, "TimeLimit", "TimeLimit"]


def test_memory_of_one_process_is_limited(sandbox):
    assert quadratic(sandbox, "return len(bytes(2 * 2**30)), 0.0, 0.0")[0].error.type == "MemoryError"


def survives(opened, cell: str) -> bool:
    """Whether this cell of a display run comes to its end: there, other processes may be started."""
    shown = opened.display([f"import os, time\n{cell}\nprint('survived')"])
    return "survived" in str(shown)


def test_memory_of_all_processes_together_is_limited(sandbox):
    for forks, survived in (("", True), ("123", False)):
        keep = f"for _ in '{forks}': os.fork()\nkept = bytearray(b'x') * 2**28\ntime.sleep(1)"
        assert survives(sandbox, keep) is survived


FORK = "os.fork() or time.sleep(5)"


def test_programs_share_no_memory_and_forks_do(sandbox):
    program = "b = b'x' * (180 << 20); import time; time.sleep(20)"
    popen = "subprocess.Popen([sys.executable, '-c', program])"
    for start, count, seconds, survived in ((popen, 3, 2, True), (popen, 10, 10, False), (FORK, 20, 2, True)):
        many = f"for _ in range({count}):\n    if not {start}: os._exit(0)\ntime.sleep({seconds})"
        assert survives(sandbox, f"import subprocess, sys\nprogram = {program!r}\n{many}") is survived


def test_tasks_are_limited_by_the_watchdog(sandbox):
    for forks, survived in ((5, True), (50, False)):
        assert (
            survives(sandbox, f"for _ in range({forks}):\n    if not os.fork(): time.sleep(5)\ntime.sleep(1)")
            is survived
        )


def test_files_are_limited(sandbox):
    body = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('big', 'wb').write(bytes(20 * 2**20))"
    assert quadratic(sandbox, body)[0].error.type == "OSError"


def test_limits_are_read_with_units():
    assert Limits.parse(["memory=3GiB", "load_seconds=1min", "tasks=9"]) == Limits(
        memory=3 * 2**30, load_seconds=60.0, tasks=9
    )


@pytest.mark.parametrize(
    "text",
    [
        *("memory", "memory=0", "memory=-1", "memory=3 apples", "speed=3", "memory=1e9"),
        *("memory=3s", "tasks=1s", "tasks=9 GiB", "load_seconds=1GiB"),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused(text):
    with pytest.raises(PolicyError, match="name=number"):
        Limits.parse([text])


@pytest.mark.parametrize(
    "text", ["tasks=0.5", "memory=2000", "memory=99999999999999999999GiB", f"load_seconds={'9' * 400}"]
)
def test_a_limit_that_is_no_size_is_refused(text):
    with pytest.raises(PolicyError, match=r"at least 1 MiB for .* at most 2\*\*60"):
        Limits.parse([text])


# --- walls ---


def test_an_answer_sees_no_environment_and_an_empty_home(sandbox, monkeypatch):
    monkeypatch.setenv("GRADEBOOK_PASSWORD", "secret")
    assert "GRADEBOOK_PASSWORD" not in told(sandbox, "sorted(os.environ)")
    assert told(sandbox, "(os.getcwd(), os.listdir('.'), sys.stdin.read())") == "('/student', [], '')"


def test_only_folders_that_are_empty_for_each_submission_can_be_written(sandbox):
    places = "['/', '/usr', '/course', '/dev', '/proc', '/etc', '/tmp', '/student', '/dev/shm']"
    allowed = told(sandbox, f"[each for each in {places} if os.access(each, os.W_OK)]")
    assert {*ast.literal_eval(allowed)} == set(writable())


PLACES = "('/student', '/tmp', '/dev/shm', '/dev')"


def test_nothing_of_one_submission_is_left_for_the_next(sandbox):
    leave = "import os\nfor each in {}:\n    try: open(each + '/left', 'w')\n    except OSError: pass"
    quadratic(sandbox, leave.format(PLACES))
    assert told(sandbox, f"[each for each in {PLACES} if os.path.exists(each + '/left')]") == "[]"


FILES = {
    "a file": "open('left', 'w').write('7')",
    "a folder": "os.makedirs('left/below'); open('left/below/file', 'w').close()",
    "a link": "os.symlink('/usr', 'left')",
    "many folders in each other": "[(os.mkdir('left'), os.chdir('left')) for _ in range(1_500)]",
}


@pytest.mark.parametrize("leave", FILES)
def test_no_file_of_one_exercise_reaches_the_next(sandbox, leave):
    first, second = map(exercises.load, NAMES)
    given = [
        CodeCell(source=f"import os\ndef {NAMES[0]}(*_):\n    {FILES[leave]}", answers=NAMES[0]),
        CodeCell(source=f"import os\ndef {NAMES[1]}(*_):\n    raise KeyError(os.listdir('.'))", answers=NAMES[1]),
    ]
    with sandbox.session(given) as session:
        session.perform(first, first.draw(1)[:1])
        assert session.perform(second, second.draw(1)[:1])[0].error.message == "[]"


def test_no_other_process_can_be_seen(sandbox):
    assert told(sandbox, "os.listdir('/proc')") == "[]"
    assert told(sandbox, "os.getppid()") in ("2", "3")


def test_nothing_secret_can_be_imported_where_students_code_runs(sandbox):
    assert {"course.reference", "course.judging", "course.sheets", "autograder.bank"} <= {*left_out()}
    found = f"import importlib.util\nprint([*filter(importlib.util.find_spec, {left_out()})])"
    assert [output["text"] for output in sandbox.display([found])[0]] == ["[]\n"]


LOOKS = """
def choose_bits(layers, budget):
    import sys
    frame = sys._getframe()
    while "asked" not in frame.f_locals:  # the probe's, which reads what comes out of this generator
        frame = frame.f_back
    raise LookupError(sorted(frame.f_locals["asked"]["layers"][0]))
    yield
"""


def test_what_only_the_judge_reads_is_not_in_the_process_of_the_answer(sandbox):
    exercise = exercises.load("choose_bits")
    with sandbox.session([CodeCell(source=LOOKS, answers=exercise.name)]) as session:
        (seen,) = session.perform(exercise, exercise.draw(1)[:1])
    assert seen.error.message == "['g', 'w', 'x']"


@pytest.mark.parametrize(
    "call",
    [
        *("unshare(0x10000000)", "mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)", "ptrace(0, 0, 0, 0)", "setns(0, 0)"),
        *("memfd_create(b'kept', 0)", "shmget(0, 1, 0o1600)", "semget(0, 1, 0o1600)", "msgget(0, 0o1600)"),
        *("mmap(None, 4096, 3, 0x21, -1, 0)", "readahead(0, 0, 1)", "personality(-1)", "fcntl(0, 6, 0)", "setsid()"),
        *(
            "prctl(4, 0)",
            "ioctl(0, 0x5412, 0)",
            "socket(16, 3, 0)",
            "clock_adjtime(0, None)",
            "sched_setaffinity(0, 0, 0)",
        ),
    ],
)
def test_the_filter_refuses_what_is_not_listed(sandbox, call):
    body = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nraise KeyError(libc.{call}, ctypes.get_errno())"
    assert quadratic(sandbox, body)[0].error.message == "(-1, 1)"


@pytest.mark.parametrize("number", [425, 435, 437, 451, 500])
def test_what_is_newer_than_the_list_is_not_there(sandbox, number):
    body = (
        "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"raise KeyError(libc.syscall({number}, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])"
    )
    assert quadratic(sandbox, body)[0].error.message == "(-1, 'ENOSYS')"


def test_no_capability_is_left(sandbox):
    body = (
        "import ctypes\nheld = (ctypes.c_uint * 6)()\n"
        "ctypes.CDLL(None).capget((ctypes.c_uint * 2)(0x20080522, 0), held)\nraise KeyError(list(held))"
    )
    assert quadratic(sandbox, body)[0].error.message == "[0, 0, 0, 0, 0, 0]"


def test_a_detached_process_ends_with_its_submission(sandbox):
    cell = (
        "import signal\nif os.fork() == 0:\n    os.setpgid(0, 0)\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    if os.fork() == 0: time.sleep(600)\n    os._exit(0)"
    )
    before = running_processes(sandbox)
    assert survives(sandbox, cell)
    assert running_processes(sandbox) == before


def running_processes(opened) -> int:
    """How many processes descend from the runner's."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, queue = 0, [opened._warm._process.pid]
    while queue:
        found, queue = found + 1, [*queue[1:], *children.get(queue[0], [])]
    return found


def test_what_is_printed_while_loading_goes_nowhere(sandbox, capfd):
    seen = quadratic(sandbox, "print('seen')\nreturn 1.0, x, 3.0", head="x = print('lost') or 2.0")
    assert seen[0].printed == "seen\n"
    assert capfd.readouterr().out == ""


@pytest.mark.sandbox
def test_closing_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with open_runner(LIMITS) as opened:
        quadratic(opened, "return 1.0, 2.0, 3.0")
        pid = opened._warm._process.pid
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.sandbox
def test_the_warm_process_is_started_again_when_somebody_kills_it(sandbox):
    quadratic(sandbox, "return 1.0, 2.0, 3.0")
    sandbox._warm._process.kill()
    sandbox._warm._process.wait()
    assert quadratic(sandbox, "return 1.0, 2.0, 3.0")[0].error is None


# --- where there can be no sandbox ---


def test_without_bubblewrap_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RunnerError, match=r"apt install bubblewrap.*--trust-submissions"):
        open_runner()


def test_on_another_system_a_sentence_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(running.sys, "platform", "darwin")
    with pytest.raises(RunnerError, match="needs Linux, this is darwin"):
        open_runner()


@pytest.mark.sandbox
def test_walls_that_cannot_be_built_are_told_and_not_left_out(monkeypatch):
    monkeypatch.setattr(control, "command", lambda argv, **rest: ["bwrap", "--no-such-option"])
    with open_runner() as opened, pytest.raises(RunnerError, match=r"no-such-option.*autograder doctor"):
        quadratic(opened, "return 1.0, 2.0, 3.0")


def test_the_outer_walls_bind_this_python_read_only_and_no_home(tmp_path):
    words = command(["true"], course=tmp_path)
    bound = [words[number + 1] for number, word in enumerate(words) if word.startswith("--ro-bind")]
    assert set(python_folders()) <= set(bound)
    assert not {"--bind", "--share-net", "--dev-bind"} & set(words)
    assert os.path.expanduser("~") not in bound


@pytest.fixture
def in_the_system(monkeypatch):
    """A folder of the course that lies in one of the system's, as in /usr/local/share; not in /tmp, which is empty."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as system:
        folder = Path(system) / "course"
        folder.mkdir()
        (folder / "gradebook.db").write_text("secret")
        (folder.parent / "library").write_text("public")
        folder.parent.chmod(0o755)
        monkeypatch.setattr(policy, "SYSTEM", (*policy.SYSTEM, system))
        monkeypatch.setattr(control, "ours", lambda: [folder])
        yield folder


@pytest.mark.sandbox
def test_a_course_that_lies_in_a_folder_of_the_system_is_not_there(in_the_system):
    with open_runner(display=False) as opened:
        folder = repr(str(in_the_system))
        assert told(opened, f"sorted(os.listdir(os.path.dirname({folder})))") == "['course', 'library']"
        assert told(opened, f"os.listdir({folder}), os.access({folder}, os.W_OK)") == "([], False)"


def test_python_below_a_hidden_folder_is_bound_again(in_the_system, monkeypatch):
    python = str(in_the_system / ".venv")
    monkeypatch.setattr(policy, "_python", lambda: {python})
    assert policy.without([in_the_system]) == [
        *("--tmpfs", str(in_the_system), "--ro-bind", python, python, "--remount-ro", str(in_the_system))
    ]


def test_a_course_in_pythons_own_folder_is_refused(in_the_system, monkeypatch):
    monkeypatch.setattr(policy, "_python", lambda: {str(in_the_system)})
    with pytest.raises(PolicyError, match="move the course to a folder of its own"):
        policy.without([in_the_system])


def test_what_displays_draw_with_is_imported_only_where_they_are_to_come(sandbox):
    drawing = "'matplotlib.pyplot' in sys.modules"
    assert told(sandbox, drawing) == "True"
    with open_runner(LIMITS, display=False) as opened:
        assert told(opened, drawing) == "False"
        ((output,),) = opened.display(["1 + 1"])
        assert output["data"]["text/plain"] == "2"


def test_a_display_run_in_part_is_done_as_a_whole_where_a_cell_raises(sandbox):
    hidden = "__builtins__.__dict__.update(a=1)", "print('left')", "print(a)"
    whole = sandbox.display(hidden)
    assert sandbox.display(hidden, [False, False, True]) == whole
    assert sandbox.display(("print('left')", "print(2)"), [False, True]) == [[], *sandbox.display(["print(2)"])]
