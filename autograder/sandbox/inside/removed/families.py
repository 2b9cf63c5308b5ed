"""What grading disables for a removed name: its Python objects, and kernels of torch's dispatcher.

What the name covers stands in course/performing/removals.py, where a notebook looks too.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autograder.sandbox.inside.removed.files import files_of
from autograder.sandbox.inside.removed.operators import Kernel, kernels_of, scripts_of
from autograder.start import STAND_INS
from course.performing.removals import in_modules, removal


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is disabled for a name.

    objects  Python functions and classes
    files    that its modules were loaded from
    kernels  those of torch's operators, with what becomes of each
    scripts  operators of TorchScript's own
    modules  how many were loaded when this was looked up
    """

    name: str
    objects: tuple[Any, ...]
    files: frozenset[str]
    kernels: tuple[Kernel, ...]
    scripts: tuple[Any, ...]
    modules: int

    def loaded_since(self) -> Iterator[Any]:
        """Its functions and classes in modules that came later. In a forked child, to touch all modules takes 15 ms."""
        count = len(sys.modules) - self.modules + len(STAND_INS)  # a module takes the place of its stand-in at the end
        later = itertools.islice(reversed(sys.modules), max(0, count))
        return in_modules(self.name, list(later))


@functools.cache
def family(name: str) -> Family:
    """Everything to disable for `name` at this moment. Raises DeclarationError where nothing of it can be removed."""
    covered = removal(name)
    return Family(
        name=name,
        objects=covered.objects,
        files=files_of(name),
        kernels=kernels_of(name, covered.operators),
        scripts=scripts_of(covered.operators),
        modules=len(sys.modules),
    )
