"""What students' code may do and use, in one place: limits, what it sees of the file system, and system calls.

Limits.parse("memory=3GiB")   --> Limits
command(argv, ...)            --> the bubblewrap command that runs argv in the outer isolation
DENIED, OTHERS, ELSEWHERE ... --> the system call filters (seccomp.py compiles them)
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import sys
import sysconfig
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.errors import CourseError

SECONDS = {"": 1, "s": 1, "min": 60}
BYTES = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
SIZES = ("memory", "file", "scratch", "output")
SMALLEST, LARGEST = 2**20, 2.0**60  # bytes in which anything can run; no machine has more, and the kernel takes it
USER = 1000  # user and group inside, whoever grades
HOME = "/student"
WRITABLE = (HOME, "/tmp", "/dev/shm")  # in memory, and empty for each submission
DEVICES = tuple(f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero"))  # the machine's own
# Of /usr only what every system has: programs may be unpacked beside it, as a course is in /usr/src/app.
SYSTEM = tuple(
    f"{above}/{name}"
    for above, names in {
        "": ("bin", "sbin", "lib", "lib32", "lib64"),
        "/usr": ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "local"),
    }.items()
    for name in names
)
PATIENT = 4.0  # times its limit, which a case may take where others keep the processors busy
COURSE = "/course"  # where the staged student side of the course lies inside
COVERED = tuple(f"{COURSE}/{name}" for name in ("autograder", "course/exercises", "course/performing"))


class PolicyError(CourseError):
    """A limit that cannot be read or kept."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may use. Times are wall-clock seconds, sizes bytes.

    load_seconds        to load the cells
    spare_seconds       on top of the exercise's own limit per case
    submission_seconds  for all exercises together
    display_seconds     for the whole display run
    memory              of all processes together, on top of what the warm process had
    tasks               processes and threads
    file                one file; scratch: all files of a folder together (they lie in memory), and `files` how many
    open_files          of one process
    output              of the display run
    """

    load_seconds: float = 20.0
    spare_seconds: float = 2.0
    submission_seconds: float = 600.0
    display_seconds: float = 60.0
    memory: int = 2 * 2**30
    tasks: int = 64
    file: int = 16 * 2**20
    scratch: int = 64 * 2**20
    files: int = 10_000
    open_files: int = 256
    output: int = 8 * 2**20

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Limits:
        """Limits from `name=number[unit]`, as `memory=3GiB` or `load_seconds=1min`. Raises PolicyError."""
        given: dict[str, Any] = dict(_setting(text) for text in texts)
        return dataclasses.replace(cls(), **given)


def _setting(text: str) -> tuple[str, float | int]:
    names = {name: type(default) for name, default in dataclasses.asdict(Limits()).items()}
    units = {name: SECONDS if kind is float else BYTES if name in SIZES else {"": 1} for name, kind in names.items()}
    found = re.fullmatch(r"(\w+)=(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not found or found[3].lower() not in units.get(found[1], {}) or not float(found[2]):
        raise PolicyError(
            "a limit must read name=number, with s or min behind seconds, KiB, MiB or GiB behind "
            f"{', '.join(SIZES)}, and a name of {', '.join(names)}; got {text!r}"
        )
    name, value = found[1], float(found[2]) * units[found[1]][found[3].lower()]
    least = SMALLEST if name in SIZES else 1 if names[name] is int else 0
    if not least <= value <= LARGEST:
        raise PolicyError(
            f"a limit must be at least 1 MiB for {', '.join(SIZES)}, 1 for what is counted, and more than 0 s, and at "
            f"most 2**60; got {text!r}"
        )
    return name, names[name](value)


# --- the outer isolation ------------------------------------------------------------------------------


def command(argv: Sequence[str], *, course: Path, hidden: Sequence[Path] = (), binary: str = "bwrap") -> list[str]:
    """bubblewrap around `argv`: namespaces of its own, a read-only system, no network, no capability.

    course  the staged student side, visible at `COURSE`
    hidden  folders that are empty inside, where they lie in what is visible
    Raises PolicyError where Python cannot be seen without one of them.
    Nested user namespaces stay possible, because each submission gets its own; the filter takes them from students.
    """
    return [
        binary,
        *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--clearenv"),
        *_environment(),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", HOME, "--tmpfs", "/tmp"),
        *_system(),
        *without(hidden),
        *("--ro-bind", str(course), COURSE),
        *("--remount-ro", "/tmp", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME),
        "--",
        *argv,
    ]


def environment(home: str = HOME) -> dict[str, str]:
    """All that students' code sees of the environment."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "USER": "student",
        "LOGNAME": "student",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _environment() -> list[str]:
    return [word for name, value in environment().items() for word in ("--setenv", name, value)]


