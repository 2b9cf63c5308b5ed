"""One container, as it runs: a first process that runs no student's code, and forks that do.

    first --fork--> reader: what the cells say --fork--> performer: loads one answer, performs it case by case
                                               --fork--> performer of several exercises, one after the other
                                               --fork--> the reader without autograd --fork--> performers
    first --fork--> display: what the student wrote, for people

The reader parses and runs nothing, so that what a performer may not do or use is taken from it before any line of the
student's runs there. The first process cannot be killed from inside, and it starts another reader when one is gone.
Messages to it and to the reader are single bytes with a socket beside them; everything else is frames on that socket
(stream.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from autograder.sandbox.inside import display, isolation, removed, traces
from autograder.sandbox.inside.hidden import hide
from autograder.sandbox.inside.rank_port import RankPort
from autograder.sandbox.wire import messages, stream
from autograder.sandbox.wire.blocks import return_large_blocks
from autograder.sandbox.wire.messages import CLEAN, DISPLAY, OVER, PERFORM, READ, READY, SWEEP, WITHOUT_AUTOGRAD
from autograder.sandbox.wire.policy import Limits, writable
from autograder.sandbox.wire.rank_messages import RankCall, to_part
from autograder.start import STAND_INS
from course import exercises
from course.apart import apart
from course.cluster.protocol.comm import Comm
from course.performing.cells import CodeCell, Loaded, Parsed
from course.performing.exercise import Answer, Exercise, Failure, Observation
from course.performing.oracle import UnknownQuestion
from course.performing.perform import guarded, perform
from course.performing.simulate import SPARE_SECONDS
from course.tree import Tree, plain

PATIENCE = 24 * 3600.0  # the grader sets every limit; a child only must not wait for ever
DRAWS = ("matplotlib.pyplot", "matplotlib.backends.backend_agg")  # what it loads in its first figure
Serve: TypeAlias = Callable[[socket.socket], None]
load = functools.cache(exercises.load)  # in the warm process, because nothing of ours is imported beside an answer


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a container runs: its system call filters (None: no isolation at all), its limits, its home."""

    program: bytes | None
    limits: Limits
    home: str


def first(sock: socket.socket, place: Place) -> None:
    """Serve one submission as the first process of its namespaces, until the grader ends it."""
    mapped, isolated = isolation.mapped(), place.program is not None
    if isolated:
        isolation.mount_private(place.limits)
    os.chdir(place.home)
    _silence()
    isolation.set_limits(place.limits, mapped, isolated=isolated)
    if place.program is not None:
        isolation.drop_privileges(place.program)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come here; nobody asks how they ended
    sock.sendall(READY)
    groups: list[int] = []
    serving: dict[bytes, Serve] = {
        READ: functools.partial(_reader, place.program),
        DISPLAY: functools.partial(_display, place.program),
    }
    while True:
        message, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
        if message == SWEEP:
            _sweep(groups, isolated=isolated)
            sock.sendall(SWEEP)
        elif message == CLEAN:
            _clean(writable() if isolated else [place.home])
            sock.sendall(CLEAN)
        elif descriptors and message in serving:
            groups.append(_fork(serving[message], descriptors[0], sock))
        else:
            return


def _sweep(groups: list[int], *, isolated: bool) -> None:
    """Kill all that runs students' code: everybody but us, where a process namespace makes that precise."""
    with contextlib.suppress(ProcessLookupError):
        if isolated:
            os.kill(-1, signal.SIGKILL)
    for group in groups if not isolated else ():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    groups.clear()


def _clean(folders: Sequence[str]) -> None:
    """Remove all that lies in these. Raises OSError or RecursionError where that cannot be done: the container ends."""
    for folder in folders:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def _fork(serve: Serve, descriptor: int, ours: socket.socket) -> int:
    """A child that serves the socket `descriptor`, alone with it, and leaves whatever happens."""
    pid = os.fork()
    if pid:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    try:
        ours.close()
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        serve(socket.socket(fileno=descriptor))
    finally:
        os._exit(0)


