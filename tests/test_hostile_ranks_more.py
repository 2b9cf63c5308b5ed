"""Ranks that look for what the broker does not count, does not limit, or blames on somebody else.

Each attack is bounded by itself: seconds, loopback, its own processes.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import threading
import time

import pytest
import torch
import toy_ranks
from living import OUTLIVES, named, peak
from ranks_room import answer, broken, perform_ranks, staged_with_toy
from test_hostile_ranks import LIMITS, RAW

from autograder.sandbox import open_runner
from autograder.sandbox.outside import loading
from autograder.sandbox.outside.broker import Broker
from autograder.sandbox.outside.kept import Kept
from autograder.sandbox.outside.loading import Container, RunnerError
from autograder.sandbox.wire.frame import BadFrame
from autograder.sandbox.wire.policy import PATIENT
from course.cluster import calls
from course.cluster.account.network import Network
from course.judging.judge import judge
from course.performing.cells import CodeCell
from course.performing.exercise import Observation
from course.performing.perform import in_float64, perform_all

VERBS = (*toy_ranks.EXERCISE.verbs, "all_reduce", "all_gather")
EXERCISE = dataclasses.replace(toy_ranks.EXERCISE, seconds=3.0, verbs=VERBS)
WITH_GROUPS = dataclasses.replace(EXERCISE, verbs=calls.VERBS)
CASES = EXERCISE.draw(3)


@pytest.fixture(scope="module")
def sandbox():
    """One warm process with the toy exercise, with walls."""
    with staged_with_toy(), open_runner(LIMITS, display=False) as opened:
        yield opened


def attack(sandbox, body: str) -> tuple[str, int | None]:
    """How the run failed; a right answer works afterwards."""
    failure, _ = broken(sandbox, body, head=RAW, exercise=EXERCISE)
    assert len(failure.message) < 1_000
    return failure.type, failure.rank


# words, lines and shapes


def test_what_ranks_print_is_no_longer_than_a_text_whatever_they_do_to_the_limit(sandbox):
    source = answer("sys.stdout._room = 10_000\nprint('\\n' * 10_000, end='')\nreturn x", head="import sys")
    (seen,) = perform_ranks(sandbox, source, [CASES[1]], EXERCISE)
    assert seen.error is None
    assert 0 < len(seen.printed) <= 10_000


@pytest.mark.parametrize(
    "item",
    [
        "call('all_reduce', 1, range(3), [x], [x.shape], op='\\ud800' * 690_000)",
        "call('recv', 1, range(3), takes=[(1,) * 900], peer=2)",
        "{**call('send', 1, range(3), [x], peer=2), 'verb': torch.zeros(4)}",
        "{**call('recv', 1, range(3), peer=2), 'takes': [['F' * 100_000, [4]]]}",
    ],
)
def test_no_word_or_shape_of_a_call_is_longer_than_a_message_about_it_may_be(sandbox, item):
    assert attack(sandbox, f"if rank == 1:\n    said(port, {item}, waits=0)\ncomm.barrier()") == ("BadReply", 1)


# floods


def test_a_tensor_counts_wherever_it_stands_in_a_message(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_BYTES", 8 * 2**20)
    body = """
if rank == 1:
    big = torch.zeros(2**18)
    said(port, *[call("broadcast", 1, [1], [big], [big.shape], peer=1)] * 9)
comm.barrier()
"""
    failure, _ = broken(sandbox, body, head=RAW, exercise=WITH_GROUPS)
    assert (failure.type, failure.rank) == ("Flood", 1)


def test_to_claim_to_compute_is_a_call(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_CALLS", 500)
    body = "if rank == 1:\n    said(port, *[{'compute': 0.0, 'label': ''}] * 600)\ncomm.barrier()"
    assert attack(sandbox, body) == ("Flood", 1)


def test_to_wait_in_vain_is_a_call(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_CALLS", 100)
    body = """
if rank == 1:
    said(port, call("recv", 1, range(3), takes=[x.shape], peer=0))
    while True:
        port._reply({"asks": 0, "seconds": 0.0})