def _system() -> list[str]:
    """The system's libraries and this Python, read-only; nothing of /etc but what the loader needs."""
    words: list[str] = []
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    for name in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts", "/etc/localtime"):
        words += ["--ro-bind-try", name, name]
    for folder in python_folders():
        words += ["--ro-bind", folder, folder]
    return words


def writable() -> list[str]:
    """Folders that each submission gets empty: not one below which this Python lies, which stays read-only."""
    return [name for name in WRITABLE if not any(Path(each).is_relative_to(name) for each in python_folders())]


def python_folders() -> list[str]:
    """Where this Python and its packages lie, outermost first; folders of the system are there already."""
    return [each for each in _outermost(_python()) if not _is_below(each, SYSTEM)]


def visible(folder: Path) -> bool:
    """Whether students' code could read what lies there, were it not hidden."""
    return _is_below(str(folder), (*SYSTEM, *_python()))


def without(hidden: Sequence[Path]) -> list[str]:
    """bubblewrap's words for empty folders in these places, and what of Python lies below them. Raises PolicyError."""
    words: list[str] = []
    for folder in _outermost({str(each) for each in hidden if visible(each)}):
        lost = [each for each in _python() if _is_below(each, [folder])]
        if folder in (*SYSTEM, *lost):
            raise PolicyError(
                f"{folder} must not hold the grader or what it grades, because students' code sees the Python in it: "
                "move the course to a folder of its own"
            )
        words += ["--tmpfs", folder]
        for each in _outermost(lost):
            words += ["--ro-bind", each, each]
        words += ["--remount-ro", folder]
    return words


