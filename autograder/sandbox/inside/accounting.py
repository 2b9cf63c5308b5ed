"""Who is there and what they use, by the kernel's account; read from the warm process, where students cannot reach.

processes(sessions) --> tasks, memory;   reset_peaks ... Costs.spent: of one case;   waited: for a processor

What stands in /proc is bytes, of which a process chooses some: its name may be no text, or look like a line of its own.
One may also hide its files (prctl(2), PR_SET_DUMPABLE), or end while it is read.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
EXACT_SECONDS = 1.0
LOOKS = 20  # at threads that come and go
RESET_PEAK = b"5"  # see proc(5), /proc/pid/clear_refs


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: threads; bytes resident, at the highest, of its own (no file's; paged out or not); CPU seconds."""

    pid: int
    parent: int
    threads: int
    resident: int
    peak: int
    own: int
    cpu: float
    began: int = 0  # ticks since the machine was started

    @property
    def key(self) -> tuple[int, int]:
        """Which process it is: when it has ended, its number may be another one's."""
        return self.pid, self.began


def processes(sessions: Collection[int] | None = None) -> list[Process]:
    """All processes but the first of this namespace and ourselves; without isolation, those of these sessions.

    In one look: on a busy machine there are hundreds of processes to look at.
    """
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [_process(pid, sessions) for pid in pids if pid not in (1, os.getpid())]
    return [each for each in found if each is not None]


def own_memory() -> int:
    """Bytes of this process that its forks share until they write."""
    process = _process(os.getpid(), None)
    return process.own if process else 0


def memory(found: list[Process], shared: int) -> int:
    """Bytes that they have of their own, each beyond the `shared` ones that it got from its parent.

    Less than that in a process which was started by exec, or has let go of what it got: see `exact_memory`.
    """
    return sum(max(0, each.own - shared) for each in found)


def exact_memory(found: list[Process], shared: int) -> int:
    """The same by the kernel's account of each page: one that n processes share counts as an nth part in each.

    That takes milliseconds a process, and any time where one of them keeps changing its memory. So a fork does it, and
    what it cannot tell in time is more than anybody may have.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(max(0, sum(map(_proportional, found)) - shared)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], EXACT_SECONDS)
        told = pipe.read() if ready else b""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return int(told) if told else sys.maxsize


def _proportional(process: Process) -> int:
    """Its own bytes in full where the kernel does not tell, but none where it has ended meanwhile."""
    with contextlib.suppress(OSError, ValueError):
        rollup = _fields(f"/proc/{process.pid}/smaps_rollup")
        if "Pss_Anon" in rollup:
            return _bytes(rollup, "Pss_Anon") + _bytes(rollup, "Pss_Shmem") + _bytes(rollup, "SwapPss")
    now = _process(process.pid, None)
    return now.own if now else 0


def reset_peaks(found: list[Process]) -> None:
    """Start the high-water marks anew; that of a process which does not allow it stays, and counts."""
    for each in found:
        with contextlib.suppress(OSError):
            Path(f"/proc/{each.pid}/clear_refs").write_bytes(RESET_PEAK)


@dataclass
class Costs:
    """What one case costs.

    shared  bytes that each process got from its parent
    bases   by process: bytes of its own before it loaded a line of a student's
    starts  by process: what it was when the case began
    most    by process: the most bytes of its own that were seen while it ran
    """

    shared: int
    bases: dict[tuple[int, int], int] = field(default_factory=dict)
    starts: dict[int, Process] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)

    def base(self, found: list[Process], ready: list[Process]) -> None:
        """Of all that were found, these are ready to load a line of a student's; others have a base, or none yet: they
        give memory back first, and import what does not count.
        """
        kept = {each.key: self.bases[each.key] for each in found if each.key in self.bases}
        self.bases = {each.key: each.own for each in ready} | kept

    def mark(self, found: list[Process]) -> None:
        """A case begins: the high-water marks start anew."""
        reset_peaks(found)
        self.starts, self.most = {each.pid: each for each in found}, {}

    def look(self, found: list[Process]) -> None:
        """The case is in the middle."""
        self.most.update({each.pid: max(each.own, self.most.get(each.pid, 0)) for each in found})

    def grown(self, found: list[Process]) -> int:
        """Bytes that the student's code had taken for itself before the case began."""
        starts = [self.starts[each.pid] for each in found if each.pid in self.starts]
        return sum(max(0, each.own - self.bases.get(each.key, each.own)) for each in starts)

    def gone(self, found: list[Process]) -> list[Process]:
        """Those that were there when the case began, and hold no memory any more: nobody knows what they have taken."""
        there = {each.pid for each in found if each.resident}
        return [each for each in self.starts.values() if each.resident and each.pid not in there]

    def spent(self, found: list[Process]) -> tuple[int, float]:
        """(peak bytes, CPU seconds) since the mark, in all of these; a new one counts in full.

        The kernel's high-water mark is above what was resident when the case began, of which what the student's code
        had taken before does not go off. It can be kept down by pages of files that are let go of; bytes of one's own
        cannot, but are only seen when somebody looks.
        """
        self.look(found)
        seconds = [each.cpu - (self.starts[each.pid].cpu if each.pid in self.starts else 0.0) for each in found]
        return sum(max(0, self._peak(each)) for each in found), sum(seconds)

    def _peak(self, process: Process) -> int:
        start = self.starts.get(process.pid)
        if start is None:
            return process.peak - self.shared
        base = self.bases.get(process.key, start.own)
        return max(process.peak - start.resident + max(0, start.own - base), self.most[process.pid] - base)