def _silence() -> None:
    """Nothing that students' code prints past Python reaches anybody."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


# --- the reader and the performer ---------------------------------------------------------------------


def _reader(program: bytes | None, sock: socket.socket) -> None:
    """Parse the cells once, then fork for each exercise."""
    request: Any = stream.receive(sock, time.monotonic() + PATIENCE)
    sources = messages.to_sources(request["sources"])
    cells = [CodeCell(source=source, answers=name) for source, name in zip(sources, request["answers"], strict=True)]
    parsed = Parsed(cells)
    stream.send(sock, "read")
    _performers(parsed, program, sock)


def _performers(parsed: Parsed, program: bytes | None, sock: socket.socket) -> None:
    """Fork for each exercise; or for all that need a process without autograd, because to remove it takes long."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    serving = {PERFORM: _performer, WITHOUT_AUTOGRAD: _without_autograd}
    performers: list[int] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
        if message == OVER:
            _end(performers)
            sock.sendall(OVER)
        elif message in serving and descriptors:
            pid = _fork(functools.partial(serving[message], parsed, program), descriptors[0], sock)
            performers += [pid] if message == PERFORM else []
        else:
            return


def _end(performers: list[int]) -> None:
    """Kill them, and wait until they are gone: one that stayed could work for others, which have to do without more."""
    for pid in performers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # nobody asks how it ended, so that this comes when it has
            os.waitpid(pid, 0)
    performers.clear()


def _without_autograd(parsed: Parsed, program: bytes | None, sock: socket.socket) -> None:
    removed.disable_autograd()
    if program is not None:
        removed.erase(removed.AUTOGRAD)
    _performers(parsed, program, sock)


def _performer(parsed: Parsed, program: bytes | None, sock: socket.socket) -> None:
    """One exercise, or several in turn; what may not be done or used is taken away before a line is loaded."""
    request: Any = stream.receive(sock, time.monotonic() + PATIENCE)
    stream.send(sock, "begun")
    if program is not None:
        isolation.stay_alone(program)
    isolation.close_lists()
    if "function" in request:
        if program is not None:
            isolation.stay_filtered(program)
        _caller(parsed.load(request["function"]), sock, RankCall(**request))
        return
    if "together" in request:
        _several(parsed, program, sock, request["together"])
        return
    exercise = load(request["exercise"])
    removed.disable(exercise.removes)
    is_erased = program is not None and removed.erase(exercise.removes)
    _import(request["imports"] if request["measured"] else ())
    if is_erased or request["measured"]:  # no library can be loaded after the filter, and no file written or read
        _import(parsed.imports(exercise.name))
    if request["measured"]:
        isolation.keep_everything(program)
        return_large_blocks()
        stream.send(sock, "empty")
        stream.receive(sock, time.monotonic() + PATIENCE)  # the base line is taken
    _close(program, is_erased=is_erased)
    _one(parsed, sock, exercise, measured=request["measured"])


def _close(program: bytes | None, *, is_erased: bool) -> None:
    """From here on the student's lines may come."""
    if program is not None:
        if is_erased:
            isolation.stay_erased(program)
        isolation.stay_filtered(program)
        hide()


def _several(parsed: Parsed, program: bytes | None, sock: socket.socket, removes: list[str]) -> None:
    """One exercise after the other without what any of them does without, until one has left a trace for the next."""
    removed.disable(removes)
    _close(program, is_erased=program is not None and removed.erase(removes))
    traces.watch()
    before = traces.found()
    stream.send(sock, "ready")
    request: Any = stream.receive(sock, time.monotonic() + PATIENCE)
    while True:
        exercise = dataclasses.replace(load(request["exercise"]), seconds=request["seconds"])
        request = _one(parsed, sock, exercise)
        if traces.found() != before:
            return


