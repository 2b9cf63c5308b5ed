"""Ranks that lie, flood, drip, stall, die or talk past the broker: an honest verdict in time, and nobody is harmed.

Each attack is bounded by itself: seconds, loopback, its own processes.
"""

from __future__ import annotations

import dataclasses

import pytest
import toy_ranks
from conftest import soak
from ranks_room import answer, broken, perform_ranks, staged_with_toy

from autograder.sandbox import Limits, open_runner
from autograder.sandbox.wire.policy import PATIENT, writable

SECONDS = 1.5
EXERCISE = dataclasses.replace(toy_ranks.EXERCISE, seconds=SECONDS)
LIMITS = Limits(load_seconds=5.0, memory=2**30, tasks=40)
RAW = """
from autograder.sandbox.wire import stream

def raw(port, tree):
    stream.send(port._sock, tree, token=port._token)

def call(verb, rank, group, gives=(), takes=(), peer=None, op="", context=0, tag=0):
    return {"verb": verb, "group": list(group), "peer": peer, "op": op, "async": False, "gives": list(gives),
            "takes": [["F32", list(each)] for each in takes], "context": context, "tag": tag}

def said(port, *items, waits=None):
    raw(port, {"items": list(items), "waits": waits})
"""


@pytest.fixture(scope="module")
def sandbox():
    """One warm process with the toy exercise, with walls."""
    with staged_with_toy(), open_runner(LIMITS, display=False) as opened:
        yield opened


def attack(sandbox, body: str) -> tuple[str, int | None, str]:
    """How the run failed, in time; a right answer works afterwards."""
    failure, seconds = broken(sandbox, body, head=RAW, exercise=EXERCISE)
    assert seconds < PATIENT * SECONDS + 3.5  # others may keep the processors busy; and to start and to clear up
    return failure.type, failure.rank, failure.message


# lies


@pytest.mark.parametrize(
    "item",
    [
        "call('all_reduce', 1, range(3), [x], [x.shape], op='sum')",
        "call('send', 1, [0, 2], [x], peer=2)",
        soak("call('send', 1, [1, 1, 2], [x], peer=2)"),
        soak("call('send', 1, range(4), [x], peer=2)"),
        "call('send', 1, range(3), [x], peer=1)",
        soak("call('send', 1, range(3), [x], peer=-1)"),
        soak("call('send', 1, range(3), [x, x], peer=2)"),
        soak("call('send', 1, range(3), peer=2)"),
        "call('recv', 1, range(3), takes=[(2**39, 2**39)], peer=2)",
        soak("call('recv', 1, range(3), takes=[(-1,)], peer=2)"),
        soak("call('broadcast', 1, range(3), [x], [x.shape], peer=0)"),
        soak("call('broadcast', 1, range(3), takes=[x.shape], peer=None)"),
        soak("call('barrier', 1, range(3), op='sum')"),
        "call('exec', 1, range(3))",
        "call('send', 1, range(3), [x], peer=2, tag=2**31)",
        soak("call('send', 1, range(3), [x], peer=2, tag=-1)"),
        "call('barrier', 1, range(3), tag=1)",
        "call('barrier', 1, range(3), context=2**31)",
        "call('barrier', 1, range(3), context=1)",
        soak("call('barrier', 1, range(1, 3))"),
        soak("call('barrier', 1, range(3), context=1.5)"),
        "{**call('send', 1, range(3), [x], peer=2), 'rank': 0}",
        "{'compute': -1.0, 'label': ''}",
        soak("{'compute': float(2**1023), 'label': 3}"),
        "[1, 2]",
    ],
)
def test_a_call_that_no_communicator_makes_is_refused(sandbox, item):
    kind, rank, _ = attack(sandbox, f"if rank == 1:\n    said(port, {item})\ncomm.barrier()")
    assert (kind, rank) == ("BadReply", 1)


@pytest.mark.parametrize(
    "body",
    [
        "raw(port, {'items': [], 'waits': 7})",
        soak("raw(port, {'items': [], 'waits': -1})"),
        soak("raw(port, {'items': 3, 'waits': None})"),
        "raw(port, {'items': [[]] * 2000, 'waits': None})",
        "raw(port, {'seen': []})",
        soak("raw(port, {'asks': 0, 'seconds': None})"),
        "raw(port, {'asks': 0, 'seconds': -1.0})",
        soak("raw(port, {'asks': 0, 'seconds': float('inf')})"),
        soak("raw(port, 5)"),
        "port._token = 'another'\n    said(port)",
        soak("port._sock.sendall(b'\\0' * 8)"),
        soak("port._sock.sendall(b'\\xff' * 8)"),
        "port._sock.sendall((100).to_bytes(8, 'big') + b'?' * 100)",
    ],
)
def test_a_message_that_no_rank_sends_is_refused(sandbox, body):
    kind, rank, _ = attack(sandbox, f"if rank == 1:\n    {body}\ncomm.barrier()")
    assert (kind, rank) == ("BadReply", 1)


def test_a_patched_account_changes_no_cost(sandbox):
    patch = """
    from course.cluster import calls
    from course.cluster.account import ledger
    calls.Kind.bytes = property(lambda self: 0)
    ledger.Ledger.bytes_sent = lambda self, rank: 0
    ledger.Ledger.charge = lambda self, *args: None
    ledger.costs = lambda ledger: {}
    assert calls.Kind.of(x).bytes == 0
    size, rank ="""
    seen = perform_ranks(sandbox, toy_ranks.RING.replace("    size, rank =", patch, 1), EXERCISE.draw(3)[3:])
    assert seen[0].error is None
    assert seen[0].ledger["bytes_sent"].tolist() == [72] * 4
    assert seen[0].sources["bytes_sent"] == "broker"


