"""The warm process: it has imported what students' code needs, knows nothing secret, and forks for each submission.

    grader --control--> warm process --fork--> first process of a job (job.py)

It runs no student's code, no backward pass and no second thread: a fork of a process that did would hang. A submission
has one job, and one more for each rank of an exercise that has several. While they run it watches tasks and memory by
the kernel's account, which also works where control groups cannot be had, and it measures the cost of a case when the
grader asks.

Control messages are JSON: {"do": "job" | "mark" | "spent" | "why" | "end"}; each gets one reply. That to "job" tells
the number of the job, which "why" and "end" must say.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from dataclasses import dataclass
from typing import Any

import torch

from autograder.sandbox.inside import display, job, rehearsal, removed
from autograder.sandbox.inside import huge_pages as pages
from autograder.sandbox.inside import isolation as walls
from autograder.sandbox.inside.accounting import Process, census, memory, own_memory, reset_peaks, spent
from autograder.sandbox.wire.messages import LONGEST
from autograder.sandbox.wire.policy import Limits
from course import exercises, syllabus

WATCH_SECONDS = 0.05


@dataclass
class _Job:
    """A job that runs now. `pid` is its first process as seen from here, `parent` our own child before it."""

    pid: int
    parent: int
    limits: Limits
    session: int | None
    why: str = ""


def main(control: socket.socket, program: bytes | None) -> None:
    """Serve jobs until the grader closes the control socket. `program` is the system call filter; None: no walls."""
    pages.collapse()
    _send(control, {"ready": os.getpid()})
    shared, jobs, marked = own_memory(), dict[int, _Job](), list[Process]()
    while True:
        ready, _, _ = select.select([control], [], [], WATCH_SECONDS if jobs else None)
        if not ready:
            _watch(jobs, shared)
            continue
        data, descriptors, _, _ = socket.recv_fds(control, LONGEST, 1)
        if not data:
            break
        message = json.loads(data)
        if message["do"] == "job":
            started = _start(message, socket.socket(fileno=descriptors[0]), control, program)
            jobs[started.parent] = started
            _send(control, {"job": started.parent})
        elif message["do"] == "mark":
            marked = _census(jobs)
            reset_peaks(marked)
            _send(control, {})
        elif message["do"] == "spent":
            peak, seconds = spent(marked, _census(jobs), shared)
            _send(control, {"peak_bytes": peak, "cpu_seconds": seconds})
        elif message["do"] == "why":
            _send(control, {"why": jobs[message["job"]].why})
        elif message["do"] == "end":
            _end(jobs.pop(message["job"]))
            _send(control, {})
    for each in jobs.values():
        _end(each)


def warm_up(*, with_display: bool) -> None:
    """One thread; a step of an optimizer, which imports more; what displays need; the exercises."""
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.1).step()
    if with_display:
        display.warm_up()
    for entry in syllabus.entries():  # after all imports: what comes later must be looked up in each fork
        removed.prepare(exercises.load(entry.id).removes)
    rehearsal.rehearse()


def _start(message: dict[str, Any], sock: socket.socket, control: socket.socket, program: bytes | None) -> _Job:
    """Fork the first process of a job, through a parent that makes its namespaces."""
    limits = Limits(**message["limits"])
    place = job.Place(program=program, limits=limits, home=message["home"])
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            control.close()
            os.close(read)
            _build(sock, place, write)
        finally:
            os._exit(0)
    sock.close()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    pid = int(told or b"0")
    return _Job(pid=pid, parent=parent, limits=limits, session=None if program is not None else parent)


def _build(sock: socket.socket, place: job.Place, write: int) -> None:
    """Namespaces first, because only a fork stands in a new process namespace; then the first process of the job."""
    if place.program is None:
        os.setsid()
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        job.first(sock, place)
        return
    walls.own_namespaces()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        job.first(sock, place)
        return
    sock.close()
    os.write(write, str(pid).encode())
    os.close(write)
    os.waitpid(pid, 0)


def _census(jobs: dict[int, _Job]) -> list[Process]:
    """All processes of all jobs: they belong to one submission."""
    sessions = [each.session for each in jobs.values()]
    return census() if None in sessions else [found for each in sessions for found in census(each)]


def _watch(jobs: dict[int, _Job], shared: int) -> None:
    """End all jobs where they have more tasks or memory together than a submission may; tasks for each of them."""
    found, limits = _census(jobs), next(iter(jobs.values())).limits
    tasks, used = sum(each.threads for each in found), memory(found, shared)
    if tasks > limits.tasks * len(jobs):
        why = f"more than {limits.tasks} processes and threads"
    elif used > limits.memory:
        why = f"more than {limits.memory >> 20} MiB of memory"
    else:
        return
    for each in jobs.values():
        each.why = why
        _kill(each)


def _kill(current: _Job) -> None:
    """Kill the first process, and with it everything in its namespaces; without walls, its session."""
    victims = [current.pid] if current.session is None else [each.pid for each in census(current.session)]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end(current: _Job) -> None:
    """Kill what is left and wait until it is gone."""
    if current.pid:
        _kill(current)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(current.parent, 0)


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode())
