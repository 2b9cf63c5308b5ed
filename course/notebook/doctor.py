"""What works on this machine: the packages of the course, a kernel, a GPU, a place for progress."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from dataclasses import dataclass

from course.notebook import progress_file

PACKAGES = ("torch", "numpy", "jupyterlab", "ipywidgets", "matplotlib", "safetensors")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at; `needed` ones must be good, the others only say what to expect."""

    name: str
    good: bool
    says: str
    needed: bool = True


def examine() -> list[Check]:
    """Everything that a student's machine must have, and what it will simulate because it lacks it."""
    return [_python(), *[_package(name) for name in PACKAGES], _sheets(), _progress(), _cores(), _gpu()]


def to_text(checks: list[Check]) -> str:
    """One line for each check."""
    return "\n".join(f"{_mark(each):6} {each.name:12} {each.says}" for each in checks)


def _mark(each: Check) -> str:
    return "ok" if each.good else "MISSING" if each.needed else "none"


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    advice = "" if good else "; the course needs 3.11 or newer"
    return Check(name="python", good=good, says=f"{platform.python_version()} on {platform.system()}{advice}")


def _package(name: str) -> Check:
    try:
        return Check(name=name, good=True, says=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name=name, good=False, says=f"not installed; run: pip install -c constraints.txt {name}")


def _sheets() -> Check:
    from course import syllabus
    from course.errors import SheetError
    from course.judging import sheet

    try:
        for unit in syllabus.UNITS:
            sheet.load(unit.slug)
    except SheetError as error:
        return Check(name="sheets", good=False, says=str(error))
    return Check(name="sheets", good=True, says=f"answer sheets of {len(syllabus.UNITS)} units")


def _progress() -> Check:
    folder = progress_file.path().parent
    # Not by the path's own method, which raises where it may not look.
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    try:
        with tempfile.TemporaryFile(dir=nearest):  # what the permissions say is not all: a disk may be read-only
            pass
    except OSError:
        says = f"{nearest} is not writable; progress will not be kept"
        return Check(name="progress", good=False, says=says, needed=False)
    return Check(name="progress", good=True, says=f"kept in {progress_file.path()}", needed=False)


def _cores() -> Check:
    count = os.cpu_count() or 1
    return Check(name="cores", good=True, says=f"{count}; lessons are made for two", needed=False)


def _gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check(name="gpu", good=True, says=torch.cuda.get_device_name(0), needed=False)
    return Check(
        name="gpu", good=False, says="no CUDA device: nothing here needs one; many workers are simulated", needed=False
    )
