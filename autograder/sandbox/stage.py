"""The part of the course that students' code may import in the sandbox: a copy without anything that is secret.

No reference, answer sheet, judge or bank is in it, and nothing of the grader but the code that runs inside.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import autograder
import course

COURSE = Path(course.__file__).parent
AUTOGRADER = Path(autograder.__file__).parent
STUDENT_SIDE = (
    *("errors.py", "tree.py", "syllabus.py", "exercise.py", "oracle.py", "perform.py", "simulate.py", "failing.py"),
    *("cells.py", "compare.py", "graph.py", "grammar.py", "floor.py", "models.py", "uses.py"),
    *("exercises", "experiments", "cluster", "meter", "data", "figures", "widgets"),
)
# Of autograder/sandbox; the rest runs inside.
OUTSIDE = (
    *("__init__.py", "runner.py", "session.py", "loading.py", "ranks.py", "broker.py", "line.py", "brokered.py"),
    *("control.py", "folder.py", "stage.py", "stand_ins", "doctor.py", "incoming.py"),
)


def stage(to: Path) -> None:
    """Write the copy to `to`, a new folder."""
    for name in STUDENT_SIDE:
        _copy(COURSE / name, to / "course" / name)
    for name in ("check.py", "doctor.py"):
        _copy(AUTOGRADER / "sandbox" / "stand_ins" / name, to / "course" / name)
    _copy(COURSE / "__init__.py", to / "course" / "__init__.py")
    inside = to / "autograder" / "sandbox"
    for path in (AUTOGRADER / "sandbox").iterdir():
        if path.name not in (*OUTSIDE, "__pycache__"):
            _copy(path, inside / path.name)
    _copy(AUTOGRADER / "start.py", inside.parent / "start.py")
    for folder in (inside, inside.parent):
        (folder / "__init__.py").touch()


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, to)
