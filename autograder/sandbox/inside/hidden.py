"""The course's own modules, out of an answer's reach: they hold what answers are asked for, and what looks at them.

    import, sys.modules, attributes of packages, files --hide--> only what a lesson hands to its answers

Who is determined finds objects of a process that runs his code all the same; what was hidden is not gone.
"""

from __future__ import annotations

import dis
import importlib
import itertools
import os
import sys
from collections.abc import Callable
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
IMPORT_STATEMENT = dis.opmap["IMPORT_NAME"]
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
    sys.addaudithook(_refusing(modules))


def _refusing(modules: dict[str, ModuleType]) -> Callable[[str, tuple[Any, ...]], None]:
    """Puts a module back where one of these imports it. Nobody finds a hook, which alone knows them."""
    ours = frozenset(id(vars(each)) for each in modules.values())

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and is_hidden(arguments[0]):
            if not _imports(sys._getframe(), ours):
                words = f"`{arguments[0]}` may not be used in an answer: it is what the course checks answers with"
                raise ImportError(words, name=arguments[0])
            if arguments[0] in modules:
                sys.modules[arguments[0]] = modules[arguments[0]]
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(f"{HOME}/") and is_hidden(_module_of(path)):
                raise PermissionError(f"{path} may not be read by an answer: it is what the course checks answers with")

    return refuse


def _imports(frame: FrameType | None, ours: frozenset[int]) -> bool:
    """Whether it is an import statement of a module of ours: a file's name anybody may choose.

    Not a call: ours call what an answer gives them, such as `map(__import__, names)`.
    """
    while frame is not None and frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    return frame is not None and id(frame.f_globals) in ours and frame.f_code.co_code[frame.f_lasti] == IMPORT_STATEMENT


def is_hidden(name: str) -> bool:
    """Whether no answer may use a module of this name."""
    if name.partition(".")[0] not in ("course", "autograder") or name == NEEDED:
        return False
    below = any(lies_in(name, package) for package in WHOLE) and not any(lies_in(name, each) for each in CLOSED)
    return not (below or name in OPEN)


def _module_of(path: str) -> str:
    """The name of the module that lies in a file, compiled or not."""
    *folders, name = Path(path).relative_to(HOME).parts
    return ".".join([each for each in (*folders, name.partition(".")[0]) if each not in ("__pycache__", "__init__")])
