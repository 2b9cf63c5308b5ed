"""The folder of a runner. It is removed when the runner closes, or by others where its owner was killed.

    Folder()  -> a new one, which belongs to this process
    sweep()   -> those whose owners are gone are removed

A folder belongs to whoever holds the lock on the file `owner` in it. The system gives a lock back when its process
ends, however that happens; a process number would say nothing about another container or computer with the same disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PREFIX = "hpml-runner-"
PATTERN = PREFIX + 8 * "[a-z0-9_]"  # as `tempfile` ends them
OWNER = "owner"


class Folder:
    """A new folder, after those that nobody owns were removed.

    Raises OSError where the folder for temporary files cannot be written, or knows no locks.
    """

    def __init__(self) -> None:
        sweep()
        self.path, self._lock = _owned()

    def remove(self) -> None:
        """Remove it with all that is in it; only then may others take it."""
        remove(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove the folders of runners that can be locked: their owners are gone. Those of other users stay."""
    for path in Path(tempfile.gettempdir()).glob(PATTERN):
        with contextlib.suppress(OSError):  # it has an owner, is another user's or no folder, or was removed meanwhile
            lock = _lock(path)
            remove(path)
            os.close(lock)


def remove(path: Path) -> None:
    """Remove a folder in which students' code may have run: as deep as it is, and whatever cannot be removed stays."""
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # `rm` goes down without calling itself
        subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, check=False)


def _owned() -> tuple[Path, int]:
    """A new folder and its lock; another one where somebody swept it before it was locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            return path, _lock(path)


def _lock(path: Path) -> int:
    """The open file that holds the lock on a folder, which is not followed where it is a link.

    Raises OSError: BlockingIOError where somebody else holds the lock, FileNotFoundError where the folder was removed,
    PermissionError where it is another user's.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")
        file = os.open(OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink == 0:
            raise FileNotFoundError(f"{path} was removed before it was locked")
    except OSError:
        os.close(file)
        raise
    return file