def sockets(pid: int) -> int:
    """How many sockets the network of a process has, those that belong to no process among them: they wait to be
    accepted, and keep what was sent.
    """
    try:
        with open(f"/proc/{pid}/net/sockstat", "rb") as file:
            return int(file.readline().split()[2])
    except (OSError, ValueError, IndexError):
        return 0


def waited(found: list[Process]) -> float:
    """The longest time in seconds that one of them, ready to run, has waited for a processor: others were running.

    See "Documentation/scheduler/sched-stats.rst" of the kernel; 0 where it keeps no such account.
    """
    return max(map(_waited, found), default=0.0)


def _waited(process: Process) -> float:
    try:
        with open(f"/proc/{process.pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _process(pid: int, sessions: Collection[int] | None) -> Process | None:
    """None where it has ended meanwhile, or belongs to another session."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            stat = file.read().rpartition(")")[2].split()
        if sessions is not None and int(stat[3]) not in sessions:
            return None
        status = _fields(f"/proc/{pid}/status")
        if "VmRSS" not in status:  # its first thread has ended: others may go on, and have the memory
            status = _status_of_a_thread(pid)
        return Process(
            pid=pid,
            parent=int(stat[1]),
            threads=int(status.get("Threads", "1")),
            resident=_bytes(status, "VmRSS"),
            peak=_bytes(status, "VmHWM"),
            own=_bytes(status, "RssAnon") + _bytes(status, "RssShmem") + _bytes(status, "VmSwap"),
            cpu=sum(int(value) for value in stat[11:15]) / TICKS,
            began=int(stat[19]),
        )
    except (OSError, ValueError, IndexError):
        return None


def _status_of_a_thread(pid: int) -> dict[str, str]:
    """That of any thread which goes on. Threads may end while they are looked at, and others begin."""
    status: dict[str, str] = {}
    for _ in range(LOOKS):
        threads = os.listdir(f"/proc/{pid}/task")
        for thread in threads:
            with contextlib.suppress(OSError):
                status = _fields(f"/proc/{pid}/task/{thread}/status")
            if "VmRSS" in status:
                return status
        if len(threads) < 2:
            break
    return status


def _fields(path: str) -> dict[str, str]:
    """What a file of /proc says below its first line, which is a name; in a name a carriage return ends no line."""
    with open(path, errors="replace", newline="\n") as file:
        next(file, "")
        return dict(line.split(":", 1) for line in file if ":" in line)


def _bytes(status: dict[str, str], name: str) -> int:
    return int(status[name].split()[0]) * 1024 if name in status else 0
