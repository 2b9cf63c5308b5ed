"""What a removed module was made of: its files cannot be opened again, and no interpreter begins that would load them.

import, runpy, exec(open(...).read()) --sys.audit("open")--> RemovedError     a hook that nobody can take away
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from autograder.sandbox.inside.removed.refusal import refusal
from course.performing.removals import MEMBERS, lies_in

ANOTHER = "cpython.PyInterpreterState_New"


def files_of(name: str) -> frozenset[str]:
    """The files of all loaded modules that lie in `name`; none where only some members of a module are removed."""
    found = [sys.modules[each] for each in list(sys.modules) if name not in MEMBERS and lies_in(each, name)]
    files = [getattr(each, "__file__", None) for each in found]
    return frozenset(os.path.realpath(each) for each in files if isinstance(each, str))


def close_files(files: Collection[str], name: str) -> None:
    """Whoever opens one of these files gets RemovedError for `name`."""
    short = frozenset(map(os.path.basename, files))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == ANOTHER or (event == "open" and _is_one(arguments[0], files, short)):
            raise refusal(name)

    if files:
        sys.addaudithook(hook)


def _is_one(path: object, files: Collection[str], short: Collection[str]) -> bool:
    """Whether it leads to one of the files, compiled or not; `short` are their names, where it begins at any folder."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    told = os.fsdecode(path)
    found = Path(os.path.realpath(told))
    if found.parent.name == "__pycache__":
        found = found.parent.parent / f"{found.name.partition('.')[0]}.py"
    elsewhere = not os.path.isabs(told) and not found.exists()
    return str(found) in files or (elsewhere and found.name in short)
