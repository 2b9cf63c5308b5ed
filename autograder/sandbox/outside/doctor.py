"""Which protections are active on this machine: each is tried from inside a real sandbox, as an attacker would.

protections() -> [Protection(name, active, detail, remedy)]
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autograder.sandbox.outside.loading import RunnerError
from autograder.sandbox.outside.runner import Runner, open_runner
from autograder.sandbox.outside.stage import files, left_out
from autograder.sandbox.wire import seccomp
from autograder.sandbox.wire.policy import DEVICES, Limits, PolicyError, writable
from course import exercises
from course.performing.cells import CodeCell
from course.performing.exercise import PUBLIC_SEED

HELD = "held"
INSTALL = "`apt install {0}` on Debian and Ubuntu, `dnf install {0}` on Fedora"
NAMESPACES = (
    "allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, `sysctl user.max_user_namespaces=15000`, "
    "and on Ubuntu 24.04 and later `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)
WARM_UP = "running_mean"
ERASED = ("linear_vjp", "SaveLess", "sgd_step", "attention_tiled")  # exercises without one family each
BLOCK = 64 * 2**20  # bytes that the measured attempt takes
OURS = "this is a defect of the sandbox: do not grade with it, and report it"

# Tried inside; each prints `held`, or what it could do.
ATTEMPTS = {
    "no other process is seen": "import os\nprint('held' if not os.listdir('/proc') else os.listdir('/proc'))",
    "the system is read-only": (
        "import os\nopen_to_us = [p for p in ('/', '/usr', '/etc', '/dev', '/course') if os.access(p, os.W_OK)]\n"
        "print(', '.join(open_to_us) or 'held')"
    ),
    "devices stay as they are": (
        "import os\nheld = []\nfor name in {devices}:\n    try:\n"
        "        os.utime(name)\n        held.append(name)\n    except OSError:\n        pass\n"
        "print(', '.join(held) or 'held')"
    ),
    "nothing of the grader's environment": (
        "import os\nprint('held' if os.environ['HOME'] == '/student' else sorted(os.environ))"
    ),
    "nothing of the grader's folders": (
        "import os\nprint(', '.join(name for name in {files} if os.path.exists(name)) or 'held')"
    ),
    "nothing secret can be imported": (
        "import importlib.util\nprint(', '.join(filter(importlib.util.find_spec, {left_out})) or 'held')"
    ),
    "no capability": (
        "import ctypes\nheld = (ctypes.c_uint * 6)()\n"
        "ctypes.CDLL(None).capget((ctypes.c_uint * 2)(0x20080522, 0), held)\n"
        "print('held' if not any(held) else list(held))"
    ),
    "system call filter": (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print('held' if libc.unshare(0x10000000) == -1 and ctypes.get_errno() == 1 else 'unshare was allowed')"
    ),
    "memory is some process's": (
        "import ctypes, mmap, os\nlibc, held = ctypes.CDLL(None, use_errno=True), []\n"
        "if libc.memfd_create(b'x', 0) != -1:\n    held.append('memfd files')\n"
        "held += [name for name in ('shmget', 'semget', 'msgget') if getattr(libc, name)(0, 1, 0o1600) != -1]\n"
        "def shared(file):\n    try:\n        mmap.mmap(file, 4096).close()\n    except (OSError, ValueError):\n"
        "        return False\n    return True\n"
        "held += ['shared memory'] * shared(-1) + ['mapped zeros'] * shared(os.open('/dev/zero', os.O_RDWR))\n"
        "print(', '.join(held) or 'held')"
    ),
    "files are few and small": (
        "import os\nlarge = []\nfor folder in filter(os.path.isdir, {writable}):\n    room = os.statvfs(folder)\n"
        "    if room.f_blocks * room.f_frsize > {scratch} or not 0 < room.f_files <= {count}:\n"
        "        large.append(f'{folder} holds {room.f_blocks * room.f_frsize >> 20} MiB, {room.f_files} files')\n"
        "print(', '.join(large) or 'held')"
    ),
    "limits of a process": (
        "import resource\nnames = ('AS', 'FSIZE', 'NOFILE', 'NPROC', 'CORE')\n"
        "limits = {name: resource.getrlimit(getattr(resource, f'RLIMIT_{name}'))[1] for name in names}\n"
        "print(', '.join(f'no limit of {name}' for name in names if limits[name] == resource.RLIM_INFINITY) or 'held')"
    ),
    "no larger share of the processors": (
        "import os\nheld = []\ncalls = {'affinity': lambda: os.sched_setaffinity(0, [0]), 'a session': os.setsid}\n"
        "for name, call in calls.items():\n    try:\n        call()\n        held.append(name)\n"
        "    except OSError:\n        pass\nprint(', '.join(held) or 'held')"
    ),
    "no look at what of a file is in memory": (
        "import os, sys\nfile = os.open(os.__file__, os.O_RDONLY)\n"
        "try:\n    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)\n    print('fadvise64 was allowed')\n"
        "except OSError:\n    print('held')"
    ),
    "no network": (
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 1)\n"
        "    print('reached a port of this machine')\nexcept OSError:\n    print('held')"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Protection:
    """One protection: whether it is active, what was seen, and what to do where it is not."""

    name: str
    active: bool
    detail: str = ""
    remedy: str = ""


def protections() -> list[Protection]:
    """Everything that grading stands on here; where a first part is missing, what needs it is not tried."""
    parts = [_system(), _bubblewrap(), _filter()]
    if not all(part.active for part in parts):
        return parts
    return [*parts, *_inside()]


def _system() -> Protection:
    return Protection(
        name="Linux",
        active=sys.platform == "linux",
        detail=f"{platform.system()} {platform.release()}",
        remedy="grade in a Linux virtual machine or container",
    )


def _bubblewrap() -> Protection:
    found = shutil.which("bwrap")
    return Protection(
        name="bubblewrap", active=bool(found), detail=found or "not found", remedy=INSTALL.format("bubblewrap")
    )


def _filter() -> Protection:
    try:
        size = len(seccomp.compiled()) // seccomp.INSTRUCTION - 1
    except PolicyError as error:
        return Protection(
            name="libseccomp",
            active=False,
            detail=str(error),
            remedy=f"{INSTALL.format('libseccomp2')}; `pip install pyseccomp`",
        )
    return Protection(name="libseccomp", active=True, detail=f"{size} instructions")


def _inside() -> Iterator[Protection]:
    """The isolation, then each attempt against them, then what watches from outside."""
    with _listener() as port, open_runner() as runner:
        try:
            shown = runner.display([attempt(name, port) for name in ATTEMPTS])
        except RunnerError as error:
            yield Protection(name="namespaces", active=False, detail=str(error), remedy=NAMESPACES)
            return
        yield Protection(name="namespaces", active=True, detail="user, mount, process, network, IPC, host name")
        for number, name in enumerate(ATTEMPTS):
            said = _printed(shown, number)
            yield Protection(name=name, active=said == HELD, detail="" if said == HELD else said, remedy=OURS)
        yield _costs(runner)
        yield _code(runner)


def attempt(name: str, port: int) -> str:
    """The source of one attempt; `port` of this machine answers."""
    limits = Limits()
    given = {
        "{left_out}": left_out(),
        "{files}": files(),
        "{port}": port,
        "{devices}": DEVICES,
        "{writable}": writable(),
        "{scratch}": limits.scratch,
        "{count}": limits.files,
    }
    return functools.reduce(lambda text, key: text.replace(key, str(given[key])), given, ATTEMPTS[name])


def _costs(runner: Runner) -> Protection:
    """Whether the kernel lets the warm process see tasks and memory: the watchdog and costs stand on it."""
    name, remedy = "watchdog and costs counted outside", "use a kernel with CONFIG_PROC_PAGE_MONITOR"
    exercise = exercises.load(WARM_UP)
    case = exercise.draw(PUBLIC_SEED)[0]
    source = f"def {exercise.name}(*args):\n    return len(bytes(b'x') * {BLOCK})"
    try:
        with runner.session([CodeCell(source=source, answers=exercise.name)]) as session:
            (seen,) = session.perform(dataclasses.replace(exercise, measured=(case.name,)), [case])
    except RunnerError as error:
        return Protection(name=name, active=False, detail=str(error), remedy=remedy)
    peak = seen.ledger.get("peak_bytes")
    size = peak if isinstance(peak, int) else 0
    return Protection(
        name=name, active=BLOCK <= size < 2 * BLOCK, detail=f"{size >> 20} of {BLOCK >> 20} MiB seen", remedy=remedy
    )


def _code(runner: Runner) -> Protection:
    """Whether new machine code is refused where some of what is removed was erased; if there is none to erase, that."""
    name, kept = "removed machine code stays away", list[str]()
    for each in ERASED:
        exercise = exercises.load(each)
        source = f"import ctypes\ndef {exercise.name}(_={{}}[ctypes.CDLL(None).mmap(None, 4096, 7, 0x22, -1, 0)]): pass"
        try:
            with runner.session([CodeCell(source=source, answers=exercise.name)]) as session:
                (seen,) = session.perform(exercise, exercise.draw(PUBLIC_SEED)[:1])
        except RunnerError as error:
            return Protection(name=name, active=False, detail=str(error), remedy=OURS)
        if seen.error is None or seen.error.message != "-1":
            kept.append(exercise.removes[0])
    why = "code is known on x86-64 only, where torch's libraries name all of it (`file libtorch_cpu.so`: not stripped)"
    return Protection(name=name, active=True, detail=f"not of {', '.join(kept)}: {why}" if kept else "")


@contextlib.contextmanager
def _listener() -> Iterator[int]:
    """A port of this machine that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _printed(shown: Any, number: int) -> str:
    """The text of one attempt."""
    try:
        return (
            "".join(output.get("text", "") or output.get("evalue", "") for output in shown[number]).strip() or "nothing"
        )
    except (AttributeError, IndexError, KeyError, TypeError):
        return "the attempt did not run"
