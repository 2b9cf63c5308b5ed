"""A submitted file, read with suspicion: bytes in, cells out, or one sentence that says why not.

Only what a rebuild needs is taken (slim.py): of a small file here, of a large one in a process of its own.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from autograder.engine import slim
from autograder.engine.cells import Cell, parse
from course.errors import CourseError

MAX_BYTES = 20 * 2**20  # a notebook with outputs is a few MiB; outputs are dropped anyway
SMALL = 2 * 2**20  # bytes: whatever stands in so few of them, in format 4, takes some 60 MiB and two seconds at most
PATIENCE = 120.0  # seconds for the other process, whose own limit is one of the processor


class Unreadable(CourseError):
    """A submitted file that is no notebook, or none that can be read."""


def read_file(path: Path) -> list[Cell]:
    """The cells of a file. Raises Unreadable."""
    return read(bytes_of(path, MAX_BYTES + 1))


def bytes_of(path: Path, most: int) -> bytes:
    """What a regular file holds, at most so many bytes. Raises Unreadable for a link, a pipe or a folder.

    Whoever may write there may put something else in its place meanwhile: what was opened is looked at, not the name.
    """
    try:
        with open(path, "rb", opener=_opened) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise Unreadable(f"{path.name} must be a regular file")
            return stream.read(most)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # a folder, a link, a socket
            raise Unreadable(f"{path.name} must be a regular file") from None
        raise Unreadable(f"{path.name} cannot be opened: {error.strerror}") from None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # which waits for nobody who writes to a pipe


def read(data: bytes) -> list[Cell]:
    """The cells of a notebook. Raises Unreadable; notebooks of format 3 are upgraded first."""
    if len(data) > MAX_BYTES:
        raise Unreadable(f"a notebook must not be larger than {MAX_BYTES >> 20} MiB")
    try:
        nodes = slim.slim(data, upgrade=False) if len(data) <= SMALL else _read_apart(data)
    except slim.Old:
        nodes = _read_apart(data)
    except slim.Refused as error:
        raise Unreadable(str(error)) from None
    return [parse(node) for node in nodes]


def _read_apart(data: bytes) -> list[dict[str, Any]]:
    """The same, by a process of its own. Raises Unreadable where that takes too much."""
    command = [sys.executable, "-I", slim.__file__]
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=True
        )
    except (subprocess.SubprocessError, OSError):
        most = f"{slim.MEMORY >> 30} GiB of memory and {slim.SECONDS} s"
        raise Unreadable(f"a notebook must be read with at most {most}, but this one takes more") from None
    found: Any = json.loads(done.stdout)
    if isinstance(found, dict):
        raise Unreadable(found["refused"])
    nodes: list[dict[str, Any]] = found
    return nodes
