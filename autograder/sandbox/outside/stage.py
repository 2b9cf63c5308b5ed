"""The part of the course that students' code may import in the sandbox: whole folders, and nothing else.

No reference, answer sheet, judge or bank is in them, and nothing of the grader but what runs inside.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import autograder
import course

COURSE = Path(course.__file__).parent
SANDBOX = Path(autograder.__file__).parent / "sandbox"
STUDENT_SIDE = (
    "performing",
    "exercises",
    "cluster",
    "meter",
    "lessons",
    *("__init__.py", "errors.py", "failing.py", "syllabus.py", "tree.py"),
)
ROOMS = ("inside", "wire")


def stage(to: Path) -> None:
    """Write the copy to `to`, a new folder."""
    for name in STUDENT_SIDE:
        _copy(COURSE / name, to / "course" / name)
    _copy(SANDBOX / "inside" / "stand_ins", to / "course" / "notebook")
    for room in ROOMS:
        _copy(SANDBOX / room, to / "autograder" / "sandbox" / room)
    for folder in (to / "autograder" / "sandbox", to / "autograder"):
        (folder / "__init__.py").touch()


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, to)
