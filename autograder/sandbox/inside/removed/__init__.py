"""Disabling what an exercise's answer may not use, in the forked child that performs it.

    names --removals, families--> Python objects --cut-->       functions that raise RemovedError
                                  their files    --files-->     cannot be opened
                                  kernels        --operators--> the dispatcher raises it, or records no graph
    "torch"                       --guard-->                    no operator at all while the answer runs
    their machine code            --erased-->                   kills who gets there all the same

Nothing keeps what it replaced. Whoever writes to memory can undo it, up to what was erased. What that can and cannot
promise stands in CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence

from autograder.sandbox.inside.removed import erased
from autograder.sandbox.inside.removed.cut import block_imports, cut
from autograder.sandbox.inside.removed.families import Family, family
from autograder.sandbox.inside.removed.files import close_files
from autograder.sandbox.inside.removed.guard import guarded
from autograder.sandbox.inside.removed.guard import over as operators_allowed
from autograder.sandbox.inside.removed.operators import forget, override
from autograder.sandbox.inside.removed.refusal import RemovedError, told
from course.failing import MAX_MESSAGE
from course.performing import uses
from course.performing.exercise import Answer, Observation
from course.performing.removals import AUTOGRAD, TORCH

__all__ = [
    "AUTOGRAD",
    "RemovedError",
    "disable",
    "disable_autograd",
    "disabled",
    "erase",
    "explained",
    "over",
    "prepare",
    "prepare_erasing",
]


def prepare(names: Sequence[str]) -> None:
    """Looks everything up once, for all children forked from this process later, which would take 10 to 30 ms.

    Raises DeclarationError on a name that cannot be removed.
    """
    _PREPARED.update(names)
    with _no_warnings():
        for name in names:
            family(name)


def prepare_erasing() -> None:
    """Looks up what `erase` needs of all that was prepared, which takes 0.6 s; in the children there is no /proc."""
    erased.look_up(_PREPARED)
    erased.writable_code()


def disable(names: Sequence[str]) -> None:
    """Removes every family of `names` from this process for good: before the student's cells are loaded in it.

    names  as in `Exercise.removes`: modules, functions, classes, or attributes of classes, by their dotted names
    Raises DeclarationError on a name that cannot be removed.
    """
    with _no_warnings():
        for each in [family(name) for name in names]:
            _remove(each)


def disabled(names: Sequence[str], answer: Answer) -> Answer:
    """The answer to perform where these are removed; what its cells have loaded of them since is removed as well.

    answer  a class stays the same class: torch itself calls an autograd.Function later
    """
    with _no_warnings():
        for each in [family(name) for name in names]:
            cut(each.loaded_since(), each.name)
    return guarded(answer) if TORCH in names else answer


def over(names: Sequence[str]) -> None:
    """After the last call of an answer that `disabled` gave, where another exercise's is to follow."""
    if TORCH in names:
        operators_allowed()


def explained(seen: Observation, names: Sequence[str], answer: Answer) -> Observation:
    """The same, where an error of somebody else's has what the answer may not use behind it: then it says so.

    Where no graph is recorded, torch complains that a tensor has none. So the source is read for what may be why.
    """
    error = seen.error
    if error is None or error.type == RemovedError.__name__:
        return seen
    used = uses.forbidden(answer, names)
    why = f" ({told(*next(iter(used.items())))})" if used else ""
    message = f"{error.message[: MAX_MESSAGE - len(why)]}{why}"
    return dataclasses.replace(seen, error=dataclasses.replace(error, message=message))


def disable_autograd() -> None:
    """Removes what most exercises of a lesson remove, and what takes longest: for a process that forks for them."""
    with _no_warnings():
        _remove(family(AUTOGRAD[-1]))


def erase(names: Sequence[str]) -> bool:
    """Overwrites the machine code of every family of `names` in this process: whether there is any.

    It is gone for good only where no memory becomes executable afterwards. Raises OSError where the system refuses.
    """
    here = [name for name in names if erased.code_of(name)]
    erased.erase([span for name in here if name not in _ERASED for span in erased.code_of(name)])
    _ERASED.update(here)
    return bool(here)


_PREPARED: set[str] = set()
_GONE: set[str] = set()  # in this process
_ERASED: set[str] = set()


def _remove(each: Family) -> None:
    """What was known in the warm process; what is loaded afterwards is cut afterwards."""
    if each.name in _GONE or (each.name in AUTOGRAD and not _GONE.isdisjoint(AUTOGRAD)):
        return
    _GONE.add(each.name)
    block_imports(each.name)
    cut(each.objects, each.name)
    close_files(each.files, each.name)
    override(each.kernels, each.name)
    forget(each.scripts)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Torch remarks that kernels are overridden, and that names at which we look are deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
