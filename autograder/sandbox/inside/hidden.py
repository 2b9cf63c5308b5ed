"""The course's own modules, out of an answer's reach: they hold what answers are asked for, and what looks at them.

    import, sys.modules, attributes of packages, files --hide--> only what a lesson hands to its answers

Who is determined finds objects of a process that runs his code all the same; what was hidden is not gone.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from autograder.sandbox.inside.removed.refusal import RemovedError
from autograder.start import STAND_INS
from course.performing.removals import lies_in

HOME = str(Path(__file__).parents[3])  # of course and autograder
OPEN = ("course", "course.cluster", "course.errors", "course.lessons", "course.notebook")
WHOLE = ("course.lessons", "course.notebook")  # with the modules below them
CLOSED = tuple(f"course.lessons.{name}" for name in ("experiments", "figures", "widgets"))
NEEDED = RemovedError.__module__  # by whatever was removed, wherever it is called
IMPORTS = ("<frozen importlib", importlib.__file__, __file__)  # begin the files of what imports for somebody

_known: list[str] = []  # names of modules to hide, after `prepare`
_count = 0  # of all modules that were there then


def prepare() -> None:
    """Look at the names of all modules, for all children forked from this process later, which would take 2 ms each."""
    global _count
    _known[:], _count = [name for name in sys.modules if is_hidden(name)], len(sys.modules)


def hide() -> None:
    """From here on only our own code finds these modules."""
    later = itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _count + len(STAND_INS)))
    names = [*_known, *(name for name in [*later] if is_hidden(name))]
    modules = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    for name in names:
        package, _, last = name.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(last, None)
    sys.meta_path.insert(0, _OursOnly())
    sys.addaudithook(_no_files)
    sys.addaudithook(_giving(modules))


def _giving(modules: dict[str, ModuleType]) -> Callable[[str, tuple[Any, ...]], None]:
    """Puts a module back where one of ours imports it. Nobody finds a hook, which alone knows these modules."""

    def give(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and arguments[0] in modules and _by_ours(sys._getframe()):
            sys.modules[arguments[0]] = modules[arguments[0]]

    return give


def is_hidden(name: str) -> bool:
    """Whether no answer may use a module of this name."""
    if name.partition(".")[0] not in ("course", "autograder") or name == NEEDED:
        return False
    below = any(lies_in(name, package) for package in WHOLE) and not any(lies_in(name, each) for each in CLOSED)
    return not (below or name in OPEN)


class _OursOnly:
    """Refuses to find a hidden module for anybody else."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Nothing: other finders should look. Raises ImportError."""
        if is_hidden(fullname) and not _by_ours(sys._getframe()):
            words = f"`{fullname}` may not be used in an answer: it is what the course checks answers with"
            raise ImportError(words, name=fullname)


def _by_ours(frame: FrameType | None) -> bool:
    """Whether it is a module of ours that imports or opens something, and not an answer."""
    while frame is not None and frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HOME)


def _no_files(event: str, arguments: tuple[Any, ...]) -> None:
    """Nobody else reads their sources."""
    if event != "open" or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    path = os.path.realpath(os.fsdecode(arguments[0]))
    if path.startswith(f"{HOME}/") and is_hidden(_module_of(path)) and not _by_ours(sys._getframe()):
        raise PermissionError(f"{path} may not be read by an answer: it is what the course checks answers with")


def _module_of(path: str) -> str:
    """The name of the module that lies in a file, compiled or not."""
    *folders, name = Path(path).relative_to(HOME).parts
    return ".".join([each for each in (*folders, name.partition(".")[0]) if each not in ("__pycache__", "__init__")])