def _one(parsed: Parsed, sock: socket.socket, exercise: Exercise, *, measured: bool = False) -> Tree:
    """Load the answer of an exercise, and perform each case that comes; what comes after them is returned."""
    known = len(sys.modules) - len(STAND_INS)  # a look at all their names would copy pages: 2 ms
    loaded = apart(Parsed.load)(parsed, exercise.name)
    answer = _answer(loaded)
    if not isinstance(answer, Failure):
        answer = apart(removed.disabled(exercise.removes, answer))
    stream.send(sock, "ready")
    while True:
        tree, token = stream.receive_request(sock, time.monotonic() + PATIENCE)
        if not token:
            if not isinstance(answer, Failure):
                removed.over(exercise.removes)
            return tree
        if isinstance(answer, Failure):
            seen = Observation(error=answer)
        elif exercise.split is not None:
            seen = loaded.explained(_as_rank(exercise, answer, tree, RankPort(sock, token)))
        else:
            (case,) = messages.to_cases(tree)
            ask = functools.partial(_ask, sock, token) if exercise.oracle else None
            seen = loaded.explained(perform(exercise, answer, case, ask=ask, clock="cpu"))
            seen = removed.explained(seen, exercise.removes, answer)
        reply: dict[str, Tree] = {"seen": messages.from_observations([seen])}
        if measured and exercise.split is None:
            later = set(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - known)))
            reply["modules"] = " ".join(messages.outermost(later))
        stream.send(sock, reply, token=token)


def _import(modules: Collection[str]) -> None:
    for module in sorted({*modules, *(DRAWS if any(each.startswith("matplotlib") for each in modules) else ())}):
        home, _, name = module.rpartition(".")
        with contextlib.suppress(Exception):
            if not hasattr(sys.modules.get(home), name):  # in `from math import exp` it is no module
                importlib.import_module(module)


def _caller(loaded: Loaded, sock: socket.socket, call: RankCall) -> None:
    """A function that belongs to no exercise, as one rank."""
    stream.send(sock, "ready")
    tree, token = stream.receive_request(sock, time.monotonic() + PATIENCE)
    (part, rank, size), answer, port = to_part(tree), _answer(loaded), RankPort(sock, token)
    comm = Comm(port, tuple(range(size)), rank, call.verbs)
    value: Tree = None

    def run() -> Observation:
        nonlocal value
        assert not isinstance(answer, Failure)
        value = messages.carried(plain(answer(comm, *part.inputs["given"])))  # type: ignore[misc]
        port.end()
        return Observation()

    limit = call.seconds + SPARE_SECONDS
    seen = Observation(error=answer) if isinstance(answer, Failure) else guarded(run, limit, "cpu")
    stream.send(sock, {"seen": messages.from_observations([seen]), "value": value}, token=token)


def _as_rank(exercise: Exercise, answer: Answer, tree: Tree, port: RankPort) -> Observation:
    """One rank's part of a case."""
    part, rank, size = to_part(tree)
    comm = Comm(port, tuple(range(size)), rank, exercise.verbs)
    seen = perform(exercise, answer, part, clock="cpu", comm=comm)
    if seen.error is None:
        port.end()
    return seen


def _answer(loaded: Loaded) -> Answer | Failure:
    if loaded.failure is not None:
        return loaded.failure
    if not callable(loaded.answer):
        return Failure(type="NotAnAnswer", message="the answer must be a function or a class")
    answer: Answer = loaded.answer
    return answer


def _ask(sock: socket.socket, token: str, verb: str, arguments: Tree) -> Tree:
    """A question that the grader answers, and counts."""
    stream.send(sock, messages.from_question(verb, arguments), token=token)
    reply: Any = stream.receive(sock, time.monotonic() + PATIENCE)
    if "refused" in reply:
        raise UnknownQuestion(reply["refused"])
    answer: Tree = reply["answer"]
    return answer


# --- the display run ----------------------------------------------------------------------------------


def _display(program: bytes | None, sock: socket.socket) -> None:
    request: Any = stream.receive(sock, time.monotonic() + PATIENCE)
    if program is not None:
        isolation.stay_filtered(program)
    sources = messages.to_sources(request["sources"])
    shown: Any = display.each(sources, own=request["own"], seconds=request["seconds"], limit=request["output"])
    for outputs in shown:
        stream.send(sock, messages.from_outputs([outputs]))