def test_claims_in_an_observation_are_dropped(sandbox):
    body = (
        "from course.performing.exercise import Observation\n"
        "from autograder.sandbox import wire\n"
        "raw(port, {'seen': [{'values': {'total': x}, 'ledger': {'bytes_sent': 0}, 'error': None, 'printed': ''}]})\n"
        "os._exit(0)"
    )
    (seen,) = perform_ranks(sandbox, answer(body, RAW), EXERCISE.draw(3)[2:3])
    assert seen.error is None
    assert set(seen.values) == {"0/total", "1/total", "2/total"}
    assert seen.ledger["bytes_sent"].tolist() == [0, 0, 0]


def test_a_rank_that_waits_must_be_silent(sandbox):
    body = """
if rank == 1:
    said(port, call('recv', 1, range(3), takes=[x.shape], peer=2), waits=0)
    said(port)
    time.sleep(60)
for _ in range(10):
    time.sleep(0.05)
    comm.send(x, 2) if rank == 0 else comm.recv(x.clone(), 0)
"""
    kind, rank, message = attack(sandbox, body)
    assert (kind, rank) == ("BadReply", 1)
    assert "must be silent" in message


# floods, drips, stalls


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("while True:\n    comm.send(x, (rank + 1) % size)", ("Flood", "TimeLimit")),
        soak("big = torch.zeros(2**22)\nwhile True:\n    comm.send(big, (rank + 1) % size)", ("Flood", "TimeLimit")),
        soak("while True:\n    said(port)", ("Flood", "TimeLimit")),
        ("port._sock.sendall((2**26).to_bytes(8, 'big'))\nwhile True:\n    port._sock.sendall(bytes(2**20))",
         ("BadReply", "TimeLimit")),
        ("port._sock.sendall((2**20).to_bytes(8, 'big'))\nwhile True:\n    port._sock.sendall(b'x'); time.sleep(0.05)",
         ("TimeLimit",)),
        soak("time.sleep(60)", ("TimeLimit",)),
        soak("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass", ("TimeLimit",)),
        ("while True:\n    try:\n        comm.recv(x, 0)\n    except BaseException:\n        pass",
         ("TimeLimit", "Deadlock", "BadReply")),
    ],
)  # fmt: skip
def test_a_flood_or_a_stall_ends_in_time(sandbox, body, kinds):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    kind, rank, _ = attack(sandbox, f"if rank == 1:\n{lines}\ncomm.barrier()")
    assert kind in kinds
    assert rank in (None, 0, 1)


def test_a_rank_that_does_not_read_holds_nobody_up_for_long(sandbox):
    body = """
if rank == 1:
    for number in range(6):
        said(port, call('recv', 1, range(3), takes=[(2**20,)], peer=0), waits=number)
    time.sleep(60)
if rank == 0:
    for _ in range(6):
        comm.send(torch.zeros(2**20), 1)
comm.barrier()
"""
    kind, rank, _ = attack(sandbox, body)
    assert kind in ("BadReply", "TimeLimit")
    assert rank == 1


# death


@pytest.mark.parametrize(
    "body",
    [
        "os._exit(0)",
        soak("os.kill(os.getpid(), 9)"),
        soak("os.kill(os.getppid(), 9)\n    os.kill(os.getpid(), 9)"),
        "os.kill(-1, 9)\n    os._exit(1)",
        "port._sock.close()\n    time.sleep(60)",
        soak("import ctypes\n    ctypes.string_at(0)"),
    ],
)
def test_a_rank_that_dies_is_named_at_once(sandbox, body):
    exercise = dataclasses.replace(EXERCISE, seconds=20.0)
    failure, seconds = broken(sandbox, f"if rank == 2:\n    {body}\ncomm.barrier()", head=RAW, exercise=exercise)
    assert (failure.type, failure.rank) == ("RankDied", 2)
    assert seconds < exercise.seconds / 2


def test_a_rank_that_takes_too_much_memory_is_ended(sandbox):
    body = "if rank == 1:\n    held = [torch.empty(2**24) for _ in range(40)]\ncomm.barrier()\nreturn x"
    failure, _ = broken(sandbox, body, exercise=dataclasses.replace(EXERCISE, seconds=20.0))
    assert failure.type in ("RankDied", "ProcessDied", "RuntimeError", "MemoryError")


# past the broker


@pytest.mark.parametrize(
    ("leave", "find"),
    [
        ("open('/tmp/note', 'w').write('x')", "os.path.exists('/tmp/note')"),
        ("open('/dev/shm/note', 'w').write('x')", "os.path.exists('/dev/shm/note')"),
        ("open('note', 'w').write('x')", "os.path.exists('note')"),
    ],
)
def test_ranks_cannot_talk_past_the_broker(sandbox, leave, find):
    body = f"""
if rank == 0:
    with contextlib.suppress(OSError):  # this Python lies in /tmp, which is then read-only
        {leave}
comm.barrier()
return torch.tensor([float(bool({find}))])
"""
    (seen,) = perform_ranks(sandbox, answer(body), EXERCISE.draw(3)[2:3])
    assert seen.error is None
    found = [float(seen.values[f"{rank}/total"]) for rank in range(3)]
    assert found[0] == 1.0 or "/tmp" not in writable()
    assert found[1:] == [0.0, 0.0]


def test_ranks_do_not_see_each_others_processes(sandbox):
    body = "return torch.tensor([float(len(os.listdir('/proc')))])"
    (seen,) = perform_ranks(sandbox, answer(body), EXERCISE.draw(3)[2:3])
    assert [float(seen.values[f"{rank}/total"]) for rank in range(3)] == [0.0] * 3
