"""What the warm process finds to import: whole folders that are named here, and nothing else.

    course/STUDENT_SIDE, stand-ins for course/notebook, inside/, wire/ and start --stage--> a folder

Whatever is not named stays outside: references, answer sheets, the judge, banks, and all of the grader but its ROOMS.
The import contracts in pyproject.toml say the same of imports; a test holds them to these names.
"""

from __future__ import annotations

import importlib.util
import marshal
import shutil
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import autograder
import course
from autograder.sandbox.wire.policy import visible

COURSE = Path(course.__file__).parent
GRADER = Path(autograder.__file__).parent
STUDENT_SIDE = (  # what answers are made with and performed by
    *("performing", "exercises", "cluster", "meter", "planner", "lessons"),
    *("__init__.py", "apart.py", "errors.py", "failing.py", "syllabus.py", "tree.py"),
)
ROOMS = ("sandbox/inside", "sandbox/wire", "start.py")
STOOD_IN = "notebook"  # what a lesson calls on a student's own machine: inside/stand_ins takes its place


def stage(to: Path) -> None:
    """Write the copy to `to`, a new folder, with what Python has compiled of it here: that takes 0.4 s anew."""
    for name in STUDENT_SIDE:
        _copy(COURSE / name, to / "course" / name)
    _copy(GRADER / "sandbox" / "inside" / "stand_ins", to / "course" / STOOD_IN)
    for room in ROOMS:
        _copy(GRADER / room, to / "autograder" / room)
    for folder in (to / "autograder" / "sandbox", to / "autograder"):
        (folder / "__init__.py").touch()


def ours() -> list[Path]:
    """Folders of which students' code may see nothing: the checkout, or the installed packages, and where we grade."""
    checkout = GRADER.parent
    return [*([checkout] if (checkout / "pyproject.toml").is_file() else [COURSE, GRADER]), Path.cwd()]


def files() -> list[str]:
    """What lies in them, without the folders of a Python, which are there inside."""
    found = {str(path) for folder in ours() for path in folder.iterdir() if not (path / "pyvenv.cfg").exists()}
    return sorted(found)


def exposed(folder: Path) -> bool:
    """Whether students' code could read what lies there."""
    return visible(folder) and not any(folder.is_relative_to(each) for each in ours())


def left_out() -> list[str]:
    """The modules of course and grader that are not there, by their outermost names."""
    there = {COURSE / name for name in (*STUDENT_SIDE, STOOD_IN)} | {GRADER / room for room in ROOMS}
    found = [path for folder in (COURSE, GRADER, GRADER / "sandbox") for path in folder.iterdir() if path not in there]
    names = [path.relative_to(COURSE.parent).with_suffix("").as_posix().replace("/", ".") for path in found]
    return sorted(name for name in names if "__" not in name and name != "autograder.sandbox")


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), copy_function=_copy_file)
    else:
        _copy_file(source, to)


def _copy_file(source: str | Path, to: str | Path) -> None:
    """A file; beside one of Python's, in Python's own form (PEP 552), what was compiled of it."""
    copied = Path(shutil.copyfile(source, to))
    if copied.suffix == ".py":
        code = SourceFileLoader("", str(source)).get_code("")
        assert code is not None  # only modules that are no Python have none
        stat = copied.stat()
        fits = b"".join(each.to_bytes(4, "little") for each in (0, int(stat.st_mtime), stat.st_size))
        compiled = copied.parent / "__pycache__" / f"{copied.stem}.{sys.implementation.cache_tag}.pyc"
        compiled.parent.mkdir(exist_ok=True)
        compiled.write_bytes(importlib.util.MAGIC_NUMBER + fits + marshal.dumps(_named(code, copied.name)))


def _named(code: CodeType, file: str) -> CodeType:
    """The code, with another file's name: where the grader lies is told to nobody. Its import puts in where it lies."""
    inner = (_named(each, file) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))
