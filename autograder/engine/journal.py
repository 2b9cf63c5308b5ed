"""What a batch has done, on disk before anyone relies on it: a run that was killed is taken up where it stood.

    begun {release, seeds, students} -> started {student, digest, seed} -> recorded | failed {student} -> ... -> ended

One file per assignment, one JSON object per line, only ever appended to. A line is on the disk when the call that
wrote it returns. A last line without its end was never relied on: it is cut off.

The file holds secret seeds, so that only its owner may read it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from filelock import FileLock, Timeout

from course.errors import CourseError

State: TypeAlias = Literal["started", "recorded", "failed"]
# What the fields of a line hold.
_ASKED = {
    "began": str,
    "release": str,
    "drawn": int,
    "seed": int | None,
    "repeat": bool,
    "students": list | tuple | None,
}
_STARTED = {"student": str, "digest": str, "seed": int}
_STATES: dict[str, State] = {"recorded": "recorded", "failed": "failed"}


class JournalError(CourseError):
    """A journal that another process writes, or that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """How far one submission came.

    digest  of the submitted file when its grading started
    seed    drew, or will draw, its cases
    """

    digest: str
    seed: int
    state: State = "started"


@dataclass(kw_only=True)
class BatchRun:
    """One batch.

    began     UTC, ISO 8601
    release   digest of the release notebook
    drawn     the secret seed of everyone
    seed      what somebody asked for in its place
    repeat    each student's seed is that of an earlier run, where the file is the same
    students  ids that were asked for; None: all who had handed in
    entries   by student, in the order of their start
    """

    began: str
    release: str
    drawn: int
    seed: int | None = None
    repeat: bool = False
    students: tuple[str, ...] | None = None
    ended: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)


class Journal:
    """The journal of one assignment, open for writing. Use as a context manager.

    run     the last run: the one that is being written, or an earlier one; None in a new journal
    starts  by student: the last start, over all runs

    Raises JournalError where another process grades below the same folder, a line is damaged, or nothing can be
    written.
    """

    def __init__(self, path: Path) -> None:
        self.run: BatchRun | None = None
        self.starts: dict[str, Entry] = {}
        self._path = path
        self._lock = _lock(path.parent)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self._file = _opened(path)
            self._take_in()
        except Timeout:
            raise _taken(path.parent) from None
        except OSError as error:
            self._lock.release()
            raise JournalError(f"the journal {path} must be written, but: {error.strerror}") from None
        except JournalError:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self._lock.release()

    # --- writing ---

    def begin(self, run: BatchRun) -> BatchRun:
        """A new run. Raises OSError, as all that write do, where the line could not be brought to the disk."""
        fields = dataclasses.asdict(run)
        return self._append({"is": "begun", **{name: fields[name] for name in _ASKED}})

    def start(self, student: str, entry: Entry) -> None:
        """The grading of this file, with this seed, starts now."""
        self._append({"is": "started", "student": student, "digest": entry.digest, "seed": entry.seed})

    def finish(self, student: str, failed: str = "") -> None:
        """What came out is in the gradebook and on the disk; or it failed, and why."""
        self._append({"is": "failed" if failed else "recorded", "student": student, "why": failed})

    def end(self) -> None:
        """All that the run was asked for is done."""
        self._append({"is": "ended"})

    def _append(self, line: dict[str, Any]) -> BatchRun:
        """One line, whole or not at all."""
        before = os.fstat(self._file).st_size
        data = (json.dumps(line) + "\n").encode()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        return self._apply(line)

    # --- reading ---

    def _take_in(self) -> None:
        """Read every line, and cut off what a kill or a power failure left of a last one."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise JournalError(
                    f"every line of {self._path} must be one of a journal's, line {number} is none; "
                    "move the file away to grade anew"
                ) from None
        if whole < len(data):
            os.ftruncate(self._file, whole)

    def _apply(self, line: dict[str, Any]) -> BatchRun:
        """What a line says of the run to which it belongs."""
        if line["is"] == "begun":
            asked = _fields(line, _ASKED)
            datetime.fromisoformat(asked["began"])
            self.run = BatchRun(
                **{**asked, "students": None if asked["students"] is None else tuple(asked["students"])}
            )
            return self.run
        if self.run is None:
            raise ValueError("the first line must begin a run")
        if line["is"] == "ended":
            self.run.ended = True
        elif line["is"] == "started":
            started = _fields(line, _STARTED)
            entry = Entry(digest=started["digest"], seed=started["seed"])
            self.run.entries[started["student"]] = self.starts[started["student"]] = entry
            self.run.ended = False
        else:
            entry = self.run.entries[line["student"]]
            self.run.entries[line["student"]] = dataclasses.replace(entry, state=_STATES[line["is"]])
        return self.run


def _fields(line: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """Those of a line that are named. Raises KeyError or TypeError where one is missing, or of another kind."""
    found = {name: line[name] for name in kinds}
    if not all(isinstance(found[name], kind) for name, kind in kinds.items()):
        raise TypeError("a field is of another kind")
    return found


def demand_none_is_written(folder: Path) -> None:
    """Raises JournalError where a process writes one of the journals in this folder now, or where nobody can tell."""
    if not folder.is_dir():
        return
    try:
        with _lock(folder).acquire(timeout=0):
            pass
    except Timeout:
        raise _taken(folder) from None
    except OSError as error:
        raise JournalError(f"who grades now must stand in {folder}, but: {error.strerror}") from None


def now() -> str:
    """The time at which a run begins: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest(data: bytes) -> str:
    """A name of these bytes that no other bytes have."""
    return hashlib.sha256(data).hexdigest()


def _lock(folder: Path) -> FileLock:
    return FileLock(folder / "lock", mode=0o600)


def _taken(folder: Path) -> JournalError:
    below = folder.parent
    return JournalError(f"one process may grade below {below} at a time, but another does now; wait for its end")


def _opened(path: Path) -> int:
    """A descriptor that appends. A new file's name is on the disk too when this returns."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return file
