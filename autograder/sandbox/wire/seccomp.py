"""The system call filters, compiled by libseccomp outside and put on inside as plain bytes.

policy --compiled--> a BPF program for ALL, ANSWERS, MEASURED, ERASED, LAST --(sent to the warm process)--> put_on: each
adds to those before it, and none comes off
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import tempfile
from typing import Any

from autograder.sandbox.wire import policy

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
INSTRUCTION = 8  # bytes; as many before each program tell its length
ALL, ANSWERS, MEASURED, ERASED, LAST = range(5)  # who a program is for
LATER = 100  # system calls that may come to be


def compiled() -> bytes:
    """The BPF programs of `policy`, one after the other. Raises PolicyError where libseccomp is missing."""
    try:
        import pyseccomp as library
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise policy.PolicyError(
            f"libseccomp must be installed for the system call filter, but {error}; on Debian and Ubuntu: "
            "`apt install libseccomp2`, then `pip install pyseccomp`"
        ) from None
    rules = _allowed()
    alone, measured, erased, last = (library.SyscallFilter(library.ALLOW) for _ in range(4))
    for name in (*policy.OTHERS, *policy.POLLS, *policy.PASSING):
        _add(alone, library.ERRNO(errno.EPERM), name)
    _add(alone, library.ERRNO(errno.EPERM), "clone", library.Arg(0, library.MASKED_EQ, policy.THREAD, 0))
    for name in policy.ELSEWHERE:
        _add(measured, library.ERRNO(errno.EPERM), name)
    shared = library.Arg(3, library.MASKED_EQ, policy.SHARED, policy.SHARED)
    _add(measured, library.ERRNO(errno.EPERM), "mmap", shared)
    for name, place in (("open", 1), ("openat", 2)):
        for flag in policy.CREATING:
            _add(measured, library.ERRNO(errno.EPERM), name, library.Arg(place, library.MASKED_EQ, flag, flag))
    _add(measured, library.ERRNO(errno.ENOSYS), "openat2")  # its flags cannot be read by a filter; all take openat then
    for advice in policy.PAGED_OUT:
        _add(measured, library.ERRNO(errno.EPERM), "madvise", _is(2, advice))
    for name in policy.MAPPING:
        executable = library.Arg(2, library.MASKED_EQ, policy.EXECUTABLE, policy.EXECUTABLE)
        _add(erased, library.ERRNO(errno.EPERM), name, executable)
    for name in policy.AROUND:
        _add(erased, library.ERRNO(errno.EPERM), name)
    for advice in set(range(max(policy.KEPT))) - set(policy.KEPT):
        _add(erased, library.ERRNO(errno.EPERM), "madvise", library.Arg(2, library.EQ, advice))
    _add(erased, library.ERRNO(errno.EPERM), "madvise", library.Arg(2, library.GT, max(policy.KEPT)))
    for number in policy.FATAL:
        _add(erased, library.ERRNO(errno.EPERM), "rt_sigaction", _is(0, number))
    _add(last, library.ERRNO(errno.EPERM), "prctl", _is(0, policy.FILTER))
    programs = [_exported(each) for each in (rules, alone, measured, erased, last)]
    return b"".join(len(each).to_bytes(INSTRUCTION, "big") + each for each in programs)


def _allowed() -> Any:
    """What is allowed everywhere; of some calls only with certain arguments."""
    import pyseccomp as library

    rules = library.SyscallFilter(library.ERRNO(errno.EPERM))
    for names in policy.ALLOWED.values():
        for name in names.split():
            _add(rules, library.ALLOW, name)
    for flag, value in ((policy.ONE_MEMORY, 0), (policy.WAITS, policy.WAITS), (policy.THREAD, policy.THREAD)):
        _add(rules, library.ALLOW, "clone", library.Arg(0, library.MASKED_EQ, policy.NEW_NAMESPACES | flag, value))
    looked_at = policy.SHARED | policy.ANONYMOUS | policy.HUGE
    for flags in (0, policy.SHARED, policy.ANONYMOUS):
        _add(rules, library.ALLOW, "mmap", library.Arg(3, library.MASKED_EQ, looked_at, flags))
    for name, place, values in (
        ("fcntl", 1, policy.FILE_SETTINGS),
        ("ioctl", 1, policy.DEVICE_SETTINGS),
        ("prctl", 0, policy.PROCESS_SETTINGS),
        ("socket", 0, policy.FAMILIES),
        ("socketpair", 0, (socket.AF_UNIX,)),
    ):
        for value in values:
            _add(rules, library.ALLOW, name, _is(place, value))
    for level, settings in policy.SOCKET_SETTINGS.items():
        for value in settings:
            _add(rules, library.ALLOW, "setsockopt", _is(1, level), _is(2, value))
    known = {library.resolve_syscall(library.Arch.NATIVE, name) for name in " ".join(policy.ALLOWED.values()).split()}
    for number in set(range(policy.NEWER, policy.NEWER + LATER)) - known:
        rules.add_rule(library.ERRNO(errno.ENOSYS), number)
    return rules


def _exported(rules: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _is(place: int, value: int) -> Any:
    """That an argument is this one, where the kernel reads an int of it."""
    import pyseccomp as library

    return library.Arg(place, library.MASKED_EQ, 0xFFFFFFFF, value)


def _add(rules: object, action: int, name: str, *arguments: object) -> None:
    """One rule; a call that libseccomp has no name for is too new for it, or not of this processor."""
    import pyseccomp as library

    if library.resolve_syscall(library.Arch.NATIVE, name) >= 0:
        rules.add_rule(action, name, *arguments)  # type: ignore[attr-defined]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def put_on(programs: bytes, which: int) -> None:
    """Filter this process and all that it starts, for ever; `which` is one of the five. Raises OSError."""
    for _ in range(which):
        _, programs = _first(programs)
    _put_on(_first(programs)[0])


def _first(programs: bytes) -> tuple[bytes, bytes]:
    """A program, and those after it."""
    end = INSTRUCTION + int.from_bytes(programs[:INSTRUCTION], "big")
    return programs[INSTRUCTION:end], programs[end:]


def _put_on(program: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = _Program(len(program) // INSTRUCTION, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "no_new_privs")
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")
