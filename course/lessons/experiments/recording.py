"""What a long experiment found, kept in a small file: by which command, on what machine, in how many seconds.

save(name, data, seconds=...) --> recorded/<name>.json --> load(name, kind) --> Recording(..., data)

The data of an experiment are a dataclass of numbers, strings and lists of them. Loading checks that each field is
there and that no other is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import torch

from course.errors import CourseError

FOLDER = Path(__file__).parent / "recorded"
WIDTH = 118  # of a line in a recorded file
Data = TypeVar("Data")


class RecordingError(CourseError):
    """A recorded experiment is missing, is damaged, or lacks what was asked of it."""


@dataclass(frozen=True, kw_only=True)
class Recording(Generic[Data]):
    """An experiment that was run: `data` is what it found, `seconds` the processor time it took."""

    command: str
    torch: str  # its version
    machine: str  # in words
    seconds: float
    data: Data

    def __str__(self) -> str:
        took = f"{self.seconds:.0f} s of processor time"
        return f"recorded by `{self.command}`: {took}, torch {self.torch}, {self.machine}"


def record(name: str, measure: Callable[[], Any], *, folder: Path = FOLDER) -> Path:
    """Runs `measure()`, which returns a dataclass, and keeps what it found; returns the path of the file."""
    begin = time.process_time()  # what else runs on the machine does not count
    data = measure()
    return save(name, data, seconds=time.process_time() - begin, folder=folder)


def save(name: str, data: Any, *, seconds: float, folder: Path = FOLDER) -> Path:
    """Writes `folder/<name>.json` and returns its path.

    data     an instance of a dataclass; its numbers must be finite (None stands for "never")
    seconds  of processor time that the experiment took
    """
    recording = Recording(
        command=f"python -m course.lessons.experiments.{name}",
        torch=torch.__version__,
        machine=machine(),
        seconds=round(seconds, 1),
        data=data,
    )
    path = folder / f"{name}.json"
    path.write_text(_text(dataclasses.asdict(recording)), encoding="utf-8")
    return path


def machine() -> str:
    """The machine in words, without its name: `2 processors (x86_64, Linux), 1 thread`."""
    threads = torch.get_num_threads()
    plural = "s" if threads > 1 else ""
    return f"{os.cpu_count()} processors ({platform.machine()}, {platform.system()}), {threads} thread{plural}"


def load(name: str, kind: type[Data], *, folder: Path = FOLDER) -> Recording[Data]:
    """The recorded experiment of that name, its data as `kind`, a dataclass.

    Raises RecordingError where the file is missing or damaged, or where its data are not the fields of `kind`.
    """
    mend = f"run `python -m course.lessons.experiments.{name}` or install the package again"
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{name}.json must be readable, got {error}: {mend}") from error
    try:
        whole: Recording[Any] = _built(Recording, found, f"{name}.json")
        return dataclasses.replace(whole, data=_built(kind, whole.data, f"data of {name}.json"))
    except RecordingError as error:
        raise RecordingError(f"{error}: {mend}") from None


def _built(kind: type[Any], found: Any, where: str) -> Any:
    """The dataclass `kind` from a mapping with exactly its fields; a field that is a dataclass is built likewise."""
    kinds = get_type_hints(kind)
    if not isinstance(found, dict):
        raise RecordingError(f"{where} must hold {', '.join(kinds)}, got {type(found).__name__}")
    got = [f"no {name}" for name in kinds if name not in found] + [f"{name} too" for name in found if name not in kinds]
    if got:
        raise RecordingError(f"{where} must hold {', '.join(kinds)}, got {' and '.join(got)}")
    return kind(**{name: _part(kinds[name], value, f"{name} in {where}") for name, value in found.items()})


def _part(kind: Any, value: Any, where: str) -> Any:
    """A field: a dataclass, a list of dataclasses, or anything else as it stands."""
    if get_origin(kind) is list and isinstance(value, list):
        return [_part(get_args(kind)[0], each, f"an entry of {where}") for each in value]
    return _built(kind, value, where) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else value


def _text(tree: dict[str, Any]) -> str:
    """JSON with a line for each entry; a list stands on one line where it fits."""
    return _laid_out(tree, 0) + "\n"


def _laid_out(value: Any, depth: int) -> str:
    flat = json.dumps(value, allow_nan=False)
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        lines = [f"{pad}{json.dumps(key)}: {_laid_out(each, depth + 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{end}}}"
    if isinstance(value, list) and len(flat) + depth > WIDTH:
        return "[\n" + ",\n".join(pad + _laid_out(each, depth + 1) for each in value) + f"\n{end}]"
    return flat
