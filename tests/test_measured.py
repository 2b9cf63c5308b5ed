"""What a case costs is counted wherever an answer keeps it; what it cannot be counted in is closed."""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap
import time

import pytest

from autograder.sandbox import Limits, open_runner
from autograder.sandbox.inside.accounting import Costs, Process, _process
from autograder.sandbox.wire import messages
from course import exercises
from course.performing.cells import CodeCell
from course.performing.exercise import Observation

MIB = 2**20
KEPT = "[torch.ones(2**20) for _ in range(20)]"  # 80 MiB


@pytest.fixture(scope="module")
def sandbox():
    """One warm process for all tests of this file."""
    with open_runner(Limits(spare_seconds=0.5), display=False) as opened:
        yield opened


def measured(opened, body: str, head: str = "") -> Observation:
    """What is seen of an answer to hvp on the case whose memory is measured, the second time."""
    exercise = exercises.load("hvp")
    (case,) = [each for each in exercise.draw(1) if each.name in exercise.measured]
    source = f"import ctypes, mmap, os, sys, torch\n{head}\ndef hvp(f, x, v):\n{textwrap.indent(body, '    ')}\n"
    with opened.session([CodeCell(source=f"{source}    return x", answers="hvp")]) as session:
        return session.perform(exercise, [case, case])[1]


LIBRARY = """\
FILE = os.open(os.path.dirname(torch.__file__) + "/lib/libtorch_cpu.so", os.O_RDONLY)
HEAVY = mmap.mmap(FILE, 80 * 2**20, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
HEAVY = (HEAVY, [HEAVY[each] for each in range(0, len(HEAVY), 4096)][:1])[0]
"""

HOARDS = {
    "none": ("", f"kept = {KEPT}"),
    "taken while loading": (f"POOL = {KEPT}", "for each in POOL:\n    each.fill_(2.0)"),
    "taken in the first case": (
        "POOL = []",
        f"POOL.extend([] if POOL else {KEPT})\nfor each in POOL:\n    each.zero_()",
    ),
}


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["hvp", "softmax_cross_entropy"])  # no file may be read there; no library loaded
def test_an_answer_may_draw_where_no_display_is_to_come(sandbox, name):
    exercise = exercises.load(name)
    (case, *_) = [each for each in exercise.draw(1) if each.name in exercise.measured or not exercise.measured]
    draws = "import matplotlib.pyplot as plt\nplt.figure().gca().plot([1, 2])\nplt.close('all')\nraise LookupError"
    source = f"def {name}(*given):\n{textwrap.indent(draws, '    ')}\n"
    with sandbox.session([CodeCell(source=source, answers=name)]) as session:
        assert [each.error.type for each in session.perform(exercise, [case])] == ["LookupError"]


@pytest.mark.sandbox
@pytest.mark.parametrize("hoard", HOARDS)
def test_what_an_answer_keeps_counts_wherever_it_was_taken(sandbox, hoard):
    head, body = HOARDS[hoard]
    assert measured(sandbox, body, head).ledger["peak_bytes"] == pytest.approx(80 * MIB, abs=8 * MIB)


@pytest.mark.sandbox
def test_pages_of_files_that_are_let_go_of_make_no_room(sandbox):
    exercise = exercises.load("hvp")
    (case,) = [each for each in exercise.draw(1) if each.name in exercise.measured]
    source = f"import mmap, os, torch\n{LIBRARY}\ndef hvp(f, x, v):\n    HEAVY.madvise(mmap.MADV_DONTNEED)\n"
    source += f"    hvp.kept = {KEPT}\n    return x"
    with sandbox.session([CodeCell(source=source, answers="hvp")]) as session:
        (seen,) = session.perform(exercise, [case])
    assert seen.ledger["peak_bytes"] >= 80 * MIB


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "elsewhere",
    [
        *("os.memfd_create('kept')", "mmap.mmap(-1, 4096)", "os.pipe()", "os.open('/dev/ptmx', os.O_RDWR)"),
        *("os.symlink(1000 * 'kept', '/tmp/kept')", "os.mkdir('/tmp/kept')", "os.setxattr('/tmp', 'user.kept', b'x')"),
        "open('/dev/shm/kept', 'wb')",
        "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)",
        "mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).madvise(21)",
        "mmap.mmap(-1, 2**21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)",
    ],
)
def test_there_is_no_place_that_does_not_count_while_loading_either(sandbox, elsewhere):
    head = f"try:\n    LOADED = str({elsewhere})\nexcept OSError as error:\n    LOADED = type(error).__name__"
    assert measured(sandbox, "raise KeyError(LOADED)", head).error.message in ("'PermissionError'", "'OSError'")


