"""What the course takes from the system: programs and libraries that pip does not bring. Needs no package itself.

    python3 tools/system.py                    # what `make test` uses
    python3 tools/system.py sandbox venv       # what these two use

TABLE --missing--> what is not there --install--> what apt-get could not get --sentence--> what is left out
Exit 1 where something is missing without which nothing runs at all.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
POSTGRES = "/usr/lib/postgresql"  # where Debian keeps each version, off the path
WALLS = ("--unshare-all", "--cap-drop", "ALL", "--uid", "1000", "--ro-bind", "/", "/", "--proc", "/proc", "--", "true")
APT_SECONDS = 1800
PROBE_SECONDS = 10.0


class Need(NamedTuple):
    """Something that the system must have, and what uses it."""

    name: str
    use: str  # also the marker of the tests that are left out without it
    is_there: Callable[[], bool]
    package: str = ""  # Debian's; without one, `remedy` says what to do
    remedy: str = ""
    vital: bool = False  # nothing runs without it


def browser() -> str | None:
    """The path of a Chromium."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def postgres() -> Path | None:
    """The folder of initdb and postgres: beside each other on the path, or where Debian keeps the newest."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path(POSTGRES).glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


def _on_path(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program) is not None


def _namespaces() -> bool:
    """Whether bubblewrap may make them, which some containers and systems forbid; nobody knows where it is missing."""
    program = shutil.which("bwrap")
    return program is None or _ends_well([program, *WALLS])


def _seccomp() -> bool:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    return True


def _ensurepip() -> bool:
    importlib.invalidate_caches()  # it may have been installed a moment ago
    return importlib.util.find_spec("ensurepip") is not None


TABLE = (
    Need("ensurepip", "venv", _ensurepip, "python3-venv", vital=True),
    Need("make", "make", _on_path("make"), "make", vital=True),
    Need("bubblewrap", "sandbox", _on_path("bwrap"), "bubblewrap"),
    Need("libseccomp", "sandbox", _seccomp, "libseccomp2"),
    Need("leave to make namespaces", "sandbox", _namespaces, remedy="`autograder doctor` says how to give it"),
    Need("Chromium", "browser", lambda: browser() is not None, "chromium"),
    Need("PostgreSQL", "postgres", lambda: postgres() is not None, "postgresql"),
)
USES = tuple(dict.fromkeys(each.use for each in TABLE))
MARKERS = tuple(dict.fromkeys(each.use for each in TABLE if not each.vital))


def missing(uses: Iterable[str] = ()) -> list[Need]:
    """What is not there of what `uses` need, of everything where none is named."""
    wanted = tuple(uses)
    return [each for each in TABLE if (not wanted or each.use in wanted) and not each.is_there()]


def sentence(needs: Sequence[Need]) -> str:
    """What is missing, what is therefore left out, and what would help; first that without which nothing runs."""
    vital, others = [each for each in needs if each.vital], [each for each in needs if not each.vital]
    if vital and others:
        return f"{sentence(vital)}; {sentence(others)}"
    verb = "is" if len(needs) == 1 else "are"
    left_out = _listed(dict.fromkeys(each.use for each in others))
    what = f"so the tests marked {left_out} are left out" if left_out else "and nothing runs without"
    packages = [each.package for each in needs if each.package]
    remedies = [*([f"apt install {' '.join(packages)}"] if packages else []), *(n.remedy for n in needs if n.remedy)]
    return f"{_listed(each.name for each in needs)} {verb} missing, {what} ({'; '.join(remedies)})"


def install(needs: Sequence[Need]) -> None:
    """Install what apt-get may; what it cannot is said by whoever looks again."""
    packages = [each.package for each in needs if each.package]
    apt = _apt() if packages else None
    if apt is None:
        return
    print(f"== Debian packages: {' '.join(packages)}", flush=True)
    _ends_well([*apt, "update", "-qq"], APT_SECONDS)
    command = [*apt, "install", "-y", "-qq", "--no-install-recommends"]
    if not _ends_well([*command, *packages], APT_SECONDS):
        for package in packages:  # one that this system does not have keeps no other away
            _ends_well([*command, package], APT_SECONDS)


def _apt() -> list[str] | None:
    """apt-get as root, without a question to anybody; None where there is none."""
    found = shutil.which("apt-get")
    if found is None:
        return None
    command = ["env", "DEBIAN_FRONTEND=noninteractive", found]
    if os.geteuid() == 0:
        return command
    sudo = shutil.which("sudo")
    return [sudo, "-n", *command] if sudo and _ends_well([sudo, "-n", "true"]) else None


def _ends_well(command: Sequence[str], seconds: float = PROBE_SECONDS) -> bool:
    """Whether the command exists and exits with 0 in time; it may ask nothing. Only apt-get's output is shown."""
    output = subprocess.DEVNULL if seconds == PROBE_SECONDS else None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _listed(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def main(uses: Sequence[str]) -> int:
    """Install what is missing, then say what still is."""
    unknown = [use for use in uses if use not in USES]
    if unknown:
        print(f"a use must be one of {_listed(USES)}, got {_listed(unknown)}")
        return 2
    install(missing(uses))
    needs = missing(uses)
    if needs:
        print(f"== {sentence(needs)}", flush=True)
    return int(any(each.vital for each in needs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
