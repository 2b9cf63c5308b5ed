"""The warm process: it has imported what students' code needs, knows nothing secret, and forks for each submission.

    grader --control--> warm process --fork--> first process of a container (container.py)

It exists because a process that imports torch takes seconds and 250 MiB, and a fork of one that has done so takes some
milliseconds and shares them. Forks make rules for it:
- It has one thread. A fork has only the thread that forked: a lock that another one held at that moment, in malloc or
  in torch's pools, stays locked in the child for ever, and torch waits in it for workers that are not there. So torch
  computes on one thread, and no backward pass runs here: forks of a process that ever ran one were seen to hang.
- It runs no student's code: what one submission changed in it, all later ones would have.
- It knows nothing secret: a fork holds all that its parent knew, whatever it forgets afterwards.
- It does once what each fork would do first (rehearsal.py), and holds its memory in few pages where there will be many
  forks (huge_pages.py).

A submission has one container, and one more for each rank of an exercise that has several. While they run it watches
tasks and memory by the kernel's account, which also works where control groups cannot be had, and it measures the cost
of a case when the grader asks.

Control messages are JSON: {"do": "start" | "base" | "mark" | "look" | "spent" | "waited" | "why" | "end"}; each gets
one reply. That to "start" tells the number of the container, which the others must say; "mark" and "look" are for all
containers at once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from autograder.sandbox.inside import container, display, hidden, huge_pages, isolation, rehearsal, removed, traces
from autograder.sandbox.inside.accounting import (
    Costs,
    Process,
    exact_memory,
    memory,
    own_memory,
    processes,
    sockets,
    waited,
)
from autograder.sandbox.wire.messages import LONGEST
from autograder.sandbox.wire.policy import Limits
from course import syllabus

MANY = 10  # times that containers were started; their forks cost by then what huge pages do
SOCKETS = 1_000  # of a submission: PyTorch's processes in a display run have some fifty
OURS = 6  # processes of a container at most, as long as a student's code starts none
GOES_SECONDS = 0.001  # between two looks whether a container that was killed is gone
WATCH_SECONDS, CLOSELY = 0.05, 0.01  # between two looks; while a case is measured, of which a moment may be the peak


@dataclass
class _Container:
    """A container that runs now.

    parent   our own child before its first process
    pipe     on which that child says the number of the first process
    session  where nothing is isolated: the session of its processes
    """

    parent: int
    pipe: int
    limits: Limits
    session: int | None
    why: str = ""

    @functools.cached_property
    def pid(self) -> int | None:
        """Its first process as seen from here; None where that never came, because a namespace was refused."""
        with os.fdopen(self.pipe, "rb") as pipe:
            told = pipe.read()
        return int(told) if told else None

    def forget(self) -> None:
        """Close the pipe, in a fork."""
        if "pid" not in vars(self):
            os.close(self.pipe)


def main(control: socket.socket, program: bytes | None) -> None:
    """Serve until the grader closes the control socket. `program` is the system call filter; None: no isolation."""
    if program is not None:
        removed.prepare_erasing()
    _send(control, {"ready": os.getpid()})
    shared, running = own_memory(), dict[int, _Container]()
    costs, begun = Costs(shared), 0  # how often a container was started while there was none
    killed: list[_Container] = []
    while True:
        seconds = CLOSELY if costs.starts else WATCH_SECONDS
        ready, _, _ = select.select([control], [], [], seconds if running else None)
        if not ready:
            _wait_for(killed, running, shared)
            costs.look(_watch(running, shared))
            continue
        data, descriptors, _, _ = socket.recv_fds(control, LONGEST, 1)
        if not data:
            break
        message = json.loads(data)
        if message["do"] != "end":  # the kernel takes several down at once; nobody else may see them go
            _wait_for(killed, running, shared)
        if message["do"] == "start":
            begun += not running
            if begun == MANY and not running:
                huge_pages.collapse()
                costs.shared = shared = own_memory()
            started = _start(message, socket.socket(fileno=descriptors[0]), control, program, running)
            running[started.parent] = started
            _send(control, {"container": started.parent})
        elif message["do"] == "base":
            found = _of_all(running)
            costs.base(found, _of(running[message["container"]], found))
            _send(control, {})
        elif message["do"] in ("mark", "look"):
            getattr(costs, message["do"])(_watch(running, shared))  # who asks without a pause is watched as well
            _send(control, {})
        elif message["do"] == "spent":
            found = _of_all(running)
            gone = costs.gone(found)
            known = _of(running[message["container"]], [*found, *gone])
            found = [each for each in known if each not in gone]
            peak, cpu = costs.spent(found)
            spent = {"peak_bytes": peak, "cpu_seconds": cpu, "grown_bytes": costs.grown(found)}
            _send(control, {**spent, "ended": len(found) < len(known)})
        elif message["do"] == "waited":
            _send(control, {"seconds": waited(_of(running[message["container"]], _of_all(running)))})
        elif message["do"] == "why":
            _send(control, {"why": running[message["container"]].why})
        elif message["do"] == "end":
            killed.append(running.pop(message["container"]))
            _kill(killed[-1])
            if not running or program is None:  # the submission has ended; a home is removed when we have answered
                _wait_for(killed, running, shared)
            costs.starts.clear()
            _send(control, {})
    for each in running.values():
        _kill(each)
    _wait_for([*killed, *running.values()], {}, shared)


def warm_up(*, with_display: bool, units: Collection[str] = ()) -> None:
    """One thread; a step of an optimizer, which imports more; what displays need; the exercises of these units, or of
    all: no other one is to come.
    """
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.1).step()
    importlib.import_module("numpy.fft")  # NumPy imports it when it is needed, which may be too late
    # epoll is denied to answers, and asyncio asks for it by this name.
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[assignment, misc]
    if with_display:
        display.warm_up()
    loaded = [unit for unit in syllabus.UNITS if not units or unit.slug in units]
    for entry in (each for unit in loaded for each in unit.entries):
        removed.prepare(container.load(entry.id).removes)  # after all imports: later ones are looked up in each fork
    hidden.prepare()
    rehearsal.rehearse(loaded)
    traces.prepare()


def _start(
    message: dict[str, Any],
    sock: socket.socket,
    control: socket.socket,
    program: bytes | None,
    running: dict[int, _Container],
) -> _Container:
    """Fork the first process of a container, through a parent that makes its namespaces while we go on."""
    limits = Limits(**message["limits"])
    place = container.Place(program=program, limits=limits, home=message["home"])
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            control.close()
            os.close(read)
            for each in running.values():  # where it could read what others' parents say
                each.forget()
            _build(sock, place, write)
        finally:
            os._exit(0)
    sock.close()
    os.close(write)
    session = None if program is not None else parent
    return _Container(parent=parent, pipe=read, limits=limits, session=session)


def _build(sock: socket.socket, place: container.Place, write: int) -> None:
    """Namespaces first, because only a fork stands in a new process namespace; then the container's first process."""
    if place.program is None:
        os.setsid()
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        container.first(sock, place)
        return
    isolation.unshare_namespaces()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        container.first(sock, place)
        return
    sock.close()
    os.write(write, str(pid).encode())
    os.close(write)
    os.waitpid(pid, 0)