@pytest.mark.sandbox
@pytest.mark.parametrize(("how", "is_later"), [("import sympy", False), ("__import__('sympy')", True)])
def test_what_a_library_takes_is_no_cost_of_the_answer(sandbox, how, is_later):
    """What a statement imports is there before; what comes later is told, so that it can be there another time."""
    exercise = exercises.load("hvp")
    (case,) = [each for each in exercise.draw(1) if each.name in exercise.measured]
    source = f"import torch\ndef hvp(f, x, v):\n    {how}\n    kept = torch.ones(2**20)\n    return x"
    with sandbox.session([CodeCell(source=source, answers="hvp")]) as session:
        session.perform(exercise, [case, case])
        assert ("sympy" in session.libraries) == is_later
        seen = session.perform(exercise, [case, case], session.libraries)[1]
    assert seen.ledger["peak_bytes"] == pytest.approx(4 * MIB, abs=4 * MIB)


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, sys, threading, time
def hold():
    kept = b"x" * 2**26
    print("there", flush=True)
    time.sleep(60)
def come_and_go():
    threading.Thread(target=come_and_go, daemon=True).start()
for _ in range(int(sys.argv[2])):
    come_and_go()
threading.Thread(target=hold).start()
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the call is that of x86-64")
@pytest.mark.parametrize(("name", "restless"), [("python", 0), ("\rVmRSS:0", 0), ("\rVmRSS:", 0), ("python", 4)])
def test_memory_counts_when_the_first_thread_has_ended(name, restless):
    start = [sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD, name, str(restless)]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "there\n"
            time.sleep(0.1)
            looks = [_process(child.pid, None) for _ in range(100)]
        finally:
            child.kill()
    assert all(found and min(found.own, found.peak, found.resident) >= 2**26 for found in looks)


LEAVES = """
import socket
SEND = socket.socket.sendall
def leave(self, data, *flags):
    SEND(self, data, *flags)
    if b'"seen"' in bytes(data):
        os._exit(0)
"""


@pytest.mark.sandbox
def test_who_leaves_before_memory_is_asked_for_has_not_cost_nothing(sandbox, monkeypatch):
    read = messages.to_observations
    monkeypatch.setattr(messages, "to_observations", lambda *given: time.sleep(0.3) or read(*given))
    body = f"if hasattr(hvp, 'kept'):\n    socket.socket.sendall = leave\nhvp.kept = {KEPT}"
    assert measured(sandbox, body, LEAVES).error.type == "ProcessDied"


def process(pid: int, *, own: int, resident: int, peak: int = 0, cpu: float = 0.0, began: int = 0) -> Process:
    return Process(pid=pid, parent=1, threads=1, resident=resident, peak=peak, own=own, cpu=cpu, began=began)


def test_the_peak_is_above_the_start_and_holds_what_was_taken_before():
    costs = Costs(shared=100)
    begun = [process(7, own=100, resident=150)]
    costs.base(begun, begun)
    costs.starts = {7: process(7, own=140, resident=210)}
    assert costs.spent([process(7, own=140, resident=210, peak=260, cpu=2.0)]) == (50 + 40, 2.0)
    assert costs.grown([process(7, own=0, resident=0)]) == 40


def test_bytes_of_ones_own_count_where_the_peak_hides_them():
    costs = Costs(shared=100)
    begun = [process(7, own=100, resident=150)]
    costs.base(begun, begun)
    costs.starts = {7: process(7, own=100, resident=400)}
    costs.look([process(7, own=300, resident=350)])
    assert costs.spent([process(7, own=100, resident=150, peak=400)])[0] == 200


def test_a_rank_has_its_base_when_it_is_ready_however_soon_another_one_is():
    costs = Costs(shared=100)
    soon, late = process(7, own=110, resident=150), process(8, own=140, resident=180)  # it has not given back yet
    costs.base([soon, late], [soon])
    soon, late = process(7, own=130, resident=180), process(8, own=100, resident=140)
    costs.base([soon, late], [late])
    costs.mark([soon, late])
    assert costs.bases == {(7, 0): 110, (8, 0): 100}
    assert costs.grown([soon, late]) == 20


def test_a_number_that_comes_back_is_another_processs():
    costs = Costs(shared=100)
    for began, own in ((1, 300), (2, 110)):
        costs.base([process(7, own=own, resident=350, began=began)], [process(7, own=own, resident=350, began=began)])
    costs.starts = {7: process(7, own=190, resident=240, began=2)}
    now = process(7, own=150, resident=200, peak=240, began=2)
    assert costs.grown([now]) == 80
    assert costs.spent([now])[0] == 80


def test_a_process_that_has_ended_or_is_about_to_is_missed_if_it_was_there_at_the_mark():
    costs = Costs(shared=100)
    costs.starts = {pid: process(pid, own=100, resident=resident) for pid, resident in ((6, 0), (7, 150), (8, 150))}
    assert [each.pid for each in costs.gone([process(7, own=0, resident=0), process(9, own=0, resident=0)])] == [7, 8]


def test_names_of_modules_are_read_from_nobody_to_trust():
    assert messages.to_modules("sympy torch.fx.config os;exit ../x .y a. \0") == ("sympy", "torch.fx.config")
    assert messages.to_modules(3) == messages.to_modules(None) == ()
    assert messages.outermost({"sympy", "sympy.core", "torch.fx.config"}) == ["sympy", "torch.fx.config"]
