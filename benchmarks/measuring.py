"""What a command costs: CPU seconds of all that it started, wall seconds, and its own peak of memory.

    a control group of its own --run--> Cost

CPU seconds are the kernel's account of the group (cgroup v2, `cpu.stat`). Those of `getrusage` will not do: a process
that ignores how its children end, as the first one of a sandbox does, never hears what they used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

POLL_SECONDS = 0.05
LEAVING_SECONDS = 10.0  # for what the command has started to end after it
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    """cpu and wall in seconds; peak in bytes (VmHWM of the first process); left: processes that it left behind."""

    cpu: float
    wall: float
    peak: int
    left: int = 0


def run(
    command: Sequence[str], *, cwd: Path, watch: Callable[[int], None] = lambda pid: None, every: float = POLL_SECONDS
) -> Cost:
    """Run a command to its end. Raises RuntimeError with its last words where it fails.

    watch  called with the process id `every` so many seconds, for other things to look at while it runs
    """
    started, peak = time.perf_counter(), 0
    with _group() as group, tempfile.TemporaryFile(mode="w+", errors="replace") as said:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command],
            cwd=cwd,
            env=environment(),
            stdout=said,
            stderr=said,
        )
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            watch(process.pid)
            time.sleep(every)
        wall = time.perf_counter() - started
        left = _left(group)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said.read()[-2000:]}")
        return Cost(cpu=_cpu(group), wall=wall, peak=peak, left=left)


def nbgrader(*arguments: str) -> list[str]:
    """A command line of stock nbgrader, in this Python."""
    return [sys.executable, "-m", "nbgrader", *arguments]


@functools.cache
def environment() -> dict[str, str]:
    """Ours, with one thread for everyone, this Python's programs, and folders that keep out the user's settings."""
    home = _home().name
    own = {
        name: f"{home}/{name.lower()}"
        for name in ("XDG_DATA_HOME", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TORCHINDUCTOR_CACHE_DIR")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **own, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@functools.cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="hpml-benchmark-home-")


# --- processes ----------------------------------------------------------------------------------------


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held so far; 0 where it has gone."""
    return _status(pid, "VmHWM")


def resident_bytes(pid: int) -> int:
    """The memory that a process holds now; 0 where it has gone."""
    return _status(pid, "VmRSS")


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found = children(pid)
    return [*found, *(each for child in found for each in descendants(child))]


def children(pid: int) -> list[int]:
    """The processes that it has started, and that have not ended."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _status(pid: int, name: str) -> int:
    try:
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


# --- control groups -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A new control group below our own; what is left in it is killed. Raises RuntimeError where none can be made."""
    mount = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", Path("/proc/self/mountinfo").read_text(), re.MULTILINE)
    own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    try:
        if mount is None or own is None:
            raise OSError("there is no cgroup v2")
        group = Path(tempfile.mkdtemp(prefix="hpml-", dir=Path(mount[1]) / own[1]))
    except OSError as error:
        raise RuntimeError(
            f"CPU seconds are measured in a control group of their own, but {error}; run this as root, or with "
            "`systemd-run --user --scope -p Delegate=yes`"
        ) from None
    try:
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        while _members(group):
            time.sleep(POLL_SECONDS)
        group.rmdir()


def _members(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split()


def _left(group: Path) -> int:
    """How many processes do not end by themselves."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while _members(group) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return len(_members(group))


def _cpu(group: Path) -> float:
    """User and system seconds of all processes that were ever in the group."""
    return int(dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())["usage_usec"]) / 1e6


# --- words --------------------------------------------------------------------------------------------


def machine() -> str:
    """One line on where this was measured."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    name = model[1] if model else "unknown"
    return f"{platform.platform()}, {cores} cores ({name}), Python {platform.python_version()}"


def table(title: str, *columns: str, caption: str = "") -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made