comm.barrier()
"""
    assert attack(sandbox, body) == ("Flood", 1)


def test_calls_that_take_long_to_make_end_in_time_though_no_rank_runs(sandbox, monkeypatch):
    collective = Network.collective
    monkeypatch.setattr(Network, "collective", lambda *given: time.sleep(0.1) or collective(*given))
    many = 'call("all_reduce", rank, range(3), [x], [x.shape], op="sum", context=at) for at in range(1, 201)'
    failure, seconds = broken(sandbox, f"said(port, *[{many}], waits=199)", head=RAW, exercise=WITH_GROUPS)
    assert failure.type == "TimeLimit"
    assert seconds < PATIENT * EXERCISE.seconds + 5  # others may keep the processors busy; and to start and to clear up


def test_an_observation_comes_alone(sandbox):
    body = "if rank == 1:\n    raw(port, {'seen': [SEEN], 'value': [1]})\n    time.sleep(60)\ncomm.barrier()"
    seen = "SEEN = {'values': {}, 'ledger': {}, 'error': None, 'printed': ''}"
    failure, _ = broken(sandbox, body, head=f"{RAW}\n{seen}", exercise=EXERCISE)
    assert (failure.type, failure.rank) == ("BadReply", 1)


def test_no_rank_outlives_its_exercise(sandbox):
    source = answer("name_oneself()\nos._exit = lambda code: time.sleep(60)\nreturn x", OUTLIVES)
    with sandbox.session([CodeCell(source=source, answers=EXERCISE.name)]) as session:
        (seen,) = session.perform(EXERCISE, CASES[1:2])
        assert seen.error is None
        assert named(b"outlives") == []


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_CALLS"])
def test_who_did_most_is_named_and_not_who_did_the_last_bit(sandbox, monkeypatch, limit):
    monkeypatch.setattr(f"autograder.sandbox.outside.broker.{limit}", {"MAX_BYTES": 2**20, "MAX_CALLS": 110}[limit])
    body = """
if rank == 1:
    for _ in range(100):
        comm.send(torch.zeros(2500), 2)
    comm.send(x, 0)
if rank == 0:
    comm.recv(x, 1)
    for _ in range(20):
        comm.send(torch.zeros(2500), 2)
comm.barrier()
"""
    assert attack(sandbox, body) == ("Flood", 1)


@pytest.mark.parametrize(("sent", "received", "failed"), [(20, 0, ("Flood", 1)), (1, 1, None)])
def test_what_nobody_receives_is_not_held_without_end(sandbox, monkeypatch, sent, received, failed):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_HELD", 4 * 2**20)
    monkeypatch.setattr("autograder.sandbox.outside.broker.LOOK", 2**19)
    body = f"""
