"""What a removed module is made of: its files cannot be opened again, and no interpreter begins that would load them.

import, runpy, exec(open(...).read()) --sys.audit("open")--> RemovedError     a hook that nobody can take away
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Set
from pathlib import Path
from typing import Any

from autograder.sandbox.inside.removed.refusal import refusal
from course.performing.removals import MEMBERS, UNLOADED, lies_in

ANOTHER = "cpython.PyInterpreterState_New"


def files_of(name: str) -> frozenset[str]:
    """The files of all loaded modules that lie in `name`, and its folder where it is not loaded to be looked at; none
    where only some members of a module are removed.
    """
    found = [sys.modules[each] for each in list(sys.modules) if name not in MEMBERS and lies_in(each, name)]
    files = [getattr(each, "__file__", None) for each in found]
    spec = importlib.util.find_spec(name) if name in UNLOADED else None
    folders = (spec and spec.submodule_search_locations) or ()
    return frozenset(os.path.realpath(each) for each in (*files, *folders) if isinstance(each, str))


def close_files(files: Set[str], name: str) -> None:
    """Whoever opens one of these files, or what lies in one of these folders, gets RemovedError for `name`."""
    short = frozenset(map(os.path.basename, files))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == ANOTHER or (event == "open" and _is_one(arguments[0], files, short)):
            raise refusal(name)

    if files:
        sys.addaudithook(hook)


def _is_one(path: object, files: Set[str], short: Set[str]) -> bool:
    """Whether it leads to one of the files, compiled or not, or into a folder among them; `short` are their names,
    where it begins at any folder.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    told = os.fsdecode(path)
    found = Path(os.path.realpath(told))
    if found.parent.name == "__pycache__":
        found = found.parent.parent / f"{found.name.partition('.')[0]}.py"
    elsewhere = not os.path.isabs(told) and not found.exists()
    inside = any(str(each) in files for each in (found, *found.parents))
    return inside or (elsewhere and not short.isdisjoint(found.parts))