def _python() -> set[str]:
    found = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])}
    found |= {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return {str(Path(each)) for each in found}


def _outermost(folders: Collection[str]) -> list[str]:
    """Those that lie in no other one."""
    return [each for each in sorted(folders) if not _is_below(each, [up for up in folders if up != each])]


def _is_below(folder: str, others: Iterable[str]) -> bool:
    return any(Path(folder).is_relative_to(each) for each in others)


# --- system calls -------------------------------------------------------------------------------------

# What Python, torch and the programs of a system need, and nothing else. Whatever is missing here answers EPERM, or
# ENOSYS where it is newer than NEWER: then the C library does without. Left out on purpose, beside what makes
# namespaces, mounts, keys, modules and traces: memory that is no process's (memfd_create, shmget, msgget, mq_open,
# semget, io_setup); a larger share of the processors (sched_setaffinity, setpriority, setsid: sched(7)); and what tells
# others something by files that are the same for all (flock, inotify, fadvise64, mincore, cachestat, preadv2).
NEWER = 424  # the first number that is the same on all processors
ALLOWED = {
    "files": (
        "read write open openat close stat fstat lstat newfstatat statx lseek pread64 pwrite64 readv writev "
        "preadv pwritev access faccessat faccessat2 dup dup2 dup3 pipe pipe2 sendfile copy_file_range fsync "
        "fdatasync truncate ftruncate fallocate getdents getdents64 getcwd chdir fchdir rename renameat "
        "renameat2 mkdir mkdirat rmdir creat link linkat unlink unlinkat symlink symlinkat readlink readlinkat "
        "chmod fchmod fchmodat chown fchown lchown fchownat umask mknod mknodat statfs fstatfs utime utimes "
        "futimesat utimensat close_range getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr"
    ),
    "waiting": (
        "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 "
        "eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime"
    ),
    "memory": (
        "munmap mprotect mremap madvise msync mlock munlock mlock2 brk membarrier get_mempolicy set_mempolicy mbind"
    ),
    "processes": (
        "fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid "
        "setpgid getpgrp getsid getuid geteuid getgid getegid getgroups getresuid getresgid capget arch_prctl "
        "set_tid_address set_robust_list get_robust_list rseq futex sched_yield sched_getaffinity sched_getparam "
        "sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority getrlimit setrlimit "
        "prlimit64 getrusage times uname sysinfo getcpu getrandom restart_syscall"
    ),
    "signals": (
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend "
        "sigaltstack pause alarm setitimer getitimer timer_create timer_settime timer_gettime timer_getoverrun "
        "timer_delete"
    ),
    "time": "nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time",
    "sockets": (
        "bind listen accept accept4 connect getsockname getpeername sendto recvfrom sendmsg recvmsg "
        "sendmmsg recvmmsg shutdown getsockopt"
    ),
}
HUGE = 0x40000  # of mmap's flags: pages that are on no process's account
SHARED, ANONYMOUS = 0x01, 0x20  # and these: what is both may leave a process's account, and stay in memory
PAGED_OUT = (20, 21)  # of madvise: MADV_COLD, MADV_PAGEOUT
# Of fcntl: duplicates, flags, the size of a pipe; no locks, leases, notices and owners, by which ranks could talk.
FILE_SETTINGS = (*range(5), 1030, 1032)
# Of prctl: a name, for the C library's own memory as well; no privileges and bounds of capabilities; not
# PR_SET_DUMPABLE, by which a process hides from who counts what it uses.
FILTER = 22  # of prctl: refused when the last filter of ours is on
PROCESS_SETTINGS = (1, 2, 3, 15, 16, 21, FILTER, 23, 38, 39, 41, 42, 0x53564D41)
# Of ioctl: is it a terminal, how wide; how many bytes wait; close on exec; do not block.
DEVICE_SETTINGS = (0x5401, 0x5413, 0x540F, 0x541B, 0x5421, 0x5450, 0x5451)
NEW_NAMESPACES = 0x7E020000  # of clone's flags
# EPERM where answers are loaded and performed: one process, which no other one helps, and which becomes no other
# program. What an exercise removes is removed in it, and nowhere else.
OTHERS = ("fork", "vfork", "execve", "execveat")
# Of clone's flags: where memory is one, it is that of a thread, or of who waits until the other becomes a program. Else
# processes could hand it on to each other faster than anybody can look.
ONE_MEMORY, WAITS, THREAD = 0x00000100, 0x00004000, 0x00010000
# EPERM there too: entries of epoll are the kernel's memory, are bounded for all processes of the user who grades, and
# hold numbers.
POLLS = ("epoll_create", "epoll_create1")
# And files that are on their way from one socket to another, which are counted for that user, too; and connections that
# wait to be accepted, which keep what was sent through them, and belong to no process.
PASSING = ("sendmsg", "sendmmsg", "socket", "listen")
# Besides, where memory is measured: nothing of the kernel's to put numbers into.
ELSEWHERE = (
    *("pipe", "pipe2", "socket", "socketpair", "symlink", "symlinkat", "mkdir", "mkdirat", "mknod", "mknodat"),
    *("link", "linkat", "rename", "renameat", "renameat2", "setxattr", "lsetxattr", "fsetxattr", "creat"),
    *("rt_sigqueueinfo", "timer_create"),
)
CREATING = (0x40, 0x400000)  # of open's flags: O_CREAT and a file without a name; names and times hold bytes as well
# Besides, where machine code was erased: none comes back and none is added, and whoever meets the gap dies.
EXECUTABLE = 0x4  # PROT_EXEC, the third argument of these
MAPPING = ("mmap", "mprotect", "pkey_mprotect")
AROUND = ("mremap", "remap_file_pages", "shmat")  # with these, more of a mapped file becomes executable as well
KEPT = (*range(4), *range(14, 18))  # of madvise: what only advises. Others drop what was written, and the file is back
FATAL = (4, 5, 7, 11)  # signals: SIGILL, SIGTRAP, SIGBUS, SIGSEGV, which nobody may handle
# Of setsockopt: of sockets in general nothing that holds more memory, no program of the kernel's, whose room is the
# machine's, and not SO_LINGER: the socket may be handed to the grader, who would wait where he closes it; of protocols
# what gloo, libuv and asyncio set, and no groups, whose list is one for all sockets.
SOCKET_SETTINGS = {
    socket.SOL_SOCKET: (2, 5, 6, 9, 10, 15, 16, 20, 21),
    socket.IPPROTO_IP: (1, 2, 10, 11),
    socket.IPPROTO_TCP: (*range(1, 11), 12, 18, 25),
    socket.IPPROTO_IPV6: (16, 26, 67),
}
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)  # of sockets, in a network of its own