for _ in range(20 // {sent}):
    for _ in range({sent} if rank == 1 else 0):
        comm.send(torch.zeros(2**18), 2)
    for _ in range({received} if rank == 2 else 0):
        comm.recv(torch.empty(2**18), 1)
    comm.barrier()
return x
"""
    three = [case for case in CASES if case.name == "3 ranks"]
    (seen,) = perform_ranks(sandbox, answer(body, head=RAW), three, EXERCISE)
    assert failed == ((seen.error.type, seen.error.rank) if seen.error else None)


def test_messages_that_nobody_receives_are_held_with_what_they_take_besides_their_numbers(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_HELD", 2**20)
    monkeypatch.setattr("autograder.sandbox.outside.broker.LOOK", 2**18)
    body = "if rank == 1:\n    for tag in range(600):\n        comm.send(torch.zeros(1), 2, tag=tag)\ncomm.barrier()"
    assert attack(sandbox, body) == ("Flood", 1)


BEGUN = """
if rank:
    with contextlib.suppress(BaseException):
        comm.recv(torch.empty(3), 0, tag=99)
    length = 24 * 2**20
    port._sock.sendall(length.to_bytes(8, "big") + bytes(length - 1))
    time.sleep(1)
raise ValueError
"""


def test_what_ranks_begin_to_say_when_a_run_is_over_takes_little_memory(sandbox):
    before = peak()
    failure, _ = broken(sandbox, BEGUN, head=f"import contextlib\n{RAW}", exercise=EXERCISE)
    assert failure.type == "ValueError"
    # Of 48 no more than 17 are read. Room for an eighth more is taken, and all of it is there twice while it is moved.
    assert peak(anew=False) - before < 44 * 2**20


RESULTS = """
equal = torch.ones(2**13)
gather = call('all_gather', rank, range(size), [equal], [equal.shape] * size) | {'async': True}
said(port, *[gather] * 200, waits=0)
time.sleep(1)
return x
"""
A_MESSAGE = "if rank == 1:\n    comm.send(torch.zeros(2), 2)\nreturn x"


@pytest.mark.parametrize(("body", "failed"), [(RESULTS, "Flood"), (A_MESSAGE, "Leftover")])
def test_what_nobody_takes_is_not_held_without_end_nor_after_the_run(sandbox, monkeypatch, body, failed):
    monkeypatch.setattr("autograder.sandbox.outside.broker.MAX_HELD", 4 * 2**20)
    monkeypatch.setattr("autograder.sandbox.outside.broker.LOOK", 2**19)
    gc.collect()
    gc.disable()
    try:
        failure, _ = broken(sandbox, body, head=RAW, exercise=EXERCISE)
        assert failure.type == failed, failure.message
        assert not any(isinstance(each, Broker) for each in gc.get_objects())
    finally:
        gc.enable()


def test_what_all_ranks_give_in_all_cases_takes_no_more_memory_than_is_ours_to_give(sandbox, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.outside.kept.KEPT", 3 * 2**20 + 2**19)
    seen = perform_ranks(sandbox, answer("return torch.zeros(2**17)"), EXERCISE.draw(3)[:4], EXERCISE)
    assert [each.error is None for each in seen] == [True, True, True, False]  # 1 rank, 2, 3, 4
    assert seen[3].error.type == "BadReply"
    assert "what all cases give must not take more than 3 MiB together" in seen[3].error.message


def test_a_tensor_counts_besides_its_numbers():
    kept, row = Kept(), Observation(values={str(at): torch.zeros(1) for at in range(5_000)})  # 4 MB
    for _ in range(15):
        kept.add(row)
    with pytest.raises(BadFrame, match="together"):
        kept.add(row)


# past the broker

LOCKED = """
import ctypes, fcntl, struct

def quietly(action):
    with contextlib.suppress(OSError):
        return action()

def is_locked():
    try:
        fcntl.flock(open(os.__file__), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True

def is_write_locked():
    found = fcntl.fcntl(open(os.__file__), fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    return struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK

def watched():
    watch = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK)
    ctypes.CDLL(None).inotify_add_watch(watch, os.__file__.encode(), 0x20)
    return watch
"""


@pytest.mark.parametrize(
    ("leave", "find"),
    [
        ("fcntl.flock(file, fcntl.LOCK_EX)", "is_locked()"),
        ("fcntl.lockf(file, fcntl.LOCK_SH)", "is_write_locked()"),
        ("open(os.__file__)", "os.read(watch, 100)"),
        ("os.openpty()", "os.path.exists('/dev/pts/0')"),
    ],
)
def test_files_and_terminals_that_all_ranks_see_carry_no_message(sandbox, leave, find):
    body = f"""
watch, file = watched(), open(os.__file__)
comm.barrier()
kept = quietly(lambda: {leave}) if rank == 0 else None
comm.barrier()
found = bool(rank and quietly(lambda: {find}))
comm.barrier()
return torch.tensor([float(found)])
"""
    (seen,) = perform_ranks(sandbox, answer(body, LOCKED), CASES[2:3], EXERCISE)
    assert seen.error is None
    assert [float(seen.values[f"{rank}/total"]) for rank in range(3)] == [0.0] * 3


def test_nobody_has_a_terminal(sandbox):
    failure, _ = broken(sandbox, "os.openpty()")
    assert failure.type == "PermissionError"


# what breaks, and what is left


def test_ranks_that_wait_live_on_when_another_raises(sandbox):
    body = """
COUNT.append(rank)
if size == 3 and rank == 1:
    raise ValueError
comm.barrier()
return torch.tensor([float(len(COUNT))])
"""
    seen = perform_ranks(sandbox, answer(body, "COUNT = []"), CASES[2:], EXERCISE)
    assert seen[0].error is not None
    assert [float(seen[1].values[f"{rank}/total"]) for rank in range(4)] == [2.0, 2.0, 2.0, 1.0]


def test_memory_that_all_took_together_is_blamed_on_nobody(sandbox):
    patient = dataclasses.replace(EXERCISE, seconds=20.0)  # memory must end before time does, also on a busy machine
    failure, _ = broken(sandbox, "held = torch.ones(110 * 2**20)\ntime.sleep(30)", exercise=patient)
    assert (failure.type, failure.rank) == ("ProcessDied", None)


def test_broken_runs_leave_no_descriptor_and_no_thread(sandbox):
    attack(sandbox, "os._exit(rank)")
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for body in ("os._exit(rank)", "port._sock.close()", "comm.recv(x, (rank + 1) % size)", "raise KeyError"):
        attack(sandbox, body)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


@pytest.mark.parametrize(("why", "error"), [("more than 8 MiB of memory", OSError), ("", RunnerError)])
def test_a_container_that_the_watchdog_ends_at_its_start_is_no_failure_of_the_isolation(why, error):
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(error):
        Container(ours, 7, lambda message: {"why": why}).first()


def test_a_container_that_says_nothing_is_no_wall_that_was_refused(monkeypatch):
    monkeypatch.setattr(loading, "REPLY_SECONDS", 0.1)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(loading.WarmProcessEnded, match=r"silent for 0\.1 s"):
        Container(ours, 7, lambda message: {"why": ""}).first()


def test_walls_that_are_refused_after_others_stood_are_no_fault_of_the_machine():
    ours, theirs = socket.socketpair()
    stood = threading.Event()
    stood.set()
    theirs.close()
    with ours, pytest.raises(loading.WarmProcessEnded, match="one was refused"):
        Container(ours, 7, lambda message: {"why": ""}, stood).first()


def test_ranks_that_were_not_written_are_not_attempted(sandbox):
    names: dict[str, object] = {}
    exec(toy_ranks.RING, names)
    expected = perform_all(EXERCISE, names["running_mean"], [in_float64(case) for case in CASES])
    stub = answer(f"raise NotImplementedError({EXERCISE.id!r})")
    verdict = judge(EXERCISE, CASES, perform_ranks(sandbox, stub, CASES, EXERCISE), expected, ())
    assert not verdict.attempted
