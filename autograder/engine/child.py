"""The untrusted side: a warm process that knows nothing secret, and one fork of it for each exercise.

    grader --a socket--> warm process --fork--> child: cells -> load; cases -> perform -> observations

The warm process has imported torch and the course, and runs no student code, no backward pass and no second thread:
a fork of a process that did would hang. A child gets cells, then says that they are loaded, and only then gets the
cases. References, seeds, tolerances and other submissions are never sent here.

Messages on the control socket are single bytes: ready, done (the grader has what it wants), ended (the child and
its process group are gone).
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from typing import Any

import torch

from autograder.engine import wire
from course import exercises
from course.cells import CodeCell, load
from course.exercise import Exercise, Failure, Observation
from course.perform import perform_all
from course.tree import Tree

READY, JOB, DONE, ENDED = b"r", b"j", b"d", b"e"


def main(control: socket.socket) -> None:
    """Serve jobs until the grader closes the control socket."""
    _warm_up()
    control.sendall(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if message != JOB or len(descriptors) != 1:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _child(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])
        _own_group(pid)
        control.recv(1)  # done, or nothing where the grader is gone: the child ends in both cases
        _end(pid)
        control.sendall(ENDED)


def _warm_up() -> None:
    """One thread, and one step of an optimizer, whose first call imports for a second."""
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.1).step()


def _own_group(pid: int) -> None:
    """Make the child lead a process group of its own; parent and child both ask, because either may come first."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        return


def _end(pid: int) -> None:
    """Kill the child and everything that stayed in its process group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue
    os.waitpid(pid, 0)


# --- one exercise -----------------------------------------------------------------------------------


def _child(sock: socket.socket) -> None:
    """Serve one exercise and exit, whatever happens."""
    try:
        _own_group(os.getpid())
        _serve(sock)
    finally:
        os._exit(0)


def _serve(sock: socket.socket) -> None:
    request: Any = wire.receive(sock, time.monotonic() + 60)
    _limit(request["limits"])
    os.chdir(request["folder"])
    os.environ.update(HOME=request["folder"], TMPDIR=request["folder"])
    exercise = exercises.load(request["exercise"])
    cells = [CodeCell(source=cell["source"], answers=cell["answers"]) for cell in request["cells"]]
    loaded = load(cells, exercise.name)
    wire.send(sock, "loaded")
    cases = wire.to_cases(wire.receive(sock, time.monotonic() + 60))
    if loaded.failure is not None:
        seen = [Observation(error=loaded.failure)] * len(cases)
    elif not callable(loaded.answer):
        failure = Failure(type="NotAnAnswer", message=f"`{exercise.name}` must be a function or a class")
        seen = [Observation(error=failure)] * len(cases)
    else:
        seen = perform_all(exercise, loaded.answer, cases)
    _reply(sock, exercise, seen)


def _reply(sock: socket.socket, exercise: Exercise, seen: list[Observation]) -> None:
    """Send what was seen; where a frame cannot hold it, send that instead."""
    packed: Tree = wire.from_observations(seen)
    try:
        wire.send(sock, packed)
    except wire.BadFrame as error:
        failure = Failure(type="BadReply", message=f"{exercise.name}: {error}")
        wire.send(sock, wire.from_observations([Observation(error=failure)] * len(seen)))


def _limit(limits: dict[str, int]) -> None:
    """CPU seconds, bytes per file, no core dumps, and memory on top of what is mapped already (on Linux)."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_CORE: 0,
    }
    mapped = _mapped()
    if mapped:
        wanted[resource.RLIMIT_AS] = mapped + limits["memory"]
    for what, value in wanted.items():
        _, hard = resource.getrlimit(what)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (most, most))


def _mapped() -> int:
    """Bytes of address space in use (torch's libraries alone map some GiB); 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
