"""Whether processes that were killed are gone, and what this one takes, in tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def still_alive(pids: Sequence[int], seconds: float) -> list[int]:
    """Those that run after so long; the answer comes as soon as there are none."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


OUTLIVES = """
import ctypes
def name_oneself():
    ctypes.CDLL(None).prctl(15, b"outlives", 0, 0, 0)
"""


def named(name: bytes) -> list[int]:
    """Processes of this machine that have given themselves a name."""
    found = []
    for each in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            found += [int(each.parent.name)] if each.read_bytes().strip() == name else []
    return [pid for pid in found if alive(pid)]


def peak(*, anew: bool = True) -> int:
    """The most bytes of this process that were in memory, by the kernel's account. anew: it begins again here."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
