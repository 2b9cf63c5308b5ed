"""What the student has reached: one small JSON file in the user's data directory.

    {"schema": 1, "exercises": {id: {"points": best, "possible": n, "checks": n, "hints": shown}}}

The file is replaced as a whole (written beside, flushed to disk, renamed), under a lock: a crash in the middle of
a write leaves the old one, and two notebooks do not lose each other's rows.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

SCHEMA = 1
LOCK_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is remembered of one exercise: best points so far, number of checks, hints shown."""

    points: int = 0
    possible: int = 0
    checks: int = 0
    hints: int = 0


def path() -> Path:
    """Where the progress file lies for this user."""
    return Path(platformdirs.user_data_dir("hpml-course")) / "progress.json"


def load() -> dict[str, Row]:
    """What was reached, by exercise id. A file that cannot be read counts as empty (see `update`)."""
    return read()[0]


def read() -> tuple[dict[str, Row], str]:
    """What `load` gives, and the sentence to show where there is a file that cannot be read; else ""."""
    rows = _read(path())
    if rows is not None:
        return rows, ""
    return {}, f"{path()} could not be read, so that nothing of it is shown; the next check keeps it beside a new one."


def update(exercise: str, change: Callable[[Row], Row]) -> str:
    """Replace one row by `change(row)`. Returns "" or, where something was not as it should be, the sentence to show.

    A damaged file is kept beside the new one as `progress.json.damaged`, a second one as `progress.json.damaged-2`;
    nothing is lost silently.
    """
    file = path()
    note = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock"), timeout=LOCK_SECONDS):
            rows = _read(file)
            if rows is None:
                damaged = _free(file.with_suffix(".json.damaged"))
                os.replace(file, damaged)
                note, rows = f"The progress file could not be read: it is now {damaged}, and a new one was begun.", {}
            rows[exercise] = change(rows.get(exercise, Row()))
            _write(file, rows)
    except Timeout:
        return f"Progress was not saved: another notebook has held {file} for {LOCK_SECONDS:g} s; check again."
    except OSError as error:
        return f"Progress was not saved: {file} must be writable, but {error.strerror or error}."
    return note


def _read(file: Path) -> dict[str, Row] | None:
    """The rows; {} where there is no file, None where it is damaged."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): _row(fields) for name, fields in stored["exercises"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _free(file: Path) -> Path:
    """The path itself, or the first with a number behind it at which nothing lies."""
    number = 1
    found = file
    while os.path.lexists(found):
        number += 1
        found = file.with_name(f"{file.name}-{number}")
    return found


def _row(fields: dict[str, Any]) -> Row:
    return Row(**{name: int(fields[name]) for name in Row.__dataclass_fields__})


def _write(file: Path, rows: dict[str, Row]) -> None:
    """Write beside, flush to disk, rename: at any moment the file is the old one or the new one."""
    body = {"schema": SCHEMA, "exercises": {name: asdict(row) for name, row in sorted(rows.items())}}
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".progress-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(body, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