def _of_all(running: dict[int, _Container]) -> list[Process]:
    """All processes of all containers: they belong to one submission."""
    sessions = {each.session for each in running.values() if each.session is not None}
    return processes(sessions) if len(sessions) == len(running) else processes()


def _of(current: _Container, found: list[Process]) -> list[Process]:
    """Those of one container: its first process, and all below it."""
    below = {current.pid, current.session}
    while more := {each.pid for each in found if each.parent in below} - below:
        below |= more
    return [each for each in found if each.pid in below]


def _watch(running: dict[int, _Container], shared: int) -> list[Process]:
    """End all containers where together they use more memory than one submission may, or more tasks than all may.

    The processes that were found.
    """
    found, limits = _of_all(running), next(iter(running.values())).limits
    tasks, used = sum(each.threads for each in found), memory(found, shared)
    if len(found) > OURS * len(running) and used <= limits.memory < sum(each.own for each in found) - shared:
        used = exact_memory(found, shared)  # some are a student's, and may share nothing
    if tasks > limits.tasks * len(running):
        why = f"more than {limits.tasks} processes and threads"
    elif used > limits.memory:
        why = f"more than {limits.memory >> 20} MiB of memory"
    elif sum(sockets(each.pid) for each in running.values() if each.session is None and each.pid) > SOCKETS:
        why = f"more than {SOCKETS:,} sockets"
    else:
        return found
    for each in running.values():
        each.why = why
        _kill(each)
    return found


def _kill(current: _Container) -> None:
    """Kill the first process, and with it everything in its namespaces; without isolation, its session."""
    first = current.pid  # it has a session of its own when it has said so
    for pid in [first] if current.session is None else [each.pid for each in processes({current.session})]:
        if pid is None:  # it never came; a 0 in its place would mean all of our own process group
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_for(killed: list[_Container], running: dict[int, _Container], shared: int) -> None:
    """Until nothing of them is left. What still runs is watched meanwhile, for it may keep them from their end."""
    while killed:
        parent, looked = killed.pop().parent, time.monotonic()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(parent, os.WNOHANG) == (0, 0):
                time.sleep(GOES_SECONDS)
                if running and time.monotonic() - looked > WATCH_SECONDS:
                    _watch(running, shared)
                    looked = time.monotonic()


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode())
