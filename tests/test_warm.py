"""The warm process where a container never came to be: nobody is signalled in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sys
import threading
import time
import types

import pytest

from autograder.sandbox import Limits
from autograder.sandbox.inside import isolation, warm
from autograder.sandbox.inside.accounting import Process
from autograder.sandbox.wire.messages import LONGEST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has containers")


@pytest.fixture
def refused(monkeypatch) -> warm._Container:
    """A container whose namespaces the system refuses; signals of the warm process are written down."""

    def refuse() -> None:
        raise PermissionError("unshare")

    monkeypatch.setattr(isolation, "unshare_namespaces", refuse)
    monkeypatch.setattr(warm.os, "kill", lambda pid, number: pytest.fail(f"signal {number} to {pid}"))
    ours, theirs = socket.socketpair()
    with ours:
        message = {"limits": dataclasses.asdict(Limits(tasks=1)), "home": "/"}
        return warm._start(message, theirs, ours, b"a filter", running={})


def test_its_first_process_has_no_number_and_its_end_signals_nobody(refused):
    assert refused.pid is None
    warm._kill(refused)
    warm._wait_for([refused], {}, 0)
    with pytest.raises(ChildProcessError):
        os.waitpid(refused.parent, 0)


def test_the_watchdog_signals_nobody_for_it(refused, monkeypatch):
    crowd = [Process(pid=7, threads=9, resident=0, peak=0, own=0, cpu=0.0, parent=1)]
    monkeypatch.setattr(warm, "processes", lambda session=None: crowd)
    warm._watch({refused.parent: refused}, 0)
    assert refused.why == "more than 1 processes and threads"
    warm._kill(refused)
    warm._wait_for([refused], {}, 0)


def test_what_runs_is_watched_while_another_is_slow_to_go(refused, monkeypatch):
    watched = []
    monkeypatch.setattr(warm, "_watch", lambda running, shared: watched.append((list(running), shared)))
    slow = os.fork()
    if slow == 0:
        time.sleep(1)
        os._exit(0)
    gone = dataclasses.replace(refused, parent=slow)
    warm._wait_for([refused, gone], {7: refused}, 5)
    assert len(watched) > 1
    assert watched[0] == ([7], 5)
    with pytest.raises(ChildProcessError):
        os.waitpid(slow, 0)


def test_who_is_looked_at_without_a_pause_is_watched(monkeypatch):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(10)
    watched, one = [], types.SimpleNamespace(parent=7)
    monkeypatch.setattr(warm, "_watch", lambda running, shared: watched.append(list(running)) or [])
    monkeypatch.setattr(warm, "_start", lambda message, sock, *_: sock.close() or one)
    for name in ("_kill", "_wait_for"):
        monkeypatch.setattr(warm, name, lambda *_: None)
    thread = threading.Thread(target=warm.main, args=(theirs, None))
    thread.start()
    with theirs, contextlib.ExitStack() as ends:
        ends.callback(thread.join)
        ends.enter_context(ours)
        passed = ends.enter_context(socket.socket())
        for message in ({"do": "start"}, {"do": "mark"}, *[{"do": "look"}] * 3):
            ours.recv(LONGEST)
            socket.send_fds(ours, [json.dumps(message).encode()], [passed.fileno()] if message["do"] == "start" else [])
        ours.recv(LONGEST)
    assert watched[-4:] == [[7]] * 4
