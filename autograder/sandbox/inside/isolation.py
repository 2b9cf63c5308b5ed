"""The inner isolation: what a forked child of the warm process puts around itself before a student's code is near.

    unshare_namespaces --fork--> first process of the namespaces: mount_private, set_limits, drop_privileges

The order is forced, each step by what the next one takes away:
- the user namespace first (the kernel makes it first when all are asked for at once): it gives this process, which has
  no privilege outside, the capabilities over the other namespaces that mounts and the network need;
- the maps of users and groups while /proc is still there, and before any file is opened as that user;
- a fork, because a process stays in its own process namespace: only the child is process 1 of the new one, and with
  process 1 the kernel kills everything in it, however it has detached itself;
- mounts before capabilities go; what /proc tells (`mapped`) before it is covered;
- the filter last, because it denies the calls of all steps before it, and nobody can take it off again.

Everything here raises OSError where the system refuses, and the caller ends the process: nothing is left out.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
import subprocess
import sys
from types import ModuleType
from typing import Any, NoReturn

from autograder.sandbox.wire import seccomp
from autograder.sandbox.wire.policy import COVERED, DEVICES, USER, Limits, writable

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND = 1, 2, 4, 8, 32, 4096
SIGNALS = 1_000  # that may wait for one user: each holds some numbers
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL = 4, 24, 47, 4
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522
SIOCGIFFLAGS, SIOCSIFFLAGS, UP = 0x8913, 0x8914, 0x1

STARTING: dict[ModuleType, tuple[str, ...]] = {
    os: ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve", "system"),
    subprocess: ("_fork_exec",),
}
LISTS = ("gc.get_objects", "gc.get_referrers")  # audit events

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_namespaces() -> None:
    """New user, mount, process, network, IPC and host name namespaces; the next fork is the first process in them."""
    _call("unshare", _libc.unshare(NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS))
    # The kernel takes a group map from a process without privilege only after it has given up `setgroups`. One id is
    # mapped, to itself: files of everybody else belong to nobody here.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{USER} {USER} 1"), ("gid_map", f"{USER} {USER} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount_private(limits: Limits) -> None:
    """Empty folders in place of everything that can be written or that tells of others; no terminal."""
    for folder in writable():
        _mount("tmpfs", folder, f"size={limits.scratch},nr_inodes={limits.files},mode=0755", NODEV | NOEXEC)
    # No /proc of our own either: nobody inside needs one, and it is the way to other processes' memory and peaks.
    _mount("tmpfs", "/proc", "size=4k,mode=0555", NODEV | READ_ONLY)
    _mount("devpts", "/dev/pts", "newinstance,ptmxmode=0000,mode=620", READ_ONLY)  # else its owner opens it to himself
    for folder in COVERED:  # all that lies there has been imported
        _mount("tmpfs", folder, "size=4k,mode=0555", NODEV | READ_ONLY)
    # Who maps zeros has shared memory, which leaves his account when he unmaps its pages, and stays.
    _call("zeros", _libc.mount(b"/dev/null", b"/dev/zero", None, BIND, None))
    for path in filter(os.path.exists, DEVICES):
        # The machine's own, and its owner's where he is the one who grades: modes and times would stay.
        kept = os.statvfs(path).f_flag & (NOSUID | NODEV | NOEXEC)
        _call(path, _libc.mount(None, path.encode(), None, REMOUNT | BIND | READ_ONLY | kept, None))
    _loopback_up()


def set_limits(limits: Limits, mapped: int, *, isolated: bool) -> None:
    """Limits of each process. `mapped` bytes of address space are in use already (torch's libraries alone: GiB).

    Without isolation the number of tasks is left alone: it would count all processes of the user who grades.
    """
    wanted = {
        resource.RLIMIT_AS: mapped + limits.memory,
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
    }
    if isolated:
        wanted |= {resource.RLIMIT_NPROC: limits.tasks, resource.RLIMIT_SIGPENDING: SIGNALS}
    for what, value in wanted.items():
        _, hard = resource.getrlimit(what)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (most, most))


def drop_privileges(program: bytes) -> None:
    """No capability, no way to a new one, and the system call filter. The warm process may still look at our costs."""
    for number in range(LAST_CAPABILITY + 1):  # first: to drop from the bounding set is a privilege of its own
        _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # numbers that this kernel does not know are refused
    _libc.prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    _call("capset", _libc.capset(header, bytes(24)))
    # Whoever changes its credentials is undumpable, and its files in the outer /proc belong to root then: the warm
    # process could no longer read what it uses.
    _call("dumpable", _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
    seccomp.put_on(program, seccomp.ALL)


def stay_alone(program: bytes) -> None:
    """From here on this process starts no other one and becomes no other program, and is told so in words."""
    seccomp.put_on(program, seccomp.ANSWERS)
    for module, names in STARTING.items():
        for name in names:
            if hasattr(module, name):
                setattr(module, name, _refuse)


def close_lists() -> None:
    """From here on nobody in this process gets the collector's lists, in which the frames of its callers stand."""

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event in LISTS:
            raise PermissionError(f"an answer must find what it needs in its arguments, but it calls {event}")

    sys.addaudithook(hook)


def keep_everything(program: bytes | None) -> None:
    """What this process computes with stays in it, where its memory is measured: no files either."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if program is not None:
        seccomp.put_on(program, seccomp.MEASURED)


def stay_filtered(program: bytes) -> None:
    """From here on nobody puts on a filter: one of a student's could write to the log of the machine."""
    seccomp.put_on(program, seccomp.LAST)


def stay_erased(program: bytes) -> None:
    """From here on no memory of this process becomes executable, and who meets code that was erased dies."""
    seccomp.put_on(program, seccomp.ERASED)


def _refuse(*_: object, **__: object) -> NoReturn:
    """In the place of what the filter denies: the kernel's own words are "operation not permitted"."""
    raise PermissionError(
        "an answer must be computed in the one process that performs it, but it starts another: call functions instead"
    )


def mapped() -> int:
    """Bytes of address space in use; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _mount(kind: str, path: str, options: str, flags: int = 0) -> None:
    result = _libc.mount(kind.encode(), path.encode(), kind.encode(), NOSUID | flags, options.encode())
    _call(f"mount of {path}", result)


def _loopback_up() -> None:
    """127.0.0.1 of a network in which nobody else is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, bytes(14))
        (flags,) = struct.unpack_from("H", fcntl.ioctl(sock, SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | UP, bytes(14)))


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
